-- title = "Checkpoints"
-- order = 42
-- description = """
-- From where each run can resume, how much work is lost if it dies now, and how many saves fail. A
-- save counts as complete only where the framework says so; work at risk counts from when it began,
-- for that is the state that it holds. Saves that failed, that fewer ranks ended than others, and
-- that a later load could not read, all count as failed. Saves that go on in the background make
-- the overhead an upper bound.
-- """
-- brief = ["run_id", "last_complete_tag", "work_at_risk_s", "work_at_risk_gpuh", "saves", "failed",
--   "fail_rate", "sequence_found", "confidence"]
-- note = """
-- SELECT format('MTTF of {:.1f} GPU-hours from {} failed of {} attempts; start and end of {} are '
--   || 'the logs'' own, outcome of {}', gpu_h / failed, failed, n, from_logs, judged)
-- FROM (
--   SELECT sum(gpus * seconds_between(first_ts, last_ts)) / 3600 AS gpu_h,
--     count(*) FILTER (outcome = 'failed') AS failed, count(*) AS n,
--     count(*) FILTER (submit_ts IS NULL) AS from_logs,
--     count(*) FILTER (state_source IN ('log', 'inferred')) AS judged
--   FROM attempts WHERE asked(cluster, $cluster)) AS fleet
-- WHERE failed > 0 AND $mttf_h IS NULL
-- """
-- [parameters.at]
-- type = "TIMESTAMP"
-- description = "The time to judge at (UTC); the run's last line where not given"
-- [parameters.mttf_h]
-- type = "DOUBLE"
-- minimum = 0
-- description = "Mean time to failure of the run, hours; of all attempts by its GPUs if not given"
-- [columns]
-- cluster = "Cluster"
-- run_id = "Run"
-- outcome = "How its last attempt ended"
-- last_complete_step = "Step of the last complete save; NULL where none is told"
-- last_complete_tag = "Its tag"
-- t_complete = "When it was complete, UTC"
-- newest_tag = "The save begun last"
-- newest_status = "begun, complete, incomplete_ranks, failed, corrupt, unverified"
-- work_at_risk_s = "From the begin of the last complete save, else of the run, to the end, s"
-- work_at_risk_gpuh = "The same, GPU-hours"
-- saves = "Saves begun"
-- complete = "Of these complete"
-- failed = "Failed, incomplete or unreadable"
-- unverified = "Without word of their end"
-- resaved = "Failed ones of a tag that an earlier attempt had saved: a re-save, not a race"
-- fail_rate = "failed / saves"
-- lo = "Its Wilson 95 % lower limit"
-- hi = "Its upper limit"
-- save_p50_s = "Median duration of complete saves, seconds"
-- save_p95_s = "Its 95th percentile"
-- overhead = "Time in complete saves over the time of all attempts"
-- interval_median_s = "Median time from save to save, seconds"
-- interval_optimal_s = "Young and Daly: square root of 2 x median save x MTTF, seconds"
-- mttf_h = "MTTF that this rests on, hours; NULL where no attempt failed"
-- sequence_found = "Known chain of events that the run shows, in order"
-- confidence = "high; medium: a later save may be whole; low: no complete save or no times"
-- gpus = "GPUs"
-- exposure_source = "jobs where the scheduler gives start and end, else logs"
WITH tries AS MATERIALIZED (
  SELECT attempt_id, cluster, run, job, attempt, gpus, first_ts, last_ts, outcome, submit_ts,
    t_about, seconds_between(first_ts, last_ts) AS run_s
  FROM attempts WHERE run IS NOT NULL
), fleet AS (
  SELECT sum(gpus * run_s) / 3600 / nullif(count(*) FILTER (outcome = 'failed'), 0) AS mttf_gpuh
  FROM tries WHERE asked(cluster, $cluster)
), runs AS (
  SELECT cluster, run, any_value(job) AS job, max(gpus) AS gpus, min(first_ts) AS first_ts,
    max(last_ts) AS last_ts, max(t_about) AS t_about, sum(run_s) AS run_s,
    arg_max(outcome, {'a': coalesce(attempt, 0), 't': last_ts}) AS outcome,
    bool_and(submit_ts IS NOT NULL) AS scheduled
  FROM tries GROUP BY cluster, run
), told AS MATERIALIZED (
  SELECT c.*, {'a': coalesce(c.attempt, 0), 't': c.t_begin, 's': c.step, 'l': c.line} AS place,
    seconds_between(lag(c.t_begin) OVER (PARTITION BY c.attempt_id ORDER BY c.t_begin), c.t_begin)
      AS since_last
  FROM checkpoints AS c
  WHERE asked(c.cluster, $cluster) AND asked(coalesce(c.job, c.run), $job)
    AND coalesce(c.t_begin <= $at, true)
), saves AS (
  SELECT cluster, run, count(*) AS saves, count(*) FILTER (status = 'complete') AS complete,
    count(*) FILTER (status IN ('failed', 'incomplete_ranks', 'corrupt')) AS failed,
    count(*) FILTER (status = 'unverified') AS unverified,
    count(*) FILTER (status = 'failed' AND resaved AND trouble_ranks < 2) AS resaved,
    max(place) FILTER (status = 'complete') AS last_place,
    arg_max({'step': step, 'tag': tag, 'begin': t_begin, 'end': t_end}, place)
      FILTER (status = 'complete') AS last,
    arg_max({'tag': tag, 'status': status}, place) AS newest,
    quantile_cont(seconds, 0.5) FILTER (status = 'complete') AS p50,
    quantile_cont(seconds, 0.95) FILTER (status = 'complete') AS p95,
    sum(seconds) FILTER (status = 'complete') AS saving_s,
    median(since_last) FILTER (since_last > 0) AS interval_s
  FROM told GROUP BY cluster, run
), open_saves AS (
  SELECT t.cluster, t.run FROM told AS t
  JOIN saves AS s ON s.run = t.run AND s.cluster IS NOT DISTINCT FROM t.cluster
  WHERE t.status = 'unverified' AND t.place > s.last_place GROUP BY ALL
), signs AS (  -- what belongs to the chains, in order: a letter each
  SELECT cluster, run, coalesce(attempt, 0) AS attempt, t_about AS t, line_no,
    CASE WHEN role = 'context' AND category = 'storage' THEN 'F'
      WHEN failure IN ('disk-full', 'disk-quota-exceeded') THEN 'E'
      WHEN failure IN ('nvme-swap-file-truncated', 'checkpoint-truncated') THEN 'S'
      WHEN failure IN ('checkpoint-corrupt', 'checkpoint-incomplete') THEN 'L'
      WHEN failure IN ('nvme-offload-checkpoint-race', 'checkpoint-dir-race',
        'checkpoint-rename-race', 'checkpoint-rotation-race') THEN 'R' END AS letter
  FROM placed_events
  WHERE run IS NOT NULL AND letter IS NOT NULL
  UNION ALL
  SELECT cluster, run, place.a, coalesce(t_end, t_begin), line, 'I'
  FROM told WHERE status IN ('failed', 'incomplete_ranks')
  UNION ALL  -- a load in a later attempt of a step before one that was not saved whole
  SELECT DISTINCT e.cluster, e.run, coalesce(e.attempt, 0), e.t_about, e.line_no, 'B'
  FROM placed_events AS e JOIN told AS c ON c.run = e.run
    AND c.cluster IS NOT DISTINCT FROM e.cluster
  WHERE e.failure IN ('checkpoint-load-begin', 'checkpoint-loaded')
    AND c.status IN ('failed', 'incomplete_ranks') AND coalesce(e.attempt, 0) > c.place.a
    AND try_cast(save_of(e.captures['tag'], e.step, e.captures['path']) AS BIGINT) < c.step
), chains AS (
  SELECT cluster, run, string_agg(letter, '' ORDER BY attempt, t, line_no) AS letters
  FROM signs GROUP BY cluster, run
), found AS (
  SELECT cluster, run, CASE
      WHEN regexp_matches(letters, 'F.*E.*S.*L')
        THEN 'low space > no space > short file > load error'
      WHEN regexp_matches(letters, 'E.*S.*L') THEN 'no space > short file > load error'
      WHEN regexp_matches(letters, 'R.*I.*B|I.*R.*B')
        THEN 'race > incomplete tag > resume from an earlier tag'
      WHEN regexp_matches(letters, 'E.*S') THEN 'no space > short file'
      WHEN regexp_matches(letters, 'S.*L') THEN 'short file > load error'
      WHEN regexp_matches(letters, 'F.*E') THEN 'low space > no space'
      WHEN regexp_matches(letters, 'R.*I|I.*R') THEN 'race > incomplete tag' END AS sequence
  FROM chains
), placed AS (
  SELECT r.*, s.* EXCLUDE (cluster, run), f.sequence, o.run IS NOT NULL AS open,
    coalesce($at, r.last_ts) AS t_ref,
    coalesce($mttf_h, fleet.mttf_gpuh / nullif(r.gpus, 0)) AS mttf
  FROM saves AS s
  JOIN runs AS r ON r.run = s.run AND r.cluster IS NOT DISTINCT FROM s.cluster
  LEFT JOIN found AS f ON f.run = s.run AND f.cluster IS NOT DISTINCT FROM s.cluster
  LEFT JOIN open_saves AS o ON o.run = s.run AND o.cluster IS NOT DISTINCT FROM s.cluster
  CROSS JOIN fleet
  WHERE within(r.t_about, $since, $until)
    AND ($failure IS NULL OR $failure IN ('checkpoint-begin', 'checkpoint-complete'))
), risked AS (
  SELECT *, CASE WHEN outcome IS DISTINCT FROM 'completed'
      THEN greatest(0, seconds_between(CASE WHEN complete > 0 THEN last.begin ELSE first_ts END,
        t_ref)) END AS risk_s
  FROM placed
)
SELECT cluster, run AS run_id, outcome, last.step AS last_complete_step,
  last.tag AS last_complete_tag, last.end AS t_complete, newest.tag AS newest_tag,
  newest.status AS newest_status, risk_s AS work_at_risk_s,
  risk_s * gpus / 3600 AS work_at_risk_gpuh, saves, complete, failed, unverified, resaved,
  failed / saves AS fail_rate, wilson_lo(failed, saves) AS lo, wilson_hi(failed, saves) AS hi,
  p50 AS save_p50_s, p95 AS save_p95_s,
  saving_s / nullif(CASE WHEN $at IS NULL THEN run_s ELSE seconds_between(first_ts, t_ref) END, 0)
    AS overhead,
  interval_s AS interval_median_s, sqrt(2 * p50 * mttf * 3600) AS interval_optimal_s,
  mttf AS mttf_h, sequence AS sequence_found,
  CASE WHEN complete = 0 OR last.begin IS NULL THEN 'low' WHEN open THEN 'medium' ELSE 'high' END
    AS confidence,
  gpus, CASE WHEN scheduled THEN 'jobs' ELSE 'logs' END AS exposure_source
FROM risked
ORDER BY work_at_risk_gpuh DESC NULLS LAST, work_at_risk_s DESC NULLS LAST, cluster, run
