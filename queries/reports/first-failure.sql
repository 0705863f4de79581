-- title = "First failure"
-- order = 2
-- description = """
-- Which rank failed first, on which host, with what, and what only died because of it. One row a
-- run that failed: its first failed attempt with a known cause, or, where the run ended with what
-- every restart meets again (a checkpoint that cannot be loaded), that. Runs that completed, were
-- cancelled or ran into their limit without a cause before are left out, recovered errors too; one
-- that completed and then crashed while it was taken down is in, with outcome completed.
-- """
-- brief = ["run_id", "failure", "initiating_rank", "initiating_host", "scope", "confidence", "ts",
--   "collateral_ranks", "file", "line"]
-- [parameters.by]
-- type = "VARCHAR"
-- default = "run"
-- choices = ["run", "attempt", "incident"]
-- description = "One row a failed run, a failed attempt, or an incident (recovered ones too)"
-- [parameters.attr_before_s]
-- type = "DOUBLE"
-- default = 600
-- minimum = 0
-- description = "Causes in host logs count from so long before the end of the attempt, seconds"
-- [parameters.attr_after_s]
-- type = "DOUBLE"
-- default = 300
-- minimum = 0
-- description = "And until so long after it, seconds"
-- [columns]
-- cluster = "Cluster"
-- run_id = "Run"
-- job = "Job"
-- attempt = "Attempt that the row is about"
-- outcome = "How the attempt ended"
-- failure = "What failed first; NULL where only collateral was seen"
-- title = "Title of that failure"
-- severity = "Severity of that failure"
-- root_signature = "Signature of the decisive line"
-- initiating_rank = "Rank that failed first; NULL where all fail alike or the order is unknown"
-- initiating_host = "Host that failed first"
-- scope = "single_rank, single_host, multi_rank, all_but_one, all_ranks, unknown"
-- tied_ranks = "Ranks with the same failure within 2 s of it"
-- ts = "When it began, UTC; a bound where the line has no time"
-- confidence = "high, medium, low"
-- evidence = "Rule: root_signature, confirmation, swallowed, reading, collective_lag, elastic_first, exit_signal, undetermined"
-- why = "What decided, in a sentence"
-- file = "File of the decisive line"
-- line = "Its line"
-- message = "Its text, masked"
-- collateral_events = "Lines that follow from it"
-- collateral_ranks = "Other ranks that it dragged along"
-- collateral_failures = "Failures that follow from it"
-- collateral_signatures = "What they matched"
-- lead_s = "Seconds from it to the first collateral"
-- ranks_seen = "Ranks seen in the logs"
-- world_size = "Ranks of the attempt"
-- silent_ranks = "world_size - ranks_seen: the true first rank may be among them"
-- infra_causes = "Causes in logs of its hosts around the end of a failed attempt, the gravest first"
-- n_causes = "Causes in all: the first one and those of the host logs"
-- incident_id = "Incident that the decisive line belongs to, as the report incidents has it"
WITH found AS MATERIALIZED (
  FROM verdicts(grain := $by)
), ended AS (
  SELECT a.attempt_id, a.cluster, a.hosts, a.first_ts, a.last_ts,
    a.last_ts - to_microseconds((1e6 * $attr_before_s)::BIGINT) AS since,
    a.last_ts + to_microseconds((1e6 * $attr_after_s)::BIGINT) AS until
  FROM attempt_spans AS a
  WHERE a.attempt_id IN (SELECT attempt_id FROM found WHERE outcome = 'failed')
), seen AS (  -- causes in logs of hosts and schedulers
  SELECT event_id, attempt_id, cluster, host, t0, failure, role, severity
  FROM placed_events
  WHERE from_host AND role IN ('cause', 'confirmation') AND t0 IS NOT NULL
), near AS (
  SELECT e.attempt_id, s.event_id, s.failure, s.role, s.severity
  FROM seen AS s JOIN ended AS e ON e.attempt_id = s.attempt_id
  WHERE s.t0 BETWEEN e.since AND e.until
  UNION
  SELECT e.attempt_id, s.event_id, s.failure, s.role, s.severity
  FROM (SELECT *, unnest(hosts) AS host FROM ended) AS e
  JOIN seen AS s ON s.host = e.host AND s.cluster IS NOT DISTINCT FROM e.cluster
    AND s.attempt_id IS NULL AND s.t0 BETWEEN e.since AND e.until
  WHERE NOT EXISTS (  -- a host that another attempt used then is not its own
    FROM (SELECT attempt_id, cluster, unnest(hosts) AS host, first_ts, last_ts
      FROM attempt_spans) AS o
    WHERE o.host = s.host AND o.cluster IS NOT DISTINCT FROM s.cluster
      AND o.attempt_id <> e.attempt_id AND s.t0 BETWEEN o.first_ts AND o.last_ts)
), infra AS (
  SELECT attempt_id, list(failure ORDER BY grave, failure) AS failures
  FROM (
    SELECT attempt_id, failure,
      min(CASE severity WHEN 'critical' THEN 0 WHEN 'high' THEN 1 WHEN 'medium' THEN 2
        WHEN 'low' THEN 3 ELSE 4 END) AS grave
    FROM near GROUP BY attempt_id, failure)
  GROUP BY attempt_id
), named AS (
  SELECT f.*, t.title, coalesce(i.failures, []) AS infra,
    CASE WHEN $by = 'incident' THEN f.unit ELSE n.incident_id END AS incident_id
  FROM found AS f
  LEFT JOIN failures AS t ON t.failure = f.failure
  LEFT JOIN infra AS i ON i.attempt_id = f.attempt_id
  LEFT JOIN (
    SELECT event_id, incident_id FROM incident_members WHERE $by <> 'incident'
  ) AS n ON n.event_id = f.event_id
)
SELECT cluster, run AS run_id, job, attempt, outcome, failure, title, severity,
  signature AS root_signature, initiating_rank,
  initiating_host, scope, tied_ranks, ts, confidence, evidence, why, file, line,
  message,
  collateral_events, collateral_ranks, collateral_failures, collateral_signatures, lead_s,
  ranks_seen, world_size, silent_ranks, infra AS infra_causes,
  len(list_filter(infra, lambda x: x IS DISTINCT FROM failure))
    + (failure IS NOT NULL)::INTEGER AS n_causes,
  incident_id
FROM named
WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job) AND asked(failure, $failure)
  AND within(coalesce(ts, t_about), $since, $until)
  AND ($by <> 'incident' OR failure IS NOT NULL)
ORDER BY ts NULLS LAST, cluster, run, attempt, file, line
