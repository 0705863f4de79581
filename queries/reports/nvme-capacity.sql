-- title = "NVMe capacity"
-- order = 45
-- description = """
-- Whether ZeRO-Infinity's swap files fit on the NVMe, whether the next copy of a checkpoint fits,
-- and when a file system is full. Adam with its gradients takes 16 bytes a parameter over the ranks
-- that share a partition, half-precision parameters 2, a checkpoint's copy 12 in all; padding adds
-- up to 1 %. Quotas and inodes are not seen. The slope is Theil-Sen's, the median of all pairs.
-- """
-- brief = ["use", "run_id", "host", "path", "expected_bytes_fs", "free_bytes", "verdict",
--   "slope_gb_per_h", "t_full", "saves_left"]
-- [parameters.params]
-- type = "DOUBLE"
-- minimum = 1
-- description = "Parameters of the model; from the logs where not given"
-- [parameters.dp]
-- type = "DOUBLE"
-- minimum = 1
-- description = "Ranks that share a partition: data-parallel times sequence-parallel ranks"
-- [parameters.local_ranks]
-- type = "DOUBLE"
-- minimum = 1
-- description = "Ranks on one file system"
-- [parameters.offload]
-- type = "VARCHAR"
-- description = "What is kept on NVMe: optimizer, parameters or optimizer,parameters"
-- [parameters.free_bytes]
-- type = "DOUBLE"
-- minimum = 0
-- description = "Free bytes of the swap file system before the run; from df rows where not given"
-- [parameters.same_filesystem]
-- type = "BOOLEAN"
-- default = "false"
-- description = "Whether checkpoints are copied onto the swap file system"
-- [parameters.headroom]
-- type = "DOUBLE"
-- default = 0.9
-- minimum = 0
-- description = "Share of the free space up to which a footprint is ok"
-- [columns]
-- use = "swap: the swap files; checkpoint: copies of saves"
-- cluster = "Cluster"
-- run_id = "Run"
-- attempt = "Attempt"
-- host = "Host; NULL where it is not told, or hosts share the file system"
-- path = "Folder"
-- params = "Parameters of the model"
-- dp = "Ranks that share a partition"
-- local_ranks = "Ranks on the file system"
-- offload = "What is kept on NVMe"
-- expected_bytes_per_rank = "Swap files of one rank, bytes"
-- expected_bytes_fs = "Swap files of all ranks on the file system, bytes"
-- of_which_gradients = "Their part that is gradients, not copied to checkpoints, bytes"
-- ckpt_bytes_per_tag = "Copies of one checkpoint, all ranks, bytes"
-- free_bytes = "Free: of swap before the run, of checkpoints at the last save, bytes"
-- capacity_bytes = "Size of the file system, bytes; NULL where no line says"
-- headroom_bytes = "Free less what is needed, bytes"
-- verdict = "ok, tight, will_fail, or unknown where a number is missing"
-- slope_gb_per_h = "Change of the free space, GB (1e9 bytes) an hour"
-- t_full = "When it is full at that slope, UTC"
-- hours_to_full = "The same, hours from the last observation"
-- saves_left = "Saves until it is full, at the median drop from save to save"
-- stale_rank_dirs = "Swap folders named of ranks that this world has not"
-- observations = "Levels of free space that the slope rests on"
SELECT use, cluster, run AS run_id, attempt, host, path, params, dp, local_ranks,
  nullif(concat_ws(',', CASE WHEN optimizer THEN 'optimizer' END,
    CASE WHEN parameters THEN 'parameters' END), '') AS offload,
  expected_bytes_per_rank, expected_bytes_fs, of_which_gradients, ckpt_bytes_per_tag, free_bytes,
  capacity_bytes, headroom_bytes, verdict, slope_gb_per_h, t_full, hours_to_full, saves_left,
  stale_rank_dirs, observations
FROM nvme_capacity(params := $params, dp := $dp, local_ranks := $local_ranks, offload := $offload,
  free_bytes := $free_bytes, same_filesystem := $same_filesystem, headroom := $headroom)
WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
  AND within(t_last, $since, $until) AND ($failure IS NULL OR $failure = 'disk-full')
ORDER BY CASE verdict WHEN 'will_fail' THEN 0 WHEN 'tight' THEN 1 WHEN 'unknown' THEN 2 ELSE 3 END,
  hours_to_full NULLS LAST, use DESC, run_id, host, path
