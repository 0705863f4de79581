-- What runs measured of themselves: steps, speed of single ranks, saves of checkpoints, free space.
--
-- Pure SQL over the views of views.sql; `ingest` stores it in the database with them. What a line
-- tells beside its signature's captures is read from its stored message, so that the matcher need
-- not look for it.

-- A number that a line gave as text: 1,234.5.
CREATE OR REPLACE MACRO number_of(text) AS try_cast(replace(text, ',', '') AS DOUBLE);

-- The number in a message behind the words of a pattern; NULL where there is none.
CREATE OR REPLACE MACRO number_after(message, words) AS number_of(
  nullif(regexp_extract(message, '(?:' || words
    || ')([-+]?[0-9][0-9,]*(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?)', 1), ''));

-- Steps as the logs print them: a row a stored line, so with metrics off only a part of them.
CREATE OR REPLACE VIEW iterations AS
SELECT attempt_id, cluster, run, job, attempt, rank, step, ts, t0,
  coalesce(number_of(captures['iter_s']),
    number_of(coalesce(captures['iter_ms'], captures['step_ms'])) / 1000,
    1 / nullif(number_of(captures['iter_hz']), 0),
    number_after(message, 'elapsed time per iteration \(ms\): *|\| dt: *') / 1000,
    number_after(message, 'elapsed time per iteration \(s\): *|train_step_timing in s: *|'
      || '\bstep_time[ :=]+|[ ]time: +|\brate:(?:[0-9.]+it/s)?'))
    AS t_iter_s,
  coalesce(number_of(captures['loss']), number_after(message, '\blm[ -]loss: +'
    || '|''loss'': ''?|\b(?:reduced_)?(?:train_)?[Ll]oss[:=] *')) AS loss,
  coalesce(number_of(captures['grad_norm']),
    number_after(message, 'grad[ _]norm''?[:=] *''?')) AS grad_norm,
  number_after(message, 'learning[ _]rate''?: *''?|\blr[:=] *\[?') AS lr,
  coalesce(number_of(captures['loss_scale']),
    number_after(message, '\bloss scale: *|\bloss_scale[:=] *')) AS loss_scale,
  coalesce(number_of(captures['tokens_s']), number_after(message, '\btps: *|\btok/sec: *'
    || '|[Tt]okens/s(?:/device)?: *|tokens per second(?: per GPU)?: *')) AS tokens_s,
  coalesce(number_of(captures['samples_s']), number_after(message,
    'samples/sec: *|samples per second: *|CurrSamplesPerSec=')) AS samples_s,
  coalesce(number_of(captures['tflops']), number_after(message,
    '\(TFLOP/s/GPU\): *|\bTFLOPs: *|TFLOP/s/device: *|\btflops: *')) AS tflops_gpu,
  coalesce(number_of(captures['skipped']),
    number_after(message, 'skipped iterations: *'))::BIGINT AS skipped,
  coalesce(number_of(captures['nan']),
    number_after(message, 'nan iterations: *'))::BIGINT AS nan_iters,
  try_cast(captures['step_last'] AS BIGINT) AS step_last,
  repeats, signature, path AS file, line_no AS line
FROM placed_events WHERE failure IN ('training-step', 'step-timing');

-- Speed of single ranks: imported times, or what the logs say. t_compute_s is what the rank itself
-- took; the time of a whole step, equal on all ranks that wait for each other, is in `value` alone.
-- `partial` where a report names only some of its ranks.
CREATE OR REPLACE VIEW rank_timings AS
SELECT hash(cluster, coalesce(run, job), attempt) AS attempt_id, cluster, coalesce(run, job) AS run,
  job, attempt, step, ts, ts AS t0, rank, host, stage, microbatch,
  coalesce(t_compute_s, t_fwd_s + t_bwd_s) AS t_compute_s, t_fwd_s, t_bwd_s,
  'time_ms' AS metric, 1000 * coalesce(t_compute_s, t_fwd_s + t_bwd_s) AS value,
  coalesce(source, 'timings') AS source, false AS partial, NULL::VARCHAR AS file,
  NULL::BIGINT AS line
FROM timings
UNION ALL
SELECT e.attempt_id, e.cluster, e.run, e.job, e.attempt, e.step, e.ts, e.t0,
  try_cast(e.captures[k.who] AS INTEGER), lower(e.captures['peer_host']), NULL, NULL,
  CASE WHEN k.metric = 'time_ms' THEN number_of(e.captures[k.what]) / 1000 END, NULL, NULL,
  k.metric, number_of(e.captures[k.what]), e.signature, true, e.path, e.line_no
FROM placed_events AS e
JOIN (VALUES ('fast_rank', 'min_ms', 'time_ms'), ('peer_rank', 'max_ms', 'time_ms'),
  ('peer_rank', 'min_mhz', 'clock_mhz'), ('peer_rank', 'min_tf', 'throughput_tf'),
  ('peer_rank', 'score', 'score')) AS k(who, what, metric)
  ON e.failure = 'straggler' AND e.captures[k.who] IS NOT NULL AND e.captures[k.what] IS NOT NULL
UNION ALL
SELECT attempt_id, cluster, run, job, attempt, step, ts, t0, rank, NULL, NULL, NULL, NULL, NULL,
  NULL, 'time_ms', 1000 * t_iter_s, 'training-step', false, file, line
FROM iterations WHERE rank IS NOT NULL AND t_iter_s IS NOT NULL;

-- Which step a path names; which save or load a line names: the step, else its tag or path.
CREATE OR REPLACE MACRO step_in(path) AS nullif(
  regexp_extract(path, '(?:global_step|iter_|checkpoint-|step[-_=]?)0*([0-9]+)', 1), '');
CREATE OR REPLACE MACRO save_of(tag, step, path) AS
  coalesce(step_in(tag), tag, step::VARCHAR, step_in(path), path);

-- The folder that holds all saves or swap files, of a path within one of them.
CREATE OR REPLACE MACRO folder_of(path) AS coalesce(nullif(regexp_replace(path,
  '/(?:zero_stage_[0-9]|offloaded_tensors|global_step[0-9]|iter_[0-9]|checkpoint-[0-9]'
  || '|step[-_=]?[0-9])[^/]*(?:/.*)?$', ''), ''), path);

-- What df prints, in bytes: it counts in 1024 bytes, or in powers of 1024 with a letter.
CREATE OR REPLACE MACRO df_bytes(text) AS (number_of(rtrim(text, 'KMGTP'))
  * pow(1024, greatest(1, instr('KMGTP', right(text, 1)))))::BIGINT;

-- Free space of file systems as the logs print it, decimal bytes. A line of DeepSpeed's copy names
-- its target when it begins; when it is complete it is that of the copy before.
CREATE OR REPLACE VIEW storage_obs AS
WITH told AS (
  SELECT attempt_id, cluster, run, job, attempt, host, rank, coalesce(ts, t0) AS ts, event_id,
    path AS file, line_no AS line, failure, signature,
    CASE WHEN signature = 'deepspeed-nvme-copy-complete' THEN last_value(
        CASE WHEN failure <> 'free-space' THEN captures['path'] END IGNORE NULLS)
        OVER (PARTITION BY file_id ORDER BY line_no)
      ELSE captures['path'] END AS target,
    number_of(captures['free_gb']) * 1e9 AS free_gb, captures['free'] AS free,
    captures['size'] AS size
  FROM placed_events
  WHERE signature IN ('deepspeed-nvme-copy-begin', 'deepspeed-nvme-copy-complete')
    OR failure = 'free-space'
)
SELECT attempt_id, cluster, run, job, attempt, host, rank, folder_of(target) AS path, ts,
  coalesce(free_gb::BIGINT, df_bytes(free)) AS free_bytes, df_bytes(size) AS total_bytes,
  CASE WHEN failure = 'free-space' THEN 'df' ELSE 'ds_copy_line' END AS source,
  step_in(target) AS save, event_id, file, line
FROM told WHERE free_gb IS NOT NULL OR free IS NOT NULL;

-- Saves of checkpoints, one row an attempt and tag.
--   complete          a line says that it is whole; where ranks copy swap files and none says so,
--                     all that began have ended and steps follow
--   incomplete_ranks  fewer ranks say so than for the attempt's other saves
--   failed            trouble with storage or checkpoints follows before the next save
--   corrupt           complete, but a later load of it in the run met such trouble
--   unverified        steps go on without word of its end
--   begun             else
-- `resaved` where an earlier attempt of the run had saved that tag; `bytes` is by how much the free
-- space fell between the copies' beginning and end.
CREATE OR REPLACE VIEW checkpoints AS
WITH told AS (
  SELECT attempt_id, cluster, run, job, attempt, event_id, file_id, line_no, line_end, rank,
    captures['rank'] AS said_rank, t0, t1, signature, failure, world_size,
    captures['path'] AS save_path, captures['tag'] AS said_tag,
    number_of(captures['save_s']) AS save_s,
    number_of(captures['free_gb']) * 1e9 AS free, path AS file,
    CASE WHEN starts_with(signature, 'deepspeed-nvme-copy') THEN NULL ELSE step END AS step,
    save_of(captures['tag'], step, captures['path']) AS tag,
    failure = 'checkpoint-load-begin' OR contains(coalesce(captures['source'], ''),
      'offloaded_tensors') AS loads,
    failure = 'checkpoint-begin' AND NOT loads AS begins,
    signature = 'deepspeed-nvme-copy-complete' AS copied,
    failure = 'checkpoint-complete' AS done,
    role IN ('cause', 'collateral') AND category IN ('checkpoint', 'storage') AS trouble
  FROM placed_events
  WHERE attempt_id IS NOT NULL AND (
    failure IN ('checkpoint-begin', 'checkpoint-complete', 'checkpoint-load-begin')
    OR (role IN ('cause', 'collateral') AND category IN ('checkpoint', 'storage')))
), followed AS (  -- a line without a tag is about what was begun last, in its file or by time
  SELECT * EXCLUDE (in_file, in_attempt),
    CASE WHEN begins OR loads THEN {'tag': tag, 'loads': loads}
      WHEN done AND NOT copied AND tag IS NOT NULL THEN {'tag': tag, 'loads': false}
      ELSE coalesce(in_file, in_attempt) END AS of_save
  FROM (
    SELECT *,
      last_value(CASE WHEN begins OR loads THEN {'tag': tag, 'loads': loads} END IGNORE NULLS)
        OVER (PARTITION BY file_id ORDER BY line_no) AS in_file,
      last_value(CASE WHEN begins OR loads THEN {'tag': tag, 'loads': loads} END IGNORE NULLS)
        OVER (PARTITION BY attempt_id, t0 IS NULL ORDER BY t0, line_no) AS in_attempt
    FROM told)
), saves AS (
  SELECT attempt_id, any_value(cluster) AS cluster, any_value(run) AS run, any_value(job) AS job,
    any_value(attempt) AS attempt, of_save.tag AS tag,
    max(step) FILTER (NOT loads) AS step, max(said_tag) AS said_tag,
    any_value(save_path) FILTER (begins OR done) AS path,
    min(t0) FILTER (begins) AS t_begin, max(t1) FILTER (done) AS t_end, max(save_s) AS save_s,
    count(*) FILTER (done AND NOT copied) > 0 AS committed,
    count(*) FILTER (copied) > 0 AS has_copied,
    count(DISTINCT rank) FILTER (done) AS ranks_ok,
    count(DISTINCT coalesce(said_rank, rank::VARCHAR))
      FILTER (begins AND signature = 'deepspeed-nvme-copy-begin') AS copies_begun,
    count(*) FILTER (copied) AS copies,
    count(*) FILTER (trouble) > 0 AS troubled,
    count(DISTINCT rank) FILTER (trouble) AS trouble_ranks,
    count(*) FILTER (begins) > 0 AS begun,
    max(free) FILTER (begins) AS free_before, min(free) FILTER (copied) AS free_after,
    any_value(file_id) FILTER (begins) AS file_id,
    arg_min(file, line_no) FILTER (begins) AS file, min(line_no) FILTER (begins) AS line
  FROM followed WHERE of_save IS NOT NULL AND NOT of_save.loads
  GROUP BY attempt_id, of_save.tag
  HAVING count(*) FILTER (begins OR done) > 0
), unloadable AS (
  SELECT DISTINCT cluster, run, of_save.tag AS tag FROM followed WHERE trouble AND of_save.loads
), later AS (  -- how far steps, or the end of the run, were told
  SELECT attempt_id, file_id, max(line_end) AS line_end, max(t1) AS t_last
  FROM placed_events
  WHERE failure IN ('training-step', 'run-completed') AND attempt_id IS NOT NULL
  GROUP BY attempt_id, file_id
), went AS (
  SELECT attempt_id, max(t_last) AS t_last FROM later GROUP BY attempt_id
), counted AS (
  SELECT s.*, greatest(ranks_ok, CASE WHEN has_copied THEN copies END) AS ranks_told,
    nullif(max(greatest(ranks_ok, CASE WHEN has_copied OR copies_begun > 0
      THEN greatest(copies_begun, copies) END)) OVER (PARTITION BY s.attempt_id), 0)
      AS ranks_expected,
    coalesce(l.line_end > s.line, false) OR coalesce(w.t_last > s.t_begin, false) AS went_on,
    row_number() OVER (PARTITION BY s.cluster, s.run, s.tag ORDER BY s.attempt, s.t_begin) > 1
      AS resaved,
    u.tag IS NOT NULL AS unloadable
  FROM saves AS s
  LEFT JOIN later AS l ON l.attempt_id = s.attempt_id AND l.file_id = s.file_id
  LEFT JOIN went AS w ON w.attempt_id = s.attempt_id
  LEFT JOIN unloadable AS u ON u.cluster IS NOT DISTINCT FROM s.cluster AND u.run = s.run
    AND u.tag IS NOT DISTINCT FROM s.tag
)
SELECT attempt_id, cluster, run, job, attempt, coalesce(said_tag, tag) AS tag,
  coalesce(step, try_cast(tag AS BIGINT)) AS step, path, t_begin,
  t_end, coalesce(save_s, seconds_between(t_begin, t_end)) AS seconds,
  CASE WHEN troubled THEN 'failed'
    WHEN (committed OR has_copied) AND ranks_told < ranks_expected AND ranks_told > 0
      THEN 'incomplete_ranks'
    WHEN committed OR (has_copied AND went_on)
      THEN CASE WHEN unloadable THEN 'corrupt' ELSE 'complete' END
    WHEN went_on THEN 'unverified'
    ELSE 'begun' END AS status,
  ranks_ok, ranks_expected,
  CASE WHEN free_before >= free_after THEN (free_before - free_after)::BIGINT END AS bytes, resaved,
  trouble_ranks,
  file, line
FROM counted;

-- What an attempt says of the bytes that ZeRO keeps on NVMe: parameters, size of the partition's
-- group, ranks a host, what is offloaded there (NULL where no line says) and where.
CREATE OR REPLACE VIEW offload_settings AS
WITH told AS (
  SELECT attempt_id, cluster, run, job, attempt, file_id, line_no, rank, host, signature, message,
    captures, world_size,
    coalesce(captures['source'], captures['path']) AS swap_path
  FROM placed_events
  WHERE attempt_id IS NOT NULL AND (failure IN ('offload-settings', 'world-size')
    OR contains(captures['source'], '/zero_stage_3/')
    OR contains(captures['path'], '/zero_stage_3/'))
), parts AS (
  SELECT attempt_id, sum(part) AS params FROM (
    SELECT attempt_id, captures['tensor'] AS tensor, captures['pipeline'] AS pipeline,
      max(number_of(captures['part'])) AS part
    FROM told WHERE captures['part'] IS NOT NULL GROUP BY ALL)
  GROUP BY attempt_id
), keys AS (  -- the keys of a file that is printed a line a key: each device is its section's
  SELECT attempt_id, list(DISTINCT captures['what']) AS sections
  FROM told WHERE signature = 'deepspeed-offload-key' AND captures['what'] IS NOT NULL
  GROUP BY attempt_id
), ranks AS (
  SELECT attempt_id, max(n) AS seen FROM (
    SELECT attempt_id, host, count(DISTINCT rank) AS n FROM placed_events
    WHERE attempt_id IS NOT NULL AND host IS NOT NULL AND rank IS NOT NULL
      AND attempt_id IN (SELECT attempt_id FROM told WHERE signature NOT LIKE '%world-size')
    GROUP BY attempt_id, host)
  GROUP BY attempt_id
), settings AS (
  SELECT attempt_id, any_value(cluster) AS cluster, any_value(run) AS run, any_value(job) AS job,
    any_value(attempt) AS attempt,
    max(coalesce(number_of(captures['total']), number_of(captures['trainable']),
      1e9 * number_of(captures['billions']))) AS params,
    max(number_of(captures['dp'])) FILTER (signature = 'deepspeed-partition-size') AS dp_partition,
    max(number_of(captures['dp'])) AS dp_layout, max(world_size) AS world_size,
    bool_or(contains(message, 'model-parallel')) AS has_layout,
    max(number_of(captures['local_ranks'])) AS local_ranks,
    max(number_of(captures['zero_stage'])) AS zero_stage,
    bool_or(regexp_matches(message,
      'OffloadOptimizerConfig\(device=[^,)]{0,30}nvme|"offload_optimizer": \{"device": "nvme"')
      OR contains(swap_path, '/zero_stage_3/optimizer/')) AS optimizer,
    bool_or(regexp_matches(message,
      'OffloadParamConfig\(device=[^,)]{0,30}nvme|"offload_param": \{"device": "nvme"')
      OR regexp_matches(swap_path, '/zero_stage_3/[a-z0-9]*params/')) AS parameters,
    max(coalesce(CASE WHEN signature = 'deepspeed-offload-key' THEN captures['path'] END,
      nullif(regexp_extract(message, 'nvme_path(?:=PosixPath\(''|": ")([^''"]{1,200})', 1), ''),
      nullif(regexp_extract(swap_path, '^(.+)/zero_stage_3/', 1), ''))) AS nvme_path,
    count(DISTINCT try_cast(regexp_extract(swap_path, '/zero_stage_3/.*/rank([0-9]+)', 1)
      AS INTEGER)) AS swap_ranks,
    list(DISTINCT try_cast(regexp_extract(swap_path, '/zero_stage_3/.*/rank([0-9]+)', 1)
      AS INTEGER)) AS rank_dirs
  FROM told GROUP BY attempt_id
)
SELECT s.attempt_id, s.cluster, s.run, s.job, s.attempt,
  coalesce(s.params, p.params)::BIGINT AS params,
  coalesce(dp_partition, dp_layout, CASE WHEN NOT has_layout THEN world_size END)::BIGINT AS dp,
  coalesce(s.local_ranks, r.seen)::BIGINT AS local_ranks, s.zero_stage::INTEGER AS zero_stage,
  s.optimizer OR (nvme_path IS NOT NULL AND list_contains(k.sections, 'optimizer')) AS optimizer,
  s.parameters OR (nvme_path IS NOT NULL AND list_contains(k.sections, 'param')) AS parameters,
  s.nvme_path, s.world_size,
  CASE WHEN s.world_size IS NOT NULL
    THEN len(list_filter(rank_dirs, lambda n: n >= s.world_size)) END AS stale_rank_dirs
FROM settings AS s
LEFT JOIN parts AS p USING (attempt_id)
LEFT JOIN keys AS k USING (attempt_id)
LEFT JOIN ranks AS r USING (attempt_id)
WHERE s.nvme_path IS NOT NULL OR s.zero_stage = 3 OR s.optimizer OR s.parameters;

-- Whether ZeRO-Infinity's files fit, and when a file system is full: a row an attempt and host for
-- the swap folder (`use` swap), a row a folder of saves (`use` checkpoint). Adam with its gradients
-- takes 16 bytes a parameter, half-precision parameters 2, the copy of a checkpoint 12. Arguments
-- win over what logs say; where there is neither, the row tells what is not known.
CREATE OR REPLACE MACRO nvme_capacity(params := NULL, dp := NULL, local_ranks := NULL,
  offload := NULL, free_bytes := NULL, same_filesystem := false, headroom := 0.9,
  most := 300) AS TABLE
WITH said AS (
  SELECT attempt_id, cluster, run, job, attempt,
    coalesce(params::DOUBLE, s.params) AS p, coalesce(dp::DOUBLE, s.dp) AS d,
    coalesce(local_ranks::DOUBLE, s.local_ranks) AS l,
    CASE WHEN offload IS NULL THEN s.optimizer ELSE contains(offload, 'optimizer') END AS opt,
    CASE WHEN offload IS NULL THEN s.parameters ELSE contains(offload, 'param') END AS par,
    s.nvme_path, s.stale_rank_dirs
  FROM offload_settings AS s
), seen AS MATERIALIZED (
  SELECT o.*, coalesce(starts_with(o.path, s.nvme_path), false)
      OR (o.source = 'df' AND starts_with(coalesce(s.nvme_path, ''), o.path || '/')) AS is_swap
  FROM storage_obs AS o LEFT JOIN said AS s USING (attempt_id)
  WHERE o.free_bytes IS NOT NULL
), shared AS (  -- hosts that print the same free bytes within the same second see one file system
  SELECT DISTINCT path FROM (
    SELECT path, date_trunc('second', ts) AS t, e.free_bytes FROM seen AS e  -- no argument
    WHERE ts IS NOT NULL AND host IS NOT NULL GROUP BY ALL HAVING count(DISTINCT host) > 1)
), series AS MATERIALIZED (  -- the level after each save, else at each time
  SELECT cluster, path, CASE WHEN path IN (FROM shared) THEN NULL ELSE host END AS host, is_swap,
    arg_max(attempt_id, ts) AS attempt_id, max(ts) AS ts,
    arg_min(e.free_bytes, {'free': e.free_bytes, 'ts': ts}) AS free, max(total_bytes) AS total
  FROM seen AS e
  GROUP BY cluster, path, 3, is_swap, coalesce(save || run, ts::VARCHAR, event_id::VARCHAR)
), numbered AS MATERIALIZED (
  SELECT *, hash(cluster, path, host, is_swap) AS place,
    row_number() OVER (PARTITION BY cluster, path, host, is_swap ORDER BY ts DESC NULLS LAST) AS n,
    free - lag(free) OVER (PARTITION BY cluster, path, host, is_swap ORDER BY ts) AS change
  FROM series
), slopes AS (
  SELECT a.place, median((b.free - a.free) / seconds_between(a.ts, b.ts)) AS per_s
  FROM numbered AS a JOIN numbered AS b ON a.place = b.place AND a.ts < b.ts
  WHERE a.n <= most AND b.n <= most GROUP BY a.place
), levels AS (
  SELECT place, any_value(cluster) AS cluster, any_value(path) AS path, any_value(host) AS host,
    any_value(is_swap) AS is_swap, arg_min(attempt_id, n) AS attempt_id,
    arg_min(free, n) AS free_last, arg_max(free, n) AS free_first, min(ts) AS t_first,
    max(ts) AS t_last, max(total) AS total,
    -median(change) FILTER (change < 0) AS drop, count(*) AS observations
  FROM numbered GROUP BY place
), rows AS (
  SELECT 'swap' AS use, s.*, v.host, coalesce(s.nvme_path, v.path) AS path,
    coalesce(free_bytes::DOUBLE, v.free_first) AS free, v.total, v.free_last, v.t_last, v.drop,
    v.place, v.observations
  FROM said AS s
  LEFT JOIN levels AS v ON v.is_swap AND v.attempt_id = s.attempt_id
  UNION ALL
  SELECT 'checkpoint', v.attempt_id, v.cluster, s.run, s.job, s.attempt,
    coalesce(params::DOUBLE, s.p), coalesce(dp::DOUBLE, s.d), coalesce(local_ranks::DOUBLE, s.l),
    s.opt, s.par, s.nvme_path, NULL, v.host, v.path, v.free_last, v.total, v.free_last, v.t_last,
    v.drop, v.place, v.observations
  FROM levels AS v LEFT JOIN said AS s USING (attempt_id) WHERE NOT v.is_swap
  UNION ALL
  SELECT 'swap', NULL, NULL, NULL, NULL, NULL, params::DOUBLE, dp::DOUBLE, local_ranks::DOUBLE,
    contains(offload, 'optimizer'), contains(offload, 'param'), NULL, NULL, NULL, NULL,
    free_bytes::DOUBLE, NULL, NULL, NULL, NULL, NULL, NULL
  WHERE params IS NOT NULL AND NOT EXISTS (FROM said)
), sized AS (
  SELECT *, (16 * coalesce(opt, false)::INTEGER + 2 * coalesce(par, false)::INTEGER) * p / d
      AS rank_bytes,
    12 * p * coalesce(opt, false)::INTEGER AS tag_bytes
  FROM rows
), needed AS (
  SELECT *, CASE WHEN opt IS NULL AND par IS NULL THEN NULL
      WHEN use = 'checkpoint' THEN tag_bytes
      ELSE l * rank_bytes + CASE WHEN same_filesystem THEN l * tag_bytes / d ELSE 0 END END AS need
  FROM sized
)
SELECT use, attempt_id, cluster, run, job, attempt, host, path, p::BIGINT AS params,
  d::BIGINT AS dp, l::BIGINT AS local_ranks, opt AS optimizer, par AS parameters,
  rank_bytes::BIGINT AS expected_bytes_per_rank, (l * rank_bytes)::BIGINT AS expected_bytes_fs,
  (l * 4 * p / d * coalesce(opt, false)::INTEGER)::BIGINT AS of_which_gradients,
  tag_bytes::BIGINT AS ckpt_bytes_per_tag, need::BIGINT AS need_bytes, free::BIGINT AS free_bytes,
  total AS capacity_bytes, (free - need)::BIGINT AS headroom_bytes,
  CASE WHEN need IS NULL OR free IS NULL THEN 'unknown' WHEN need <= headroom * free THEN 'ok'
    WHEN need <= free THEN 'tight' ELSE 'will_fail' END AS verdict,
  per_s * 3600 / 1e9 AS slope_gb_per_h,
  CASE WHEN per_s < 0 THEN t_last + to_microseconds(least(1e15, 1e6 * free_last / -per_s)::BIGINT)
    END AS t_full,
  CASE WHEN per_s < 0 THEN free_last / -per_s / 3600 END AS hours_to_full,
  floor(free_last / drop)::BIGINT AS saves_left, stale_rank_dirs, observations, t_last
FROM needed LEFT JOIN slopes USING (place);
