-- title = "First seen"
-- order = 70
-- description = """
-- What is new in the last days, and since which version. A failure is new only if logs of 30 days
-- and more without it make that improbable at the rate it now has; else it may just be rare
-- (not_established). A catalogue that does not know the failure cannot have seen it: logs scanned
-- with one in which it never occurred are no baseline (new_rule) until they are scanned again.
-- """
-- brief = ["failure", "scope", "status", "first_seen", "runs_since", "p_zero_baseline",
--   "baseline_exposure", "unit", "first_run", "first_host", "change_id"]
-- [parameters.by]
-- type = "VARCHAR"
-- default = "failure"
-- choices = ["failure", "signature"]
-- description = "What is looked for"
-- [parameters.scope]
-- type = "VARCHAR"
-- default = "fleet"
-- choices = ["fleet", "cluster", "framework_version"]
-- description = "Where it may be new"
-- [parameters.now]
-- type = "TIMESTAMP"
-- description = "End of the last days (UTC); else the last time in the logs, or until"
-- [parameters.new_days]
-- type = "DOUBLE"
-- default = 7
-- minimum = 0.01
-- description = "How many last days"
-- [parameters.baseline_days]
-- type = "DOUBLE"
-- default = 30
-- minimum = 0
-- description = "Days of logs without it that a baseline needs, and an absence"
-- [parameters.unit]
-- type = "VARCHAR"
-- default = "auto"
-- choices = ["auto", "gpu-hour", "attempt"]
-- description = "Unit of exposure; auto takes GPU-hours where all attempts have them"
-- [parameters.known]
-- type = "BOOLEAN"
-- default = false
-- description = "List what was there before and still is, too"
-- [columns]
-- failure = "Failure"
-- signature = "Signature, where they are looked for"
-- scope = "Cluster or version of the framework; fleet"
-- status = "new, borderline (one run only), returning, not_established, new_rule, known"
-- first_seen = "First time, UTC; where it returns, the first time since"
-- last_seen = "Last time, UTC"
-- seen_before = "Last time before the last days, UTC"
-- first_run = "Run that had it first"
-- first_host = "Host that had it first"
-- runs_since = "Runs with it in the last days"
-- hosts_since = "Hosts with it in the last days"
-- occurrences = "Attempts with it in the last days"
-- exposure_since = "Exposure of the last days"
-- baseline_exposure = "Exposure before, without it, scanned with a catalogue that knows it"
-- baseline_days = "Days that it spans"
-- unit = "Unit of exposure"
-- expected = "Attempts with it that the baseline would have at the rate of the last days"
-- p_zero_baseline = "Chance that the baseline has none at that rate"
-- change_id = "The last version that came new to the scope before it was first seen"
-- change_ts = "When that was, UTC"
-- exposure_source = "Where exposure comes from: jobs, log, mixed, none"
WITH framework AS (
  SELECT attempt_id, version FROM run_versions
  WHERE component = 'framework' AND $scope = 'framework_version'
), scanned AS (  -- with which catalogue
  SELECT f.attempt_id, min(coalesce(s.catalogue_digest, f.catalogue_digest, '')) AS catalogue
  FROM live_files AS f LEFT JOIN scans AS s USING (scan_id)
  WHERE f.run IS NOT NULL GROUP BY f.attempt_id
), launched AS MATERIALIZED (
  SELECT a.attempt_id, a.cluster, a.run, coalesce(a.first_ts, a.t_about) AS t0,
    coalesce(a.last_ts, a.t_about) AS t1, coalesce(c.catalogue, '') AS catalogue, a.state_source,
    a.gpus * seconds_between(a.first_ts, a.last_ts) / 3600 AS gpu_h,
    CASE $scope WHEN 'fleet' THEN 'fleet' WHEN 'cluster' THEN a.cluster ELSE v.version END AS scope
  FROM attempts AS a
  LEFT JOIN framework AS v USING (attempt_id)
  LEFT JOIN scanned AS c USING (attempt_id)
  WHERE asked(a.cluster, $cluster) AND asked(coalesce(a.job, a.run), $job)
    AND within(a.t_about, $since, $until) AND a.t_about IS NOT NULL
    AND (a.files > 0 OR NOT EXISTS (FROM files))
), settings AS MATERIALIZED (
  SELECT CASE WHEN $unit <> 'auto' THEN $unit WHEN count(gpu_h) = count(*) THEN 'gpu-hour'
      ELSE 'attempt' END AS unit,
    coalesce($now, $until, max(t1)) AS now_ts,
    now_ts - to_microseconds((86400e6 * $new_days)::BIGINT) AS fresh_ts,
    CASE WHEN count(*) = 0 THEN 'none' WHEN bool_and(state_source = 'log') THEN 'log'
      WHEN bool_or(state_source = 'log') THEN 'mixed' ELSE 'jobs' END AS exposure_source
  FROM launched
), exposed AS MATERIALIZED (  -- an attempt counts where it ends; by day, so that gaps can be summed
  SELECT scope, catalogue, t1 >= fresh_ts AS fresh, t1::DATE AS day, min(t0) AS t_lo, max(t1) AS t_hi,
    sum(CASE WHEN unit = 'attempt' THEN 1 ELSE gpu_h END) AS n
  FROM launched CROSS JOIN settings WHERE t1 <= now_ts AND scope IS NOT NULL
  GROUP BY ALL
), seen AS MATERIALIZED (  -- an attempt each
  SELECT e.failure, CASE WHEN $by = 'signature' THEN e.signature END AS signature, l.scope, l.run,
    e.attempt_id, l.catalogue, l.t1 >= s.fresh_ts AS fresh, min(coalesce(e.t0, e.t_about)) AS t,
    max(coalesce(e.t1, e.t_about)) AS t_last, arg_min(e.host, coalesce(e.t0, e.t_about)) AS host,
    list(DISTINCT e.host) FILTER (e.host IS NOT NULL) AS hosts
  FROM placed_events AS e JOIN launched AS l USING (attempt_id) CROSS JOIN settings AS s
  WHERE e.role IN ('cause', 'confirmation', 'collateral', 'context')
    AND e.category IS DISTINCT FROM 'progress'
    AND NOT (e.role = 'context' AND e.severity IS NOT DISTINCT FROM 'info')
    AND asked(e.failure, $failure) AND l.t1 <= s.now_ts
  GROUP BY ALL
), rules AS (  -- the catalogues that know it, by what they found anywhere
  SELECT DISTINCT failure, signature, catalogue FROM seen
), placed AS (
  SELECT failure, signature, scope,
    min(t) FILTER (fresh) AS fresh_seen, max(t_last) AS last_seen,
    min(t) AS ever_seen, max(t_last) FILTER (NOT fresh) AS seen_before,
    arg_min(run, t) FILTER (fresh) AS first_run, arg_min(host, t) FILTER (fresh) AS first_host,
    arg_min(run, t) AS ever_run, arg_min(host, t) AS ever_host,
    count(DISTINCT run) FILTER (fresh) AS runs_since, count(*) FILTER (fresh) AS occurrences,
    len(list_distinct(coalesce(flatten(list(hosts) FILTER (fresh)), []))) AS hosts_since
  FROM seen WHERE scope IS NOT NULL GROUP BY ALL
), baselines AS (  -- of a returning failure only what lies after its last time before
  SELECT p.failure, p.signature, p.scope, sum(x.n) AS n,
    seconds_between(min(greatest(x.t_lo, coalesce(p.seen_before, x.t_lo))), any_value(fresh_ts))
      / 86400 AS days
  FROM placed AS p CROSS JOIN settings
  JOIN exposed AS x ON x.scope = p.scope AND NOT x.fresh AND coalesce(x.t_lo > p.seen_before, true)
  JOIN rules AS r ON r.failure = p.failure AND r.signature IS NOT DISTINCT FROM p.signature
    AND r.catalogue = x.catalogue
  GROUP BY ALL
), fresh AS (
  SELECT scope, sum(n) FILTER (fresh) AS n, sum(n) FILTER (NOT fresh) AS n_before FROM exposed
  GROUP BY scope
), rated AS (
  SELECT p.*, s.unit, s.now_ts, s.fresh_ts, s.exposure_source, f.n AS exposure_since,
    f.n_before, coalesce(b.n, 0) AS baseline_exposure, coalesce(b.days, 0) AS baseline_days,
    p.occurrences / nullif(f.n, 0) * coalesce(b.n, 0) AS expected
  FROM placed AS p CROSS JOIN settings AS s
  JOIN fresh AS f USING (scope)
  LEFT JOIN baselines AS b ON b.failure = p.failure AND b.scope = p.scope
    AND b.signature IS NOT DISTINCT FROM p.signature
), judged AS (
  SELECT *, CASE
      WHEN fresh_seen IS NULL THEN 'known'
      WHEN seen_before IS NOT NULL
          AND seconds_between(seen_before, fresh_seen) < 86400 * $baseline_days THEN 'known'
      WHEN baseline_exposure = 0 AND n_before > 0 AND seen_before IS NULL THEN 'new_rule'
      WHEN baseline_days < $baseline_days OR expected IS NULL OR expected < 3 * (1 - 1e-9)
        THEN 'not_established'
      WHEN seen_before IS NOT NULL THEN 'returning'
      WHEN runs_since < 2 THEN 'borderline'
      ELSE 'new' END AS status
  FROM rated
), changes AS (  -- versions, where they first came to a scope that had others before
  SELECT scope, component, version, ts
  FROM (
    SELECT l.scope, v.component, v.version, min(l.t0) AS ts
    FROM run_versions AS v JOIN launched AS l USING (attempt_id)
    WHERE v.component <> 'framework' AND l.scope IS NOT NULL
    GROUP BY ALL)
  QUALIFY row_number() OVER (PARTITION BY scope, component ORDER BY ts) > 1
), latest AS (
  SELECT p.failure, p.signature, p.scope,
    arg_max(c.component || ' ' || c.version, c.ts) AS change_id, max(c.ts) AS change_ts
  FROM placed AS p JOIN changes AS c ON c.scope = p.scope AND c.ts <= p.fresh_seen
  GROUP BY ALL
)
SELECT j.failure, j.signature, j.scope, j.status,
  CASE WHEN was_known THEN j.ever_seen ELSE j.fresh_seen END AS first_seen, j.last_seen,
  j.seen_before, CASE WHEN was_known THEN j.ever_run ELSE j.first_run END AS first_run,
  CASE WHEN was_known THEN j.ever_host ELSE j.first_host END AS first_host, j.runs_since,
  j.hosts_since, j.occurrences, j.exposure_since::DOUBLE AS exposure_since,
  j.baseline_exposure::DOUBLE AS baseline_exposure, j.baseline_days, j.unit,
  CASE WHEN NOT was_known THEN j.expected END AS expected,
  CASE WHEN NOT was_known THEN exp(-j.expected) END AS p_zero_baseline,
  CASE WHEN NOT was_known THEN l.change_id END AS change_id,
  CASE WHEN NOT was_known THEN l.change_ts END AS change_ts, j.exposure_source
FROM (SELECT *, status = 'known' AS was_known FROM judged) AS j
LEFT JOIN latest AS l ON l.failure = j.failure AND l.scope = j.scope
  AND l.signature IS NOT DISTINCT FROM j.signature
WHERE $known OR NOT was_known
ORDER BY list_position(['new', 'returning', 'borderline', 'not_established', 'new_rule', 'known'],
  j.status), first_seen DESC, j.failure, j.signature, j.scope
