-- Fill the tables of a database as the archive of a fleet would, without any log.
--
-- Statements are run in turn, with the variables seed, runs and events set; what follows the mark
-- is run for the launches of number low to high (exclusive), part by part. Draws are hashes of what
-- they are for, so that one part of the archive does not depend on another.

CREATE TEMP MACRO draw(what, i, j) AS
  (hash(hash(getvariable('seed'), what, i, j)) >> 11) / 9007199254740992.0;
CREATE TEMP MACRO host_name(site, number) AS format('gpu-{}-{:04d}', site, number::BIGINT);

-- Sizes of jobs, and how many of each a cluster runs side by side (lanes of `nodes` hosts each).
CREATE TEMP TABLE sizes AS
SELECT *, sum(share) OVER (ORDER BY gpus) AS upto,
  coalesce(sum(nodes * lanes) OVER (
    ORDER BY gpus ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS first_host
FROM (
  SELECT *, greatest(1, gpus // 8) AS nodes, greatest(1, round(40 * share)::INTEGER) AS lanes
  FROM (VALUES (8, .30), (16, .15), (32, .12), (64, .12), (128, .11), (256, .08), (512, .06),
    (1024, .03), (2048, .02), (4096, .01)) AS s(gpus, share));

-- What begins a failure of infrastructure or of a user, and how often; whether the kernel of its
-- host says so; what comes with it in four of ten.
CREATE TEMP TABLE kinds AS
SELECT *, sum(share) OVER (PARTITION BY infra ORDER BY cause)
  / sum(share) OVER (PARTITION BY infra) AS upto
FROM (VALUES
  (true, 'nvidia-xid-fallen-off-bus', 12, true, NULL),
  (true, 'nvidia-xid-ecc-double-bit', 14, true, 'cuda-error-ecc'),
  (true, 'deepspeed-offloaded-tensors-exists', 16, false, 'torch-archive-invalid-header'),
  (true, 'torch-archive-invalid-header', 4, false, NULL),
  (true, 'nvrx-slow-against-peers', 9, false, NULL),
  (true, 'os-enospc', 12, false, 'tensorboard-event-file-error'),
  (true, 'kernel-oom-invoked', 8, true, NULL),
  (true, 'sdc-not-reproducible-in-place', 3, false, 'megatron-unexpected-nan'),
  (true, 'http-429-error', 6, false, NULL),
  (false, 'cuda-error-busy', 20, false, NULL),
  (false, 'megatron-unexpected-nan', 15, false, NULL),
  (false, 'tensorboard-event-file-error', 5, false, NULL)) AS k(infra, cause, share, kernel, pair)
WHERE cause IN (SELECT signature FROM signatures);

-- Launches: a failure of infrastructure comes at 4e-5 a GPU-hour and brings a second one.
CREATE TEMP TABLE launches AS
WITH drawn AS (
  SELECT i AS run_no, i % 8 AS site, gpus, nodes, lanes, first_host,
    least(24, 0.2 - 5 * ln(1 - draw('hours', i, 0))) AS planned,
    -ln(1 - draw('hazard', i, 0)) / (4e-5 * gpus) AS hazard, draw('end', i, 0) AS fate,
    draw('lane', i, 0) AS u
  FROM range(getvariable('runs')) AS r(i)
  JOIN sizes AS s ON draw('size', i, 0) < s.upto AND draw('size', i, 0) >= s.upto - s.share
), told AS (
  SELECT *, floor(u * lanes)::INTEGER AS lane,
    CASE WHEN hazard < planned THEN 'infra' WHEN fate < 0.05 THEN 'user'
      WHEN fate < 0.07 THEN 'timeout' WHEN fate < 0.1 THEN 'cancelled'
      WHEN fate < 0.12 THEN 'preempted' ELSE 'completed' END AS ending
  FROM drawn
), tried AS (
  SELECT *, 0 AS attempt, CASE ending WHEN 'infra' THEN hazard WHEN 'user' THEN planned / 20
    ELSE planned END AS hours
  FROM told
  UNION ALL
  SELECT * REPLACE ('completed' AS ending), 1, planned - hazard * 0.9
  FROM told WHERE ending = 'infra'
), timed AS (
  SELECT *, sum(hours + 0.1 + 0.5 * u) OVER (
    PARTITION BY site, gpus, lane ORDER BY run_no, attempt) - hours AS begins
  FROM tried
)
SELECT row_number() OVER (ORDER BY run_no, attempt) - 1 AS no, run_no, attempt, site, gpus, nodes,
  ending, 'cluster' || site AS cluster, (100000 + run_no)::VARCHAR AS job,
  TIMESTAMP '2026-01-01' + to_microseconds((begins * 3.6e9)::BIGINT) AS start_ts,
  ceil(hours * 3600)::BIGINT AS seconds, first_host + lane * nodes AS host_no,
  least(nodes, 6)::INTEGER AS rank_files,
  floor(draw('rank', run_no, attempt) * gpus)::INTEGER AS rank,
  1 + 9 * draw('pace', run_no, attempt) AS step_s,
  CASE WHEN draw('stamps', run_no, 0) < 0.6 THEN 'own' WHEN draw('stamps', run_no, 0) < 0.9
    THEN 'inherited' ELSE 'none' END AS stamps,
  draw('offload', run_no, 0) < 0.2 AS offload, draw('sacct', run_no, 0) < 0.9 AS scheduled
FROM timed;

CREATE TEMP TABLE failing AS
SELECT l.no, k.cause, k.kernel, CASE WHEN draw('pair', l.run_no, 0) < 0.4 THEN k.pair END AS pair
FROM launches AS l JOIN kinds AS k ON l.ending IN ('infra', 'user')
  AND k.infra = (l.ending = 'infra') AND draw('kind', l.run_no, 0) < k.upto
QUALIFY row_number() OVER (PARTITION BY l.no ORDER BY k.upto) = 1;

INSERT INTO jobs BY NAME
SELECT cluster, job, attempt, 'pretrain-' || run_no % 97 AS name,
  md5('user' || run_no % 211) AS user_hash,
  CASE WHEN ending IN ('infra', 'user') THEN 'FAILED' ELSE upper(ending) END AS state,
  (ending IN ('infra', 'user'))::INTEGER AS exit_code, 0 AS signal, nodes, gpus,
  list_transform(range(nodes), lambda n: host_name(site, host_no + n)) AS hosts,
  start_ts - to_seconds(60 + 900 * draw('queue', run_no, attempt)) AS submit_ts, start_ts,
  start_ts + to_seconds(seconds) AS end_ts, 'sacct' AS source
FROM launches WHERE scheduled;

-- A log of the launcher (place -1), one of the first rank of up to six hosts, one a host's kernel.
CREATE TEMP TABLE logs AS
SELECT no, place, site, hash(cluster, path) AS file_id, path, cluster, job AS run, job, attempt,
  host, CASE WHEN place >= 0 THEN 8 * place END AS rank,
  CASE WHEN place >= 0 THEN 'rank_stdout' ELSE 'slurm_out' END AS kind, seconds, start_ts, stamps
FROM (
  SELECT *, host_name(site, host_no + greatest(place, 0)) AS host,
    format('{}/{}/attempt_{}/', cluster, job, attempt) || CASE WHEN place < 0
      THEN format('slurm-{}.out', job)
      ELSE format('{}/rank_{}.log', host_name(site, host_no + place), 8 * place) END AS path
  FROM launches, LATERAL (SELECT unnest(range(-1, rank_files)) AS place))
UNION ALL
SELECT NULL, NULL, site, hash('cluster' || site, path), path, 'cluster' || site, NULL, NULL, NULL,
  host, NULL, 'dmesg', 90 * 86400, TIMESTAMP '2026-01-01', 'own'
FROM (
  SELECT site, host_name(site, n) AS host,
    format('cluster{}/hosts/{}/dmesg.log', site, host_name(site, n)) AS path
  FROM range(8) AS c(site), range((SELECT sum(nodes * lanes) FROM sizes)::BIGINT) AS h(n));

INSERT INTO files BY NAME
SELECT file_id, 1 AS scan_id, path, '/archive/' || path AS location, cluster, run, job, attempt,
  host, rank, kind, 'zstd' AS codec, seconds * 800 AS size_bytes, seconds * 4000 AS raw_bytes,
  10_200 + 20 * seconds AS lines, 0 AS events,
  CASE WHEN stamps <> 'none' THEN start_ts END AS first_ts,
  CASE WHEN stamps <> 'none' THEN start_ts + to_seconds(seconds) END AS last_ts,
  start_ts + to_seconds(seconds) AS mtime,
  CASE stamps WHEN 'own' THEN seconds WHEN 'none' THEN 0 ELSE seconds // 20 END AS ts_lines,
  CASE WHEN rank IS NULL THEN 0 ELSE seconds END AS rank_lines, 0 AS cut_lines,
  0 AS replaced_bytes, 0 AS masked, md5(path) AS sha256_head, 'ok' AS status, 0.01 AS seconds,
  'd' AS catalogue_digest
FROM logs ORDER BY start_ts, path;

CREATE TEMP TABLE meta AS
SELECT s.signature, s.failure, s.role, f.component, f.category, f.severity
FROM signatures AS s JOIN failures AS f USING (failure);

-- What is found whatever the number of events: `t_s` is seconds from the launch, `late` its line
-- among those of the same second, `place` its log.
CREATE TEMP MACRO fixed_hits(low, high) AS TABLE
WITH l AS MATERIALIZED (FROM launches WHERE no >= low AND no < high),
saved AS (
  SELECT *, (t_s / step_s)::BIGINT AS step, 'global_step' || step AS tag, '/fsx/' || job AS folder
  FROM (
    SELECT *, 1800 * n AS t_s
    FROM l, LATERAL (SELECT unnest(range(1, (seconds - 60) // 1800 + 1)) AS n))
), ranks AS (
  SELECT *, CASE WHEN r % 8 = 0 AND r // 8 < rank_files THEN r // 8 ELSE -1 END AS place
  FROM (SELECT l.*, f.cause, unnest(range(gpus))::INTEGER AS r FROM l JOIN failing AS f USING (no))
), hit AS (
  SELECT no, -1 AS place, 5 AS t_s, 0 AS late, 'megatron-world-size' AS signature,
    NULL::INTEGER AS rank, gpus AS world_size, NULL::BIGINT AS step, 0.0 AS lag,
    MAP {'world_size': gpus::VARCHAR, 'dp': (gpus // 8)::VARCHAR, 'tp': '8', 'pp': '1'} AS captures,
    'using world size: ' || gpus AS message
  FROM l
  UNION ALL
  SELECT no, -1, 2, 0, 'deepspeed-version', 0, NULL, NULL, 0,
    MAP {'version': '0.1' || (4 + site % 5) || '.2'}, 'DeepSpeed info: version=0.1x'
  FROM l
  UNION ALL
  SELECT no, place, 8, 0, 'nccl-init-complete', 8 * greatest(place, 0), NULL, NULL, 0,
    MAP {'nranks': gpus::VARCHAR, 'pg_rank': (8 * greatest(place, 0))::VARCHAR},
    'comm 0x55d0 rank ' || place || ' nranks ' || gpus || ' - Init COMPLETE'
  FROM l, LATERAL (SELECT unnest(range(-1, rank_files)) AS place)
  UNION ALL
  SELECT no, -1, t_s, 1,
    CASE WHEN offload THEN 'deepspeed-nvme-copy-begin' ELSE 'megatron-checkpoint-begin' END,
    0, NULL, step, 0,
    CASE WHEN offload THEN MAP {'rank': '0', 'tag': tag, 'path': folder || '/' || tag,
        'free_gb': format('{:,.2f}', 3000.0 - 12 * n)}
      ELSE MAP {'step': step::VARCHAR, 'path': folder, 'path_class': 'checkpoint'} END,
    'saving checkpoint at iteration ' || step
  FROM saved
  UNION ALL
  SELECT no, -1, t_s + 40, 1,
    CASE WHEN offload THEN 'deepspeed-nvme-copy-complete' ELSE 'megatron-checkpoint-complete' END,
    0, NULL, CASE WHEN NOT offload THEN step END, 0,
    CASE WHEN offload THEN MAP {'free_gb': format('{:,.2f}', 2988.0 - 12 * n)}
      ELSE MAP {'step': step::VARCHAR, 'path': folder, 'path_class': 'checkpoint'} END,
    'successfully saved checkpoint from iteration ' || step
  FROM saved
  UNION ALL
  SELECT no, -1, (draw('warned', no, n) * seconds)::BIGINT, 2 + n,
    (['wandb-retry', 'dataloader-worker-count', 'deepspeed-overflow-skip'])[1 + n % 3], 0, NULL,
    NULL, 0, MAP {}, 'a warning of kind ' || n % 3
  FROM l, LATERAL (SELECT unnest(range((draw('warnings', no, 0) * 6)::INTEGER)) AS n)
  UNION ALL
  SELECT no, -1, 600 * n, 3, 'megatron-straggler-times', 0, NULL, NULL, 0,
    MAP {'min_ms': (1000 * step_s)::INTEGER::VARCHAR, 'fast_rank': '1',
      'max_ms': (1030 * step_s)::INTEGER::VARCHAR, 'peer_rank': (rank % gpus)::VARCHAR},
    'MnRtt/Rnk: 1ms/1'
  FROM l, LATERAL (SELECT unnest(range(1, seconds // 600)) AS n) WHERE no % 20 = 0
  UNION ALL
  SELECT no, CASE WHEN rank % 8 = 0 AND rank // 8 < rank_files THEN rank // 8 ELSE -1 END,
    seconds, 9, cause, rank, NULL, NULL, 0,
    MAP {'errno': '17', 'path': '/fsx/' || job, 'path_class': 'checkpoint'}, cause || ' in ' || job
  FROM l JOIN failing USING (no) WHERE NOT kernel
  UNION ALL
  SELECT no, -1, seconds, 10, pair, (rank + 1) % gpus, NULL, NULL, 0, MAP {}, pair || ' in ' || job
  FROM l JOIN failing USING (no) WHERE pair IS NOT NULL
  UNION ALL
  SELECT no, place, seconds, 12 + 2 * r,
    CASE WHEN alike THEN cause ELSE 'nccl-watchdog-timeout' END, r, NULL, NULL,
    CASE WHEN alike THEN 0 ELSE 600 END,
    MAP {'seq': no::VARCHAR, 'op': 'ALLREDUCE', 'ran_ms': (600000 + r % 900)::VARCHAR},
    'Watchdog caught collective operation timeout: WorkNCCL(SeqNum=' || no || ')'
  FROM (SELECT *, cause = 'deepspeed-offloaded-tensors-exists' AS alike FROM ranks)
  WHERE r <> rank
  UNION ALL
  SELECT no, place, seconds, 13 + 2 * r, 'tcpstore-send-receive-failed', r, NULL, NULL, 0,
    MAP {'port': '29517'}, 'sendBytes failed on SocketImpl'
  FROM ranks WHERE r <> rank AND r % 4 = 1
  UNION ALL
  SELECT no, -1, seconds, 9990 + n, signs[n], NULL, NULL, NULL, 0, MAP {'job': job},
    'job ' || job || ': ' || signs[n]
  FROM (
    SELECT no, job, seconds, signs, unnest(range(1, len(signs) + 1)) AS n
    FROM (
      SELECT *, CASE ending WHEN 'timeout' THEN ['slurmstepd-time-limit', 'srun-step-aborted']
        WHEN 'preempted' THEN ['slurmstepd-preempted', 'srun-step-aborted']
        WHEN 'completed' THEN ['megatron-training-done']
        ELSE ['slurmstepd-cancelled', 'srun-step-aborted'] END AS signs
      FROM l))
)
SELECT *, 1 AS repeats, t_s AS until FROM hit;

-- Hits of the hosts' kernels: those that begin failures, and what kernels say anyway.
CREATE TEMP MACRO kernel_hits() AS TABLE
SELECT host_name(site, host_no + rank // 8) AS host, site,
  start_ts + to_seconds(seconds) - INTERVAL 1 SECOND AS ts, cause AS signature,
  MAP {'xid': '79', 'pci': '0000:9b:00'} AS captures, cause || ' on ' || rank % 8 AS message
FROM launches JOIN failing USING (no) WHERE kernel
UNION ALL
SELECT host_name(n % 8, floor(draw('noisy', n, 0) * (SELECT sum(nodes * lanes) FROM sizes))), n % 8,
  TIMESTAMP '2026-01-01' + to_seconds(draw('noise', n, 0) * 80 * 86400),
  'nvidia-xid-row-remap-event', MAP {'xid': '63', 'pci': '0000:10:1c'},
  'NVRM: Xid (PCI:0000:10:1c): 63, pid=1850, Row Remapper'
FROM range(getvariable('runs') // 4) AS r(n);

-- How many folded rows of steps a log needs for as many events as were asked for.
CREATE TEMP TABLE filler AS
SELECT greatest(0, getvariable('events')
    - (SELECT count(*) FROM fixed_hits(0, 2 * getvariable('runs')))
    - (SELECT count(*) FROM kernel_hits()))
  / (SELECT count(*) FROM logs WHERE place IS NOT NULL) AS a_log;

INSERT INTO events BY NAME
SELECT hash(file_id, line_no) AS event_id, *
FROM (
  SELECT g.file_id, m.*,
    100 + row_number() OVER (PARTITION BY g.file_id ORDER BY k.ts, k.signature) AS line_no,
    line_no * 200 AS byte_offset, line_no AS last_line_no, k.ts, k.ts AS ts_lo, k.ts AS ts_hi,
    'dmesg' AS ts_source, false AS tz_assumed, k.ts AS t_eff,
    k.ts AS ts_last, g.cluster, g.host, k.captures, 1 AS repeats, k.message
  FROM kernel_hits() AS k JOIN meta AS m USING (signature)
  JOIN logs AS g ON g.place IS NULL AND g.site = k.site AND g.host = k.host)
ORDER BY file_id, line_no;

-- by part

INSERT INTO events BY NAME
WITH g AS MATERIALIZED (
  SELECT g.*, l.step_s, l.gpus FROM logs AS g JOIN launches AS l USING (no)
  WHERE g.no >= getvariable('low') AND g.no < getvariable('high')
), hits AS (
  FROM fixed_hits(getvariable('low'), getvariable('high'))
  UNION ALL
  SELECT no, place, t_s, 0,
    CASE WHEN place < 0 THEN 'megatron-iteration' ELSE 'generic-step-loss' END,
    CASE WHEN place < 0 THEN gpus - 1 ELSE 8 * place END, NULL, step, 0,
    map_concat(MAP {'step': step::VARCHAR, 'loss': format('{:.4f}', 1.7 + 9 / sqrt(1 + step)),
        'step_last': greatest(step, (until / step_s)::BIGINT)::VARCHAR},
      CASE WHEN place < 0 THEN MAP {'iter_ms':
        format('{:.1f}', 1000 * step_s * (1 + 0.02 * draw('ms', no, n)))} ELSE MAP {} END),
    format('iteration {}/ 50000 | elapsed time per iteration (ms): {:.0f}', step, 1000 * step_s),
    greatest(1, ((until - t_s) / step_s)::BIGINT), greatest(t_s, until)
  FROM (
    SELECT *, 30 + (seconds - 30) * n // steps AS t_s,
      29 + (seconds - 30) * (n + 1) // steps AS until, (t_s / step_s)::BIGINT AS step
    FROM (
      SELECT *, unnest(range(steps)) AS n FROM (
        SELECT *, least(greatest(0, seconds - 30),
          floor(f.a_log + draw('rows', no, place)))::BIGINT AS steps
        FROM g, filler AS f)))
)
SELECT hash(g.file_id, h.t_s, h.late, h.signature) AS event_id, g.file_id, m.*,
  100 + 20 * h.t_s + h.late AS line_no, 200 * line_no AS byte_offset,
  CASE WHEN g.stamps = 'own' THEN t END AS ts,
  CASE g.stamps WHEN 'own' THEN t WHEN 'inherited' THEN t - INTERVAL 4 MINUTE END AS ts_lo,
  CASE g.stamps WHEN 'own' THEN t WHEN 'inherited' THEN t + INTERVAL 4 MINUTE END AS ts_hi,
  g.stamps AS ts_source, CASE WHEN g.stamps = 'own' THEN false END AS tz_assumed,
  ts_lo - to_seconds(h.lag) AS t_eff,
  CASE WHEN g.stamps = 'own' THEN t + to_seconds(h.until - h.t_s) END AS ts_last,
  g.cluster, g.run, g.job, g.attempt, g.host, coalesce(h.rank, g.rank) AS rank, h.world_size,
  h.step, h.captures, h.repeats, greatest(line_no, 100 + 20 * h.until + h.late) AS last_line_no,
  h.message
FROM hits AS h JOIN g USING (no, place) JOIN meta AS m USING (signature),
  LATERAL (SELECT g.start_ts + to_seconds(h.t_s) + to_milliseconds(h.late) AS t)
ORDER BY g.no, g.place, line_no;
