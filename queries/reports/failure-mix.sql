-- title = "Failure mix"
-- order = 2
-- description = """
-- What fails most, and what costs most: distinct incidents by the failure that began them, with how
-- long attempts ran until then, and the GPU-hours of the attempts that failed of it. The two orders
-- are often reversed. Shares are of all rows listed. A row without a failure counts failed attempts
-- whose cause no line tells.
-- """
-- brief = ["failure", "incidents", "share", "gpu_h", "gpu_h_share", "money", "runs",
--   "ended_attempts", "ttf_med_min", "domain", "severity"]
-- chart = { kind = "ranking", x = "failure", y = "gpu_h", title = "GPU-hours of the attempts that had it" }
-- [parameters.gpu_hour_price]
-- type = "DOUBLE"
-- minimum = 0
-- description = "Price of a GPU-hour; without it there is no money"
-- [columns]
-- domain = "hardware, network, storage, system, framework, user, unknown"
-- category = "Category of the failure"
-- failure = "Failure that came first; NULL where unknown"
-- title = "Its title"
-- severity = "Its severity"
-- incidents = "Distinct incidents that began with it"
-- share = "Share of all incidents listed"
-- attempts = "Attempts that had it"
-- runs = "Runs that had it"
-- ended_attempts = "Attempts that failed of it"
-- gpu_h = "GPU-hours of those attempts; NULL where no size or time is known"
-- gpu_h_share = "Share of all gpu_h listed"
-- money = "gpu_h x gpu_hour_price"
-- ttf_mean_min = "Mean time from the attempt's start to it, minutes"
-- ttf_med_min = "Median of that"
-- ttr_mean_min = "Mean time from the end of the attempt to the next attempt's start, minutes"
-- ttr_med_min = "Median of that"
-- gpus_mean = "Mean GPUs of the attempts"
-- gpus_med = "Median of that"
-- clusters = "Clusters it was seen in"
-- first_seen = "First time, UTC"
-- last_seen = "Last time, UTC"
-- exposure_source = "Where those GPU-hours come from: jobs, log, mixed, none"
-- state_log_share = "Share of those attempts whose outcome is inferred from logs"
WITH ended AS (
  SELECT attempt_id, failure, ts, t_about, outcome = 'failed' AS failed FROM attempt_failures
), began AS (
  SELECT failure, attempt_id, cluster, ts, t_about FROM incident_failures
  UNION ALL
  SELECT NULL, e.attempt_id, a.cluster, e.ts, e.t_about
  FROM ended AS e JOIN attempts AS a USING (attempt_id) WHERE e.failure IS NULL
), launched AS (
  SELECT *, seconds_between(last_ts, lead(first_ts) OVER (
    PARTITION BY cluster, run ORDER BY attempt, first_ts)) / 60 AS ttr
  FROM attempts
), rows AS (
  SELECT b.failure, b.attempt_id, coalesce(a.cluster, b.cluster) AS cluster, a.run, a.gpus, b.ts,
    greatest(0, seconds_between(a.first_ts, b.ts) / 60) AS ttf,
    e.attempt_id IS NOT NULL AS fatal, a.state_source,
    CASE WHEN e.failed AND row_number() OVER (PARTITION BY b.attempt_id, b.failure ORDER BY b.ts) = 1
      THEN a.gpus * seconds_between(a.first_ts, a.last_ts) / 3600 END AS gpu_h,
    CASE WHEN e.attempt_id IS NOT NULL AND a.ttr >= 0 THEN a.ttr END AS ttr
  FROM began AS b
  LEFT JOIN launched AS a USING (attempt_id)
  LEFT JOIN ended AS e ON e.attempt_id = b.attempt_id AND e.failure IS NOT DISTINCT FROM b.failure
  WHERE asked(coalesce(a.cluster, b.cluster), $cluster) AND asked(coalesce(a.job, a.run), $job)
    AND asked(b.failure, $failure) AND within(coalesce(b.ts, b.t_about), $since, $until)
), known AS (
  SELECT failure, any_value(title) AS title, any_value(category) AS category,
    any_value(severity) AS severity
  FROM (
    SELECT failure, title, category, severity FROM failures
    UNION ALL SELECT failure, NULL, category, severity FROM events)
  GROUP BY failure
)
SELECT CASE
    WHEN k.category IN ('hardware', 'straggler') THEN 'hardware'
    WHEN k.category = 'network' THEN 'network'
    WHEN k.category = 'storage' THEN 'storage'
    WHEN k.category IN ('memory', 'scheduler', 'process') THEN 'system'
    WHEN k.category IN ('collective', 'checkpoint', 'launcher', 'tracking') THEN 'framework'
    WHEN k.category IN ('config', 'data', 'numerics') THEN 'user'
    ELSE 'unknown' END AS domain,
  k.category, r.failure, k.title, k.severity,
  count(*) AS incidents, count(*) / sum(count(*)) OVER () AS share,
  count(DISTINCT r.attempt_id) AS attempts, count(DISTINCT hash(r.cluster, r.run))
    FILTER (r.attempt_id IS NOT NULL) AS runs,
  count(DISTINCT r.attempt_id) FILTER (fatal) AS ended_attempts,
  sum(gpu_h) AS gpu_h, sum(gpu_h) / nullif(sum(sum(gpu_h)) OVER (), 0) AS gpu_h_share,
  sum(gpu_h) * $gpu_hour_price AS money,
  avg(ttf) AS ttf_mean_min, median(ttf) AS ttf_med_min,
  avg(ttr) AS ttr_mean_min, median(ttr) AS ttr_med_min,
  avg(gpus) AS gpus_mean, median(gpus) AS gpus_med,
  list_sort(list(DISTINCT r.cluster) FILTER (r.cluster IS NOT NULL)) AS clusters,
  min(ts) AS first_seen, max(ts) AS last_seen,
  CASE WHEN count(gpu_h) = 0 THEN 'none'
    WHEN bool_and(state_source = 'log') FILTER (gpu_h IS NOT NULL) THEN 'log'
    WHEN bool_or(state_source = 'log') FILTER (gpu_h IS NOT NULL) THEN 'mixed' ELSE 'jobs' END
    AS exposure_source,
  count(DISTINCT r.attempt_id) FILTER (fatal AND state_source = 'log')
    / nullif(count(DISTINCT r.attempt_id) FILTER (fatal), 0) AS state_log_share
FROM rows AS r LEFT JOIN known AS k ON k.failure = r.failure
GROUP BY r.failure, k.category, k.title, k.severity
ORDER BY incidents DESC, r.failure NULLS LAST
