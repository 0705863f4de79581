-- title = "Effective training time"
-- order = 2
-- chart = { kind = "ranking", x = "cause", y = "wasted_gpu_h", where = { row = "cause" }, title = "GPU-hours lost, by what failed first" }
-- description = """
-- How much of the time from submission to the end was training, and what wasted the rest. Of each
-- run wall = productive + replay + restart + queue + unexplained. Productive steps are those beyond
-- the furthest one before; replay is doing steps again; restart is from an attempt's start to its
-- first step; unexplained is the rest: evaluation, saves, hangs. A failure wastes the GPU-hours of
-- the steps lost and of the next restart; queueing is a delay, not a waste, and never added to
-- them. Where the logs have no steps, hourly checkpoints are assumed, half an hour lost by each
-- failure (Kokolis et al., HPCA'25): `method` is then fallback.
-- """
-- brief = ["row", "run_id", "cause", "failures", "ettr", "wasted_gpu_h", "share", "money",
--   "wall_h", "productive_h", "method"]
-- [parameters.rows]
-- type = "VARCHAR"
-- default = "all"
-- choices = ["all", "total", "cause", "run"]
-- description = "Which rows"
-- [parameters.method]
-- type = "VARCHAR"
-- default = "steps"
-- choices = ["steps", "fallback"]
-- description = "fallback uses no step even where there are some"
-- [parameters.gpu_hour_price]
-- type = "DOUBLE"
-- minimum = 0
-- description = "Price of a GPU-hour; without it there is no money"
-- [parameters.u0_s]
-- type = "DOUBLE"
-- default = 300
-- minimum = 0
-- description = "Restart: in the formula, and in the fallback"
-- [parameters.ckpt_s]
-- type = "DOUBLE"
-- default = 3600
-- minimum = 0
-- description = "Time between checkpoints: half of it is lost in the formula and the fallback"
-- [parameters.save_s]
-- type = "DOUBLE"
-- default = 0
-- minimum = 0
-- description = "Time that a save blocks training, in the formula"
-- [parameters.queue_s]
-- type = "DOUBLE"
-- default = 0
-- minimum = 0
-- description = "Time in the queue for each interruption, in the formula"
-- [parameters.r_f]
-- type = "DOUBLE"
-- minimum = 0
-- description = "Failures in 1000 node-days, in the formula; else those of all attempts here"
-- [parameters.gpus_per_node]
-- type = "DOUBLE"
-- default = 8
-- minimum = 1
-- description = "GPUs of a node, where a job does not tell its nodes"
-- [columns]
-- row = "total; cause: what the attempts failed of; run"
-- cluster = "Cluster"
-- run_id = "Run"
-- job = "Job"
-- attempts = "Attempts"
-- gpus = "GPUs, the most of its attempts"
-- wall_h = "Hours from the first submission (or start) to the last end"
-- productive_h = "Hours of steps beyond the furthest one before"
-- replay_h = "Hours of steps done again"
-- restart_h = "Hours from the starts of attempts to their first steps"
-- queue_h = "Hours in the queue and between attempts"
-- unexplained_h = "The rest"
-- ettr = "productive_h / wall_h; of the total weighted by GPUs"
-- ettr_expected = "(1 - f (u0 + ckpt / 2)) / (1 + save / ckpt + f queue), f = nodes x r_f"
-- ckpt_optimal_s = "Young and Daly's time between checkpoints, sqrt(2 save / f); NULL without save_s"
-- cause = "What failed first; unknown; rollback: steps taken back with no failure of the system; else how the attempt ended"
-- failures = "Attempts that ended so, and lost time"
-- wasted_gpu_h = "GPU-hours of lost steps and of the next restarts"
-- share = "Share of all wasted_gpu_h"
-- money = "wasted_gpu_h x gpu_hour_price"
-- mean_lost_h = "Mean hours lost by one of them, steps and restart"
-- p95_lost_h = "Its 95th percentile"
-- delay_h = "Hours until the next attempts began, on no GPUs of ours"
-- fallback_gpu_h = "GPU-hours lost by the assumption of the fallback"
-- fallback_share = "Share of the attempts of the row that it was used for"
-- method = "steps, fallback, mixed; none without times"
-- flag = "t_iter_wrong (unexplained below -1 % of wall), no_time"
-- exposure_source = "Where times and GPUs come from: jobs, log, mixed, none"
-- state_log_share = "Share of the attempts whose outcome is inferred from logs"
WITH found AS MATERIALIZED (
  SELECT v.attempt_id, arg_min(v.failure, v.ts) AS failure,
    arg_min(coalesce(f.category, e.category), v.ts) AS category
  FROM attempt_verdicts AS v
  LEFT JOIN failures AS f ON f.failure = v.failure
  LEFT JOIN events AS e ON e.event_id = v.event_id
  WHERE v.outcome = 'failed' GROUP BY v.attempt_id
), stepped AS (
  SELECT attempt_id, min(step) AS step_first,
    max(greatest(step, try_cast(captures['step_last'] AS BIGINT))) AS step_last,
    min(t0) AS first_step_ts, max(t1) AS last_step_ts
  FROM placed_events
  WHERE failure = 'training-step' AND step IS NOT NULL AND attempt_id IS NOT NULL
    AND $method = 'steps'
  GROUP BY attempt_id
), paced AS (
  SELECT attempt_id, median(t_iter_s) / 3600 AS t_iter_h
  FROM iterations WHERE t_iter_s > 0 AND $method = 'steps' GROUP BY attempt_id
), launched AS (
  SELECT a.attempt_id, a.cluster, a.run, a.job, a.gpus, a.first_ts, a.last_ts, a.submit_ts,
    a.outcome, a.state_source, coalesce(a.nodes, ceil(a.gpus / $gpus_per_node)) AS nodes,
    seconds_between(a.first_ts, a.last_ts) / 3600 AS hours, s.step_first, s.step_last,
    s.first_step_ts,
    coalesce(p.t_iter_h, nullif(seconds_between(s.first_step_ts, s.last_step_ts), 0) / 3600
      / nullif(s.step_last - s.step_first, 0)) AS t_iter_own,
    CASE WHEN a.outcome = 'failed' THEN CASE WHEN f.category = 'numerics' THEN 'rollback'
        ELSE coalesce(f.failure, 'unknown') END
      WHEN a.outcome IN ('preempted', 'timeout') THEN a.outcome ELSE 'rollback' END AS cause,
    CASE WHEN a.outcome = 'failed' THEN f.failure END AS failure
  FROM attempts AS a
  LEFT JOIN stepped AS s USING (attempt_id)
  LEFT JOIN paced AS p USING (attempt_id)
  LEFT JOIN found AS f USING (attempt_id)
  WHERE asked(a.cluster, $cluster) AND asked(coalesce(a.job, a.run), $job)
    AND within(a.t_about, $since, $until)
), ordered AS (
  SELECT *, coalesce(t_iter_own, median(t_iter_own) OVER r) AS t_iter_h,
    bool_or(step_first IS NOT NULL) OVER r AND coalesce(t_iter_own, median(t_iter_own) OVER r)
      IS NOT NULL AS by_steps,
    lag(last_ts) OVER o AS earlier_end, lead(first_ts) OVER o AS next_start,
    row_number() OVER o AS number,
    max(step_last) OVER (PARTITION BY cluster, run ORDER BY first_ts, last_ts, attempt_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS furthest,
    first_value(step_first IGNORE NULLS) OVER (
      PARTITION BY cluster, run ORDER BY first_ts, last_ts, attempt_id
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS resumed
  FROM launched
  WINDOW r AS (PARTITION BY cluster, run),
    o AS (PARTITION BY cluster, run ORDER BY first_ts, last_ts, attempt_id)
), split AS (
  SELECT *, outcome = 'failed' AS failed,
    greatest(0, coalesce(seconds_between(CASE WHEN number = 1 THEN submit_ts ELSE earlier_end END,
      first_ts), 0)) / 3600 AS queue_h,
    greatest(0, seconds_between(last_ts, next_start)) / 3600 AS gap_h,
    least($ckpt_s / 7200, hours) AS fallback_h,
    CASE WHEN NOT by_steps THEN least($u0_s / 3600, hours)
      WHEN first_step_ts IS NULL THEN hours
      ELSE least(hours, greatest(0, seconds_between(first_ts, first_step_ts) / 3600)) END
      AS restart_h,
    CASE WHEN by_steps THEN greatest(0, coalesce(step_last - greatest(furthest, step_first), 0))
      * t_iter_h END AS productive_steps_h,
    CASE WHEN by_steps THEN greatest(0, coalesce(
        CASE WHEN furthest IS NOT NULL THEN least(step_last, furthest) - step_first END, 0))
      * t_iter_h END AS replay_steps_h,
    CASE WHEN by_steps AND next_start IS NOT NULL
      THEN greatest(0, coalesce(step_last - resumed, 0)) * t_iter_h END AS lost_steps_h
  FROM ordered
), lost AS (  -- a run that is not resumed has lost what an assumption says
  SELECT *, coalesce(lost_steps_h, CASE WHEN failed THEN fallback_h ELSE 0 END) AS lost_h,
    lost_steps_h IS NULL AS assumed,
    CASE WHEN next_start IS NULL THEN 0 ELSE lead(restart_h) OVER (
      PARTITION BY cluster, run ORDER BY number) END AS next_restart_h
  FROM split
), charged AS MATERIALIZED (
  SELECT *, (failed OR cause IN ('preempted', 'timeout') OR lost_h > 0) AND hours IS NOT NULL
      AND (next_start IS NOT NULL OR failed) AS charges,
    lost_h + coalesce(next_restart_h, 0) AS wasted_h, gpus * wasted_h AS wasted_gpu_h
  FROM lost
), runs AS MATERIALIZED (
  SELECT cluster, run, any_value(job) AS job, count(*) AS attempts, max(gpus) AS gpus,
    max(nodes) AS nodes,
    seconds_between(least(min(submit_ts), min(first_ts)), max(last_ts)) / 3600 AS wall,
    bool_or(by_steps) AS by_steps, sum(restart_h) AS restart, sum(queue_h) AS queue,
    CASE WHEN bool_or(by_steps) THEN sum(replay_steps_h)
      ELSE sum(CASE WHEN failed THEN least(fallback_h, hours - restart_h) ELSE 0 END) END AS replay,
    CASE WHEN bool_or(by_steps) THEN sum(productive_steps_h)
      ELSE greatest(0, sum(hours) - sum(restart_h)
        - sum(CASE WHEN failed THEN least(fallback_h, hours - restart_h) ELSE 0 END)) END
      AS productive,
    count(*) FILTER (charges) AS failures, sum(wasted_gpu_h) FILTER (charges) AS wasted,
    sum(gpus * fallback_h) FILTER (failed) AS fallback_gpu,
    count(*) FILTER (charges AND assumed) AS assumptions,
    sum(CASE WHEN charges THEN gap_h END) AS delay,
    bool_or(asked(failure, $failure)) AS wanted,
    count(*) FILTER (state_source = 'log') AS by_log, sum(hours * nodes) / 24 AS node_days,
    count(*) FILTER (failed) AS failed, count(gpus) AS sized
  FROM charged GROUP BY cluster, run
), rate AS (
  SELECT coalesce($r_f, 1000 * sum(failed) / nullif(sum(node_days), 0)) AS r_f FROM runs
), run_rows AS (
  SELECT 'run' AS row, cluster, run AS run_id, job, attempts, gpus, wall AS wall_h,
    productive AS productive_h, replay AS replay_h, restart AS restart_h, queue AS queue_h,
    wall - productive - replay - restart - queue AS unexplained_h,
    productive / nullif(wall, 0) AS ettr, nodes * r_f / 1000 / 86400 AS f,
    greatest(0, 1 - f * ($u0_s + $ckpt_s / 2))
      / (1 + coalesce($save_s / nullif($ckpt_s, 0), 0) + f * $queue_s) AS ettr_expected,
    sqrt(2 * nullif($save_s, 0) / nullif(f, 0)) AS ckpt_optimal_s,
    failures, wasted AS wasted_gpu_h, delay AS delay_h, fallback_gpu AS fallback_gpu_h,
    assumptions / nullif(failures, 0) AS fallback_share,
    CASE WHEN wall IS NULL THEN 'none' WHEN by_steps THEN 'steps' ELSE 'fallback' END AS method,
    CASE WHEN wall IS NULL THEN 'no_time' WHEN unexplained_h < -0.01 * wall THEN 't_iter_wrong' END
      AS flag,
    CASE WHEN wall IS NULL OR sized = 0 THEN 'none' WHEN by_log = attempts THEN 'log'
      WHEN by_log = 0 THEN 'jobs' ELSE 'mixed' END AS exposure_source,
    by_log / attempts AS state_log_share
  FROM runs CROSS JOIN rate WHERE wanted OR $failure IS NULL
), cause_rows AS (
  SELECT 'cause' AS row, cause, count(*) AS failures, sum(wasted_gpu_h) AS wasted_gpu_h,
    avg(wasted_h) AS mean_lost_h, quantile_cont(wasted_h, 0.95) AS p95_lost_h,
    sum(gap_h) AS delay_h, sum(gpus * fallback_h) AS fallback_gpu_h,
    count(*) FILTER (assumed) / count(*) AS fallback_share,
    CASE WHEN bool_and(assumed) THEN 'fallback' WHEN bool_or(assumed) THEN 'mixed' ELSE 'steps' END
      AS method, count(*) AS attempts, max(gpus) AS gpus,
    CASE WHEN count(gpus) = 0 THEN 'none' WHEN bool_and(state_source = 'log') THEN 'log'
      WHEN bool_or(state_source = 'log') THEN 'mixed' ELSE 'jobs' END AS exposure_source,
    count(*) FILTER (state_source = 'log') / count(*) AS state_log_share
  FROM charged WHERE charges AND (asked(failure, $failure) OR $failure IS NULL)
  GROUP BY cause
), total_row AS (
  SELECT 'total' AS row, sum(attempts)::BIGINT AS attempts, max(gpus) AS gpus,
    sum(wall_h) AS wall_h, sum(productive_h) AS productive_h, sum(replay_h) AS replay_h,
    sum(restart_h) AS restart_h, sum(queue_h) AS queue_h, sum(unexplained_h) AS unexplained_h,
    sum(productive_h * coalesce(gpus, 1)) / nullif(sum(wall_h * coalesce(gpus, 1)), 0) AS ettr,
    sum(failures)::BIGINT AS failures, sum(wasted_gpu_h) AS wasted_gpu_h, sum(delay_h) AS delay_h,
    sum(fallback_gpu_h) AS fallback_gpu_h,
    sum(fallback_share * failures) / nullif(sum(failures), 0) AS fallback_share,
    CASE WHEN count(DISTINCT method) > 1 THEN 'mixed' ELSE any_value(method) END AS method,
    CASE WHEN count(DISTINCT exposure_source) > 1 THEN 'mixed' ELSE any_value(exposure_source) END
      AS exposure_source,
    sum(state_log_share * attempts) / sum(attempts) AS state_log_share
  FROM run_rows HAVING count(*) > 0
), rows AS (
  SELECT * EXCLUDE (f) FROM run_rows
  UNION ALL BY NAME FROM cause_rows
  UNION ALL BY NAME FROM total_row
)
SELECT row, cluster, run_id, job, attempts, gpus, wall_h, productive_h, replay_h, restart_h,
  queue_h, unexplained_h, ettr, ettr_expected, ckpt_optimal_s, cause, failures,
  wasted_gpu_h, wasted_gpu_h / nullif(sum(wasted_gpu_h) OVER (PARTITION BY row), 0) AS share,
  wasted_gpu_h * $gpu_hour_price AS money, mean_lost_h, p95_lost_h, delay_h, fallback_gpu_h,
  fallback_share, method, flag, exposure_source, state_log_share
FROM rows WHERE $rows IN ('all', row)
ORDER BY list_position(['total', 'cause', 'run'], row), wasted_gpu_h DESC NULLS LAST,
  cause, cluster, run_id
