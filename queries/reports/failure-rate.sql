-- title = "Failure rate"
-- order = 10
-- chart = { kind = "points", x = "gpus_median", y = "mttf_h", lo = "mttf_lo_h", hi = "mttf_hi_h", limit = "run_hours / expected", group = "cluster", where = { row = "bucket" }, title = "Hours between failures by GPUs, 95 % limits; triangle: at least; dashed: were it as 1/N" }
-- description = """
-- How often attempts fail for each GPU-hour by job size, and how often they would at other sizes.
-- All attempts are exposure: healthy, cancelled, preempted, timed out and running ones, and jobs
-- without logs. Rates have exact Poisson limits; where failures come in bursts (dispersion > 1.5)
-- they are widened. Without any failure MTTF has a lower limit (one-sided 95 %), never a value.
-- """
-- brief = ["row", "cluster", "bucket", "attempts", "failures", "gpu_hours", "rate_per_Mgpuh",
--   "mttf_h", "mttf_lo_h", "mttf_hi_h", "r_f", "verdict"]
-- [parameters.buckets]
-- type = "NUMBERS"
-- default = "1,8,64,512,4096"
-- minimum = 1
-- description = "Upper bounds of the sizes, GPUs; one more bucket lies above the last"
-- [parameters.definition]
-- type = "VARCHAR"
-- default = "infra"
-- choices = ["infra", "any_failed"]
-- description = "What counts: NODE_FAIL and failures of infrastructure or whole systems, or all"
-- [parameters.rf_min_gpus]
-- type = "BIGINT"
-- default = 128
-- minimum = 0
-- description = "r_f and the projection look at attempts on more GPUs than this, if any failed"
-- [parameters.gpus_per_node]
-- type = "DOUBLE"
-- default = 8
-- minimum = 1
-- description = "GPUs of a node, where a job does not tell its nodes, and in the projection"
-- [parameters.project]
-- type = "NUMBERS"
-- minimum = 1
-- description = "Sizes to project to, GPUs; else four times the largest attempt"
-- [columns]
-- row = "bucket: one size; total: all sizes; large: above rf_min_gpus; fit; projection"
-- cluster = "Cluster; (all) is the fleet, where there are several"
-- bucket = "GPUs, from - to; of a projection what it rests on"
-- definition = "What counts as a failure"
-- gpus = "GPUs projected to"
-- gpus_median = "Median GPUs of the attempts"
-- attempts = "Attempts, healthy and censored ones too"
-- failures = "Attempts that failed by this definition"
-- failures_distinct_runs = "Runs that they belong to: a crash loop is one"
-- failed_unknown = "Failed attempts whose cause no line tells"
-- censored = "Attempts that ended by cancellation, limit or preemption, or still run"
-- run_hours = "Hours that the attempts ran"
-- gpu_hours = "GPU-hours"
-- node_days = "Node-days"
-- rate_per_Mgpuh = "Failures in 1e6 GPU-hours"
-- rate_lo = "Its lower 95 % limit"
-- rate_hi = "Its upper 95 % limit"
-- mttf_h = "Hours that such an attempt runs between failures; NULL where none failed"
-- mttf_lo_h = "Its lower 95 % limit; without failures one-sided"
-- mttf_hi_h = "Its upper 95 % limit"
-- r_f = "Failures in 1000 node-days"
-- r_f_lo = "Its lower 95 % limit"
-- r_f_hi = "Its upper 95 % limit"
-- expected = "Failures at the rate of all sizes"
-- obs_over_exp = "failures / expected"
-- dispersion = "Chi-square / degrees of freedom over stretches of equal exposure; from 10 failures"
-- b = "Of the fit rate ~ GPUs^b: 0 means MTTF falls as 1/N"
-- b_lo = "Its lower 95 % limit"
-- b_hi = "Its upper 95 % limit"
-- deviance = "Deviance of the model b = 0"
-- df = "Its degrees of freedom"
-- p_1overN = "How probable a deviance as large is if MTTF falls as 1/N"
-- verdict = "too_rare (under 5 failures), overdispersed, one_over_n, not_one_over_n, no_exposure"
-- exposure_source = "Where hours and GPUs come from: jobs, log, mixed, none"
-- exposure_jobs_share = "Share of the attempts whose hours and GPUs the scheduler tells"
-- state_log_share = "Share of the attempts whose outcome is inferred from logs"
WITH judged AS MATERIALIZED (
  SELECT attempt_id, coalesce(cluster, '(none)') AS cluster, hash(cluster, run) AS run, gpus,
    outcome, running, exposure_source, state_source, coalesce(end_ts, t_about) AS ended,
    seconds_between(greatest(start_ts, $since), least(end_ts, $until)) / 3600 AS hours,
    hours * gpus AS gpu_h,
    hours / 24 * coalesce(nodes, greatest(1, ceil(gpus / $gpus_per_node))) AS node_d,
    CASE WHEN $definition = 'infra' THEN infra_failed ELSE failed END
      AND asked(failure, $failure) AND within(ended, $since, $until) AS counts,
    outcome = 'failed' AND failure IS NULL AS unexplained
  FROM exposed_failures()
  WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
    AND coalesce(($since IS NULL OR end_ts >= $since) AND ($until IS NULL OR start_ts < $until),
      within(t_about, $since, $until))
), scoped AS (
  SELECT unnest(CASE WHEN (SELECT count(DISTINCT cluster) FROM judged) > 1
      THEN [cluster, '(all)'] ELSE [cluster] END) AS scope, *
  FROM judged
), placed AS MATERIALIZED (
  SELECT s.scope, b.*, s.* EXCLUDE (scope, cluster)
  FROM scoped AS s, LATERAL (
    VALUES ('bucket', scale_no(s.gpus, $buckets), scale_bucket(s.gpus, $buckets)),
      ('total', 0, 'all'),
      (CASE WHEN s.gpus > $rf_min_gpus THEN 'large' END, 0, '>' || $rf_min_gpus)
  ) AS b(row, number, bucket)
  WHERE b.row IS NOT NULL
), paced AS MATERIALIZED (
  SELECT *, sum(gpu_h) OVER (w ORDER BY ended, attempt_id) AS so_far,
    sum(gpu_h) OVER w AS gpu_hours_all, count(*) FILTER (counts) OVER w AS k
  FROM placed WINDOW w AS (PARTITION BY scope, row, bucket)
), stretches AS (  -- each with five failures or more expected
  SELECT scope, row, bucket, count(*) FILTER (counts) AS found, sum(gpu_h) AS gpu_h,
    any_value(k / gpu_hours_all) AS rate
  FROM paced WHERE gpu_h IS NOT NULL AND gpu_hours_all > 0 AND k >= 10
  GROUP BY scope, row, bucket,
    least(floor((so_far - gpu_h / 2) / gpu_hours_all * (k // 5)), k // 5 - 1)
), dispersed AS (
  SELECT scope, row, bucket,
    sum((found - rate * gpu_h) ** 2 / (rate * gpu_h)) / (count(*) - 1) AS dispersion
  FROM stretches WHERE gpu_h > 0
  GROUP BY scope, row, bucket HAVING count(*) > 1
), counted AS MATERIALIZED (
  SELECT p.row, p.scope, p.number, p.bucket, any_value(dispersion) AS dispersion,
    median(gpus) AS gpus_median, max(gpus) AS gpus_max, count(*) AS attempts,
    count(*) FILTER (counts) AS failures,
    count(DISTINCT run) FILTER (counts) AS failures_distinct_runs,
    count(*) FILTER (unexplained) AS failed_unknown,
    count(*) FILTER (running OR outcome IN ('cancelled', 'timeout', 'preempted')) AS censored,
    sum(hours) FILTER (gpus IS NOT NULL) AS run_hours,
    sum(gpu_h) AS gpu_hours, sum(node_d) AS node_days,
    CASE WHEN count(DISTINCT exposure_source) > 1 THEN 'mixed' ELSE any_value(exposure_source) END
      AS exposure_source,
    count(*) FILTER (exposure_source = 'jobs') / count(*) AS exposure_jobs_share,
    count(*) FILTER (state_source IN ('log', 'inferred')) / count(*) AS state_log_share
  FROM placed AS p LEFT JOIN dispersed USING (scope, row, bucket)
  GROUP BY ALL
), limited AS (
  SELECT *, nullif(gpu_hours, 0) AS exposure, failures / exposure AS rate,
    CASE WHEN dispersion > 1.5 THEN sqrt(dispersion) ELSE 1 END AS widen,
    failures * (poisson_lo(failures, 0.05) / nullif(failures, 0)) ** widen AS least_failures,
    CASE WHEN failures = 0 THEN poisson_hi(0, 0.05)
      ELSE failures * (poisson_hi(failures, 0.05) / failures) ** widen END AS most_failures,
    CASE WHEN failures = 0 THEN -ln(0.05) ELSE most_failures END AS most_for_mttf,
    sum(failures) FILTER (row = 'total') OVER s / sum(exposure) FILTER (row = 'total') OVER s
      AS rate_all
  FROM counted WINDOW s AS (PARTITION BY scope)
), sizes AS MATERIALIZED (
  SELECT row, scope, number, bucket, gpus_median, attempts, failures, failures_distinct_runs,
    failed_unknown, censored, run_hours, gpu_hours, node_days, 1e6 * rate AS rate_per_Mgpuh,
    1e6 * coalesce(least_failures, 0) / exposure AS rate_lo,
    1e6 * most_failures / exposure AS rate_hi,
    run_hours / nullif(failures, 0) AS mttf_h, run_hours / most_for_mttf AS mttf_lo_h,
    run_hours / nullif(least_failures, 0) AS mttf_hi_h,
    1000 * failures / nullif(node_days, 0) AS r_f,
    1000 * coalesce(least_failures, 0) / nullif(node_days, 0) AS r_f_lo,
    1000 * most_failures / nullif(node_days, 0) AS r_f_hi,
    1000 * most_for_mttf / nullif(node_days, 0) AS r_f_most,
    rate_all * exposure AS expected, failures / nullif(rate_all * exposure, 0) AS obs_over_exp,
    dispersion, gpus_max,
    CASE WHEN exposure IS NULL THEN 'no_exposure' WHEN dispersion > 1.5 THEN 'overdispersed'
      WHEN failures < 5 THEN 'too_rare' END AS verdict,
    exposure_source, exposure_jobs_share, state_log_share
  FROM limited
), fitted AS (
  SELECT scope, poisson_fit(list(failures), list(gpu_hours / run_hours), list(gpu_hours)) AS fit,
    sum(failures) AS failures
  FROM (FROM sizes WHERE row = 'bucket' AND gpu_hours > 0 ORDER BY number)
  GROUP BY scope
), fits AS (
  SELECT 'fit' AS row, f.scope, f.failures, f.fit[1] AS b, t.dispersion,
    1.959963985 * f.fit[2] * CASE WHEN t.dispersion > 1.5 THEN sqrt(t.dispersion) ELSE 1 END
      AS width,
    b - width AS b_lo, b + width AS b_hi, f.fit[3] AS deviance, f.fit[4]::BIGINT AS df,
    chi2_sf(f.fit[3] / CASE WHEN t.dispersion > 1.5 THEN t.dispersion ELSE 1 END, f.fit[4])
      AS p_1overN,
    CASE WHEN f.failures < 5 OR p_1overN IS NULL THEN 'too_rare'
      WHEN p_1overN < 0.05 THEN 'not_one_over_n' ELSE 'one_over_n' END AS verdict,
    t.exposure_source, t.exposure_jobs_share, t.state_log_share
  FROM fitted AS f JOIN sizes AS t ON t.scope = f.scope AND t.row = 'total'
), basis AS (
  FROM sizes WHERE row IN ('large', 'total') AND node_days > 0
  QUALIFY row_number() OVER (PARTITION BY scope ORDER BY row = 'large' AND failures > 0 DESC,
    row = 'total' DESC) = 1
), projected AS (
  SELECT 'projection' AS row, scope, bucket, gpus, failures, failures_distinct_runs, node_days,
    1000 * 24 * $gpus_per_node / gpus AS scale_h, scale_h / nullif(r_f, 0) AS mttf_h,
    scale_h / r_f_most AS mttf_lo_h, scale_h / nullif(r_f_lo, 0) AS mttf_hi_h,
    r_f, r_f_lo, r_f_hi, dispersion, verdict, exposure_source, exposure_jobs_share, state_log_share
  FROM (SELECT *, unnest(coalesce($project::DOUBLE[], [4 * (
    SELECT max(gpus_max) FROM sizes AS o WHERE o.scope = basis.scope)::DOUBLE])) AS gpus FROM basis)
  WHERE gpus IS NOT NULL
), rows AS (
  FROM sizes UNION ALL BY NAME FROM fits UNION ALL BY NAME FROM projected
)
SELECT row, nullif(scope, '(none)') AS cluster, bucket, $definition AS definition,
  gpus::BIGINT AS gpus, gpus_median, attempts, failures::BIGINT AS failures, failures_distinct_runs,
  failed_unknown, censored, run_hours, gpu_hours, node_days, rate_per_Mgpuh, rate_lo, rate_hi,
  mttf_h, mttf_lo_h, mttf_hi_h, r_f, r_f_lo, r_f_hi, expected, obs_over_exp, dispersion,
  b, b_lo, b_hi, deviance, df, p_1overN, verdict, exposure_source, exposure_jobs_share,
  state_log_share
FROM rows
ORDER BY scope = '(all)' DESC, scope,
  list_position(['bucket', 'total', 'large', 'fit', 'projection'], row), number NULLS LAST, rows.gpus
