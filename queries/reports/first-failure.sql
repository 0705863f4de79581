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
-- evidence = "Rule: root_signature, confirmation, swallowed, reading, elastic_first, exit_signal, undetermined"
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
-- infra_causes = "Causes in host logs from 10 min before to 5 min after the end"
-- n_causes = "Causes in all: the first one and those of the host logs"
WITH found AS (
  SELECT f.*, t.title
  FROM verdicts(grain := $by) AS f
  LEFT JOIN failures AS t ON t.failure = f.failure
)
SELECT cluster, run AS run_id, job, attempt, outcome, failure, title, severity,
  signature AS root_signature, initiating_rank,
  initiating_host, scope, tied_ranks, ts, confidence, evidence, why, file, line,
  message,
  collateral_events, collateral_ranks, collateral_failures, collateral_signatures, lead_s,
  ranks_seen, world_size, silent_ranks, infra_causes,
  len(infra_causes) + (failure IS NOT NULL)::INTEGER AS n_causes
FROM found
WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job) AND asked(failure, $failure)
  AND within(coalesce(ts, t_about), $since, $until)
  AND ($by <> 'incident' OR failure IS NOT NULL)
ORDER BY ts NULLS LAST, cluster, run, attempt, file, line
