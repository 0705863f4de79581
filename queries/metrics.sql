-- What runs measured of themselves: steps, speed of single ranks, saves of checkpoints.
--
-- Pure SQL over the views of views.sql; `ingest` stores it in the database with them.

-- A number that a line gave as text: 1,234.5.
CREATE OR REPLACE MACRO number_of(text) AS try_cast(replace(text, ',', '') AS DOUBLE);

-- Steps as the logs print them: a row a stored line, so with metrics off only a part of them.
CREATE OR REPLACE VIEW iterations AS
SELECT attempt_id, cluster, run, job, attempt, rank, step, ts, t0,
  coalesce(number_of(captures['iter_s']),
    number_of(coalesce(captures['iter_ms'], captures['step_ms'])) / 1000) AS t_iter_s,
  number_of(captures['loss']) AS loss, number_of(captures['grad_norm']) AS grad_norm,
  number_of(captures['loss_scale']) AS loss_scale, number_of(captures['tflops']) AS tflops_gpu,
  number_of(captures['skipped'])::BIGINT AS skipped,
  number_of(captures['nan'])::BIGINT AS nan_iters,
  repeats, path AS file, line_no AS line
FROM placed_events WHERE failure = 'training-step';

-- What the logs say of single ranks: the fastest and slowest of a report, or a rank's own steps.
CREATE OR REPLACE VIEW rank_timings AS
SELECT e.attempt_id, e.cluster, e.run, e.job, e.attempt, e.step, e.ts, e.t0,
  try_cast(e.captures[k.who] AS INTEGER) AS rank, lower(e.captures['peer_host']) AS host,
  k.metric, number_of(e.captures[k.what]) AS value, e.signature, e.path AS file, e.line_no AS line
FROM placed_events AS e
JOIN (VALUES ('fast_rank', 'min_ms', 'time_ms'), ('peer_rank', 'max_ms', 'time_ms'),
  ('peer_rank', 'min_mhz', 'clock_mhz'), ('peer_rank', 'min_tf', 'throughput_tf'),
  ('peer_rank', 'score', 'score')) AS k(who, what, metric)
  ON e.failure = 'straggler' AND e.captures[k.who] IS NOT NULL AND e.captures[k.what] IS NOT NULL
UNION ALL
SELECT attempt_id, cluster, run, job, attempt, step, ts, t0, rank, NULL, 'time_ms',
  1000 * t_iter_s, 'training-step', file, line
FROM iterations WHERE rank IS NOT NULL AND t_iter_s IS NOT NULL;

-- Saves of checkpoints, one row an attempt and tag: `complete` where a line says so, `failed` where
-- trouble with storage or checkpoints follows before the next save, `unverified` where steps go on
-- without word of its end, else `begun`.
CREATE OR REPLACE VIEW checkpoints AS
WITH told AS (
  SELECT attempt_id, cluster, run, job, attempt, event_id, file_id, line_no, rank, step, t0, t1,
    failure, captures['path'] AS save_path, number_of(captures['save_s']) AS save_s, path AS file,
    coalesce(captures['tag'], step::VARCHAR, nullif(regexp_extract(captures['path'],
      '(?:global_step|iter_|checkpoint-|step[-_]?)0*([0-9]+)', 1), ''), captures['path']) AS tag,
    failure = 'checkpoint-begin' AS begins
  FROM placed_events
  WHERE attempt_id IS NOT NULL AND (
    failure IN ('checkpoint-begin', 'checkpoint-complete', 'training-step')
    OR (role IN ('cause', 'collateral') AND category IN ('checkpoint', 'storage')))
), followed AS (  -- a line without a tag speaks of the save begun last, in its file or by time
  SELECT *, CASE WHEN failure = 'checkpoint-complete' THEN coalesce(tag, in_file, in_attempt)
      ELSE coalesce(in_file, in_attempt) END AS of_tag
  FROM (
    SELECT *,
      last_value(CASE WHEN begins THEN tag END IGNORE NULLS) OVER (
        PARTITION BY file_id ORDER BY line_no) AS in_file,
      last_value(CASE WHEN begins THEN tag END IGNORE NULLS) OVER (
        PARTITION BY attempt_id, t0 IS NULL ORDER BY t0, line_no) AS in_attempt
    FROM told)
), saves AS (
  SELECT attempt_id, any_value(cluster) AS cluster, any_value(run) AS run, any_value(job) AS job,
    any_value(attempt) AS attempt, coalesce(CASE WHEN begins THEN tag END, of_tag) AS tag,
    max(step) FILTER (failure <> 'training-step') AS step,
    any_value(save_path) FILTER (begins OR failure = 'checkpoint-complete') AS path,
    min(t0) FILTER (begins) AS t_begin,
    max(t1) FILTER (failure = 'checkpoint-complete') AS t_end, max(save_s) AS save_s,
    count(*) FILTER (failure = 'checkpoint-complete') > 0 AS complete,
    count(DISTINCT rank) FILTER (failure = 'checkpoint-complete') AS ranks_ok,
    count(*) FILTER (failure = 'training-step') > 0 AS went_on,
    count(*) FILTER (NOT begins AND failure NOT IN ('checkpoint-complete', 'training-step')) > 0
      AS troubled,
    arg_min(file, line_no) FILTER (begins) AS file, min(line_no) FILTER (begins) AS line
  FROM followed
  WHERE begins OR of_tag IS NOT NULL
  GROUP BY ALL
)
SELECT attempt_id, cluster, run, job, attempt, tag,
  coalesce(step, try_cast(tag AS BIGINT)) AS step, path, t_begin, t_end,
  coalesce(save_s, seconds_between(t_begin, t_end)) AS seconds,
  CASE WHEN troubled THEN 'failed' WHEN complete THEN 'complete' WHEN went_on THEN 'unverified'
    ELSE 'begun' END AS status,
  ranks_ok, file, line
FROM saves;
