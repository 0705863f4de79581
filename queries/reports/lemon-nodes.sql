-- title = "Lemon nodes"
-- order = 40
-- chart = { kind = "ranking", x = "host", y = "k", limit = "expected", title = "Attempts that failed of something on the host; tick: at the rate of the others" }
-- description = """
-- Which hosts keep killing attempts, given how much they ran. An attempt that failed on one rank or
-- host counts against the host that began it, never against all hosts of the job. A host is held
-- against the others of its role; its rate is shrunk towards theirs, so that one failure in a short
-- time is no lemon.
-- """
-- brief = ["host", "cluster", "verdict", "k", "expected", "ratio", "q", "eb_lo05", "exposure_h",
--   "failures"]
-- note = """
-- SELECT CASE WHEN count(*) FILTER (initiating_host IS NOT NULL) < count(*)
--   THEN format('{} of {} failed attempts name a host that began it',
--     count(*) FILTER (initiating_host IS NOT NULL), count(*)) END
-- FROM attempt_failures
-- WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job) AND asked(failure, $failure)
--   AND within(t_about, $since, $until) AND outcome = 'failed'
-- """
-- [parameters.window_d]
-- type = "DOUBLE"
-- default = 28
-- minimum = 0
-- description = "Days to look at before the last attempt (or before until) where since is not given; 0 looks at all"
-- [parameters.min_k]
-- type = "BIGINT"
-- default = 3
-- minimum = 1
-- description = "Failures that a lemon has at least"
-- [parameters.definition]
-- type = "VARCHAR"
-- default = "any"
-- choices = ["any", "infra"]
-- description = "What counts: all failures, or none of configuration, data and numerics"
-- [columns]
-- host = "Host"
-- cluster = "Cluster"
-- node_role = "Role that the table nodes gives it; hosts are compared within a role"
-- exposure_h = "Hours that it was part of attempts"
-- attempts = "Attempts that ran on it"
-- k = "Attempts that failed of something that began on it"
-- distinct_runs = "Runs that they belong to"
-- expected = "k at the rate of the other hosts"
-- ratio = "k / expected"
-- p = "How probable k or more are by exposure_h"
-- q = "False discovery rate at which that is found, over all hosts"
-- p_attempts = "The same as p by attempts: a node that dies at once has few hours"
-- eb_ratio = "Its rate, shrunk, over that of all"
-- eb_lo05 = "What eb_ratio exceeds with 95 % probability"
-- failures = "What began on it"
-- last_incident = "When it last did, UTC"
-- verdict = "lemon, watch, not_distinguishable, no_exposure"
-- exposure_source = "Where hours come from: jobs, log, mixed, none"
-- state_log_share = "Share of its attempts whose outcome is inferred from logs"
WITH launched AS MATERIALIZED (
  SELECT attempt_id, cluster, hash(cluster, run) AS run, hosts, first_ts, last_ts, state_source
  FROM attempts
  WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
), bounds AS (
  SELECT coalesce($until, 'infinity'::TIMESTAMP) AS t_hi, coalesce($since, CASE WHEN $window_d > 0
      THEN coalesce($until, max(last_ts)) - to_microseconds((86400e6 * $window_d)::BIGINT) END,
    '-infinity'::TIMESTAMP) AS t_lo
  FROM launched
), clipped AS (
  SELECT attempt_id, cluster, run, hosts, last_ts, state_source,
    coalesce(greatest(0, seconds_between(greatest(first_ts, t_lo), least(last_ts, t_hi)) / 3600), 0)
      AS hours
  FROM launched CROSS JOIN bounds
  WHERE coalesce(last_ts >= t_lo AND first_ts < t_hi, $since IS NULL AND $until IS NULL)
), placed AS (
  SELECT c.cluster, unnest(c.hosts) AS host, c.hours, c.attempt_id, c.state_source FROM clipped AS c
), exposed AS (
  SELECT cluster, host, sum(hours) AS hours, count(*) AS attempts,
    count(*) FILTER (state_source = 'log') AS by_log
  FROM placed GROUP BY cluster, host
), failed AS (
  SELECT v.cluster, v.initiating_host AS host, count(*) AS k,
    count(DISTINCT c.run) AS distinct_runs, list_sort(list(DISTINCT v.failure)) AS failures,
    max(coalesce(v.ts, v.t_about)) AS last_incident
  FROM attempt_failures AS v JOIN clipped AS c USING (attempt_id) CROSS JOIN bounds
  LEFT JOIN failures AS f ON f.failure = v.failure
  WHERE v.initiating_host IS NOT NULL AND v.outcome = 'failed'
    AND v.scope IN ('single_rank', 'single_host') AND asked(v.failure, $failure)
    AND coalesce(c.last_ts <= t_hi, true)
    AND ($definition = 'any' OR coalesce(f.category NOT IN ('config', 'data', 'numerics'), true))
  GROUP BY v.cluster, v.initiating_host
), roles AS (
  SELECT coalesce(cluster, '') AS cluster_key, host, any_value(role) AS node_role
  FROM nodes GROUP BY ALL
), hosts AS (
  SELECT coalesce(e.cluster, f.cluster) AS cluster, coalesce(e.host, f.host) AS host, n.node_role,
    coalesce(e.hours, 0) AS hours, coalesce(e.attempts, 0) AS attempts, coalesce(f.k, 0) AS k,
    coalesce(f.distinct_runs, 0) AS distinct_runs, coalesce(f.failures, []) AS failures,
    f.last_incident, e.by_log
  FROM exposed AS e
  FULL JOIN failed AS f ON f.host = e.host AND coalesce(f.cluster, '') = coalesce(e.cluster, '')
  LEFT JOIN roles AS n ON n.host = coalesce(e.host, f.host)
    AND n.cluster_key IN (coalesce(e.cluster, f.cluster, ''), '')
), summed AS (
  SELECT *, nullif(hours, 0) AS e, sum(k) FILTER (hours > 0) OVER peers AS k_all,
    sum(hours) OVER peers AS e_all, sum(k) OVER peers AS k_any, sum(attempts) OVER peers AS a_all,
    count(*) FILTER (hours > 0) OVER peers AS n_hosts
  FROM hosts WINDOW peers AS (PARTITION BY coalesce(node_role, ''))
), spread AS (  -- what exceeds Poisson's variance: gamma prior by moments
  SELECT *, k_all / nullif(e_all, 0) AS mean,
    sum(e * (k / e - k_all / e_all) ** 2) OVER (PARTITION BY coalesce(node_role, '')) / e_all
      - k_all / e_all * n_hosts / e_all AS variance
  FROM summed
), tested AS (
  SELECT *, e * (k_all - k) / nullif(e_all - e, 0) AS expected,
    CASE WHEN e > 0 THEN binomial_le(k_all - k, k_all, 1 - e / e_all) END AS p,
    CASE WHEN attempts > 0 AND k_any > 0
      THEN binomial_le(k_any - k, k_any, 1 - attempts / a_all) END AS p_attempts,
    CASE WHEN variance > 0 AND mean > 0 THEN mean ** 2 / variance END AS shape,
    CASE WHEN variance > 0 AND mean > 0 THEN mean / variance END AS rate,
    row_number() OVER (ORDER BY cluster, host) AS number
  FROM spread
), adjusted AS (
  SELECT unnest(numbers) AS number, unnest(bh_q(ps)) AS q
  FROM (
    SELECT list(number ORDER BY number) AS numbers, list(p ORDER BY number) AS ps
    FROM tested WHERE p IS NOT NULL)
), shrunk AS (
  SELECT t.*, a.q,
    CASE WHEN e > 0 AND mean > 0
      THEN coalesce((shape + k) / (rate + e) / mean, 1) END AS eb_ratio,
    CASE WHEN e > 0 AND mean > 0
      THEN coalesce(gamma_quantile(0.05, shape + k) / (rate + e) / mean, 1) END AS eb_lo05
  FROM tested AS t LEFT JOIN adjusted AS a USING (number)
)
SELECT host, cluster, node_role, hours AS exposure_h, attempts, k::BIGINT AS k, distinct_runs,
  expected, k / nullif(expected, 0) AS ratio, p, q, p_attempts, eb_ratio, eb_lo05, failures,
  last_incident,
  CASE WHEN e IS NULL THEN 'no_exposure'
    WHEN q < 0.05 AND k >= $min_k AND distinct_runs >= 2 AND eb_lo05 > 1 THEN 'lemon'
    WHEN k >= 3 * expected AND k >= 2 THEN 'watch'
    ELSE 'not_distinguishable' END AS verdict,
  CASE WHEN e IS NULL THEN 'none' WHEN by_log = attempts THEN 'log' WHEN by_log = 0 THEN 'jobs'
    ELSE 'mixed' END AS exposure_source,
  by_log / nullif(attempts, 0) AS state_log_share
FROM shrunk
ORDER BY q NULLS LAST, eb_lo05 DESC NULLS LAST, k DESC, cluster, host
