-- title = "Trend"
-- order = 12
-- chart = { kind = "line", x = "day", y = "failures", limit = "ucl", group = "cluster", where = { failure = "" }, title = "Failures a day; dashed: upper control limit" }
-- description = """
-- Is it getting worse? Failures by day against what the rate of the days before leads to expect.
-- Hours count on the day on which they ran, failures on the day on which the attempt ended. A day is
-- out of control if so many failures have a chance below 0.001, or if it ends eight days on one side
-- of what was expected (a chance below 1 %, too). Expected counts take the baseline rate for known.
-- """
-- brief = ["day", "cluster", "failure", "failures", "exposure", "rate", "expected", "ucl", "p", "ma7",
--   "partial", "flag"]
-- [parameters.by]
-- type = "VARCHAR"
-- default = "cluster"
-- choices = ["cluster", "failure"]
-- description = "One row a day and cluster, or one for each failure, too"
-- [parameters.definition]
-- type = "VARCHAR"
-- default = "any_failed"
-- choices = ["infra", "any_failed"]
-- description = "What counts: failures of infrastructure or whole systems, or all"
-- [parameters.unit]
-- type = "VARCHAR"
-- default = "gpu_hour"
-- choices = ["gpu_hour", "node_day", "attempt"]
-- description = "Exposure; an attempt counts on the day on which it ended"
-- [parameters.day]
-- type = "VARCHAR"
-- default = "end"
-- choices = ["end", "failure"]
-- description = "Day of a failure: that of the attempt's end, or of the line that tells the cause"
-- [parameters.baseline_days]
-- type = "BIGINT"
-- default = 28
-- minimum = 1
-- description = "Days before each day that make its baseline"
-- [parameters.baseline_min]
-- type = "BIGINT"
-- default = 5
-- minimum = 1
-- description = "Failures that a baseline needs"
-- [parameters.baseline_since]
-- type = "TIMESTAMP"
-- description = "Take the days from here on (UTC) for the baseline of all days"
-- [parameters.baseline_until]
-- type = "TIMESTAMP"
-- description = "Take the days before this one (UTC) for the baseline of all days"
-- [parameters.gpus_per_node]
-- type = "DOUBLE"
-- default = 8
-- minimum = 1
-- description = "GPUs of a node, where a job does not tell its nodes"
-- [columns]
-- day = "Day, UTC"
-- cluster = "Cluster; (all) is the fleet, where there are several"
-- failure = "Failure; NULL for all together"
-- definition = "What counts as a failure"
-- failures = "Attempts that failed"
-- failures_distinct_runs = "Runs that they belong to"
-- exposure = "Exposure of the day"
-- unit = "Its unit"
-- rate = "Failures in 1000 units of exposure"
-- lo = "Its lower 95 % limit"
-- hi = "Its upper 95 % limit"
-- expected = "Failures at the baseline's rate; NULL where the baseline has too few"
-- ucl = "Upper control limit: expected + 3 sqrt(expected)"
-- p = "Chance of so many failures or more, exact"
-- ma7 = "Rate of the last seven days together"
-- baseline_failures = "Failures of the baseline"
-- baseline_exposure = "Its exposure"
-- dispersion = "Chi-square / degrees of freedom of the baseline's days; above 1.5 they come in bursts"
-- partial = "The last day that the database knows: logs may still arrive"
-- flag = "out_of_control, overdispersed (no more than its bursts explain), too_rare, no_exposure"
-- rule = "Why it is out of control: p, eight_above, eight_below"
-- exposure_jobs_share = "Share of the day's attempts whose hours and GPUs the scheduler tells"
-- state_log_share = "Share of the day's attempts whose outcome is inferred from logs"
WITH judged AS MATERIALIZED (
  SELECT attempt_id, coalesce(cluster, '(none)') AS cluster, hash(cluster, run) AS run_key,
    start_ts, end_ts, coalesce(end_ts, t_about) AS ended, exposure_source, state_source,
    CASE $unit WHEN 'gpu_hour' THEN gpus
      WHEN 'node_day' THEN coalesce(nodes, greatest(1, ceil(gpus / $gpus_per_node))) / 24 END
      AS weight,
    CASE WHEN $definition = 'infra' THEN infra_failed ELSE failed END
      AND asked(failure, $failure) AS counts,
    CASE WHEN $day = 'failure' THEN coalesce(failed_ts, ended) ELSE ended END::DATE AS fail_day,
    coalesce(failure, '(unknown)') AS failure
  FROM exposed_failures(causes := $definition = 'infra' OR $failure IS NOT NULL
    OR $by = 'failure' OR $day = 'failure')
  WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
), scoped AS MATERIALIZED (
  SELECT unnest(CASE WHEN (SELECT count(DISTINCT cluster) FROM judged) > 1
      THEN [cluster, '(all)'] ELSE [cluster] END) AS scope, *
  FROM judged
), ran AS (
  SELECT scope, day::DATE AS day, sum(weight * seconds_between(
      greatest(start_ts, day), least(end_ts, day + INTERVAL 1 DAY)) / 3600) AS exposure,
    count(*) AS attempts, count(*) FILTER (exposure_source = 'jobs') AS by_jobs,
    count(*) FILTER (state_source IN ('log', 'inferred')) AS by_log
  FROM (
    SELECT *, unnest(generate_series(
      date_trunc('day', start_ts), date_trunc('day', end_ts), INTERVAL 1 DAY)) AS day
    FROM scoped WHERE start_ts IS NOT NULL)
  GROUP BY ALL
), ended_on AS (
  SELECT scope, ended::DATE AS day, count(*) AS attempts,
    count(*) FILTER (exposure_source = 'jobs') AS by_jobs,
    count(*) FILTER (state_source IN ('log', 'inferred')) AS by_log
  FROM scoped WHERE ended IS NOT NULL GROUP BY ALL
), days AS MATERIALIZED (
  SELECT scope, day, CASE WHEN $unit = 'attempt' THEN e.attempts ELSE r.exposure END AS exposure,
    coalesce(r.by_jobs, e.by_jobs) / coalesce(r.attempts, e.attempts) AS exposure_jobs_share,
    coalesce(r.by_log, e.by_log) / coalesce(r.attempts, e.attempts) AS state_log_share
  FROM ran AS r FULL JOIN ended_on AS e USING (scope, day)
), failed AS MATERIALIZED (
  SELECT scope, fail_day AS day, series, count(*) AS k, count(DISTINCT run_key) AS k_runs
  FROM (
    SELECT *, unnest(CASE WHEN $by = 'failure' AND $failure IS NULL
      THEN [failure, '(every)'] ELSE ['(every)'] END) AS series
    FROM scoped WHERE counts)
  GROUP BY ALL
), series AS (
  SELECT DISTINCT scope, series FROM failed UNION SELECT DISTINCT scope, '(every)' FROM scoped
), daily AS MATERIALIZED (
  SELECT d.*, s.series, coalesce(f.k, 0) AS k, coalesce(f.k_runs, 0) AS k_runs,
    d.day >= (SELECT max(ended)::DATE FROM judged) AS partial
  FROM days AS d JOIN series AS s USING (scope) LEFT JOIN failed AS f USING (scope, day, series)
), based AS MATERIALIZED (
  SELECT *,
    CASE WHEN fixed THEN sum(k) FILTER (chosen) OVER every
      ELSE sum(k) FILTER (exposure > 0) OVER past END AS base_k,
    CASE WHEN fixed THEN sum(exposure) FILTER (chosen) OVER every
      ELSE sum(exposure) FILTER (exposure > 0) OVER past END AS base_e,
    CASE WHEN fixed THEN sum(k * k / exposure) FILTER (chosen) OVER every
      ELSE sum(k * k / exposure) FILTER (exposure > 0) OVER past END AS base_squares,
    CASE WHEN fixed THEN count(*) FILTER (chosen) OVER every
      ELSE count(*) FILTER (exposure > 0) OVER past END AS base_n,
    sum(k) OVER week / nullif(sum(exposure) OVER week, 0) AS ma7
  FROM (
    SELECT *, $baseline_since::TIMESTAMP IS NOT NULL OR $baseline_until::TIMESTAMP IS NOT NULL AS fixed,
      fixed AND exposure > 0 AND within(day, $baseline_since, $baseline_until) AS chosen
    FROM daily)
  WINDOW every AS (PARTITION BY scope, series),
    past AS (PARTITION BY scope, series ORDER BY day
      RANGE BETWEEN to_days($baseline_days::INTEGER) PRECEDING AND INTERVAL 1 DAY PRECEDING),
    week AS (PARTITION BY scope, series ORDER BY day
      RANGE BETWEEN INTERVAL 6 DAYS PRECEDING AND CURRENT ROW)
), expecting AS MATERIALIZED (
  SELECT *, nullif(exposure, 0) AS e,
    CASE WHEN base_k >= $baseline_min THEN base_k / base_e * nullif(exposure, 0) END AS mu,
    CASE WHEN base_n > 1 AND base_k > 0
      THEN (base_squares * base_e / base_k - base_k) / (base_n - 1) END AS dispersion,
    sign(k - mu) AS side,
    CASE WHEN side > 0 THEN poisson_ge(floor(mu) + 1, mu)
      WHEN side < 0 THEN poisson_le(ceil(mu) - 1, mu) END AS side_p
  FROM based
), sided AS (
  SELECT scope, series, day, side,
    count(*) OVER w = 8 AND min(side) OVER w = max(side) OVER w AND side <> 0
      AND sum(ln(side_p)) OVER w < ln(0.01) AS eight
  FROM expecting WHERE mu IS NOT NULL AND NOT partial
  WINDOW w AS (PARTITION BY scope, series ORDER BY day ROWS 7 PRECEDING)
), tested AS (
  SELECT x.*, poisson_ge(x.k, x.mu) AS p, coalesce(s.eight, false) AS eight,
    (x.k - x.mu) / sqrt(x.mu * greatest(1, coalesce(x.dispersion, 1))) AS z
  FROM expecting AS x LEFT JOIN sided AS s USING (scope, series, day)
)
SELECT day, nullif(scope, '(none)') AS cluster,
  CASE WHEN series <> '(every)' THEN series ELSE $failure END AS failure,
  $definition AS definition, k AS failures, k_runs AS failures_distinct_runs, exposure,
  $unit AS unit, 1000 * k / e AS rate, 1000 * poisson_lo(k, 0.05) / e AS lo,
  1000 * poisson_hi(k, 0.05) / e AS hi, mu AS expected, mu + 3 * sqrt(mu) AS ucl, p,
  1000 * ma7 AS ma7, coalesce(base_k, 0)::BIGINT AS baseline_failures,
  coalesce(base_e, 0)::DOUBLE AS baseline_exposure, dispersion, partial,
  CASE WHEN e IS NULL THEN 'no_exposure' WHEN mu IS NULL THEN 'too_rare'
    WHEN eight THEN 'out_of_control'
    WHEN p < 0.001 AND dispersion > 1.5 AND z < 3 THEN 'overdispersed'
    WHEN p < 0.001 THEN 'out_of_control' END AS flag,
  CASE WHEN p < 0.001 AND (coalesce(dispersion, 1) <= 1.5 OR z >= 3) THEN 'p'
    WHEN eight AND k > mu THEN 'eight_above' WHEN eight THEN 'eight_below' END AS rule,
  exposure_jobs_share, state_log_share
FROM tested
WHERE within(day, $since, $until)
ORDER BY scope = '(all)' DESC, scope, series <> '(every)', series, day
