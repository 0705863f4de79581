-- title = "Diagnosis"
-- order = 3
-- description = """
-- What broke each failed run: the failure, its decisive line, the rank and host that began it, how
-- sure that is and why, and how the run ended. `firstfault diagnose` gives the same answer for the
-- run's files, with evidence, hypotheses and what to do.
-- """
-- brief = ["run_id", "failure", "initiating_rank", "initiating_host", "confidence", "outcome",
--   "why", "file", "line"]
-- [columns]
-- cluster = "Cluster"
-- run_id = "Run"
-- job = "Job"
-- attempt = "Attempt that the row is about"
-- outcome = "How the run ended: the outcome of its last attempt"
-- failure = "What failed first; NULL where only collateral was seen"
-- title = "Title of that failure"
-- category = "Category of that failure"
-- severity = "Severity of that failure"
-- root_signature = "Signature of the decisive line"
-- initiating_rank = "Rank that failed first; NULL where all fail alike or the order is unknown"
-- initiating_host = "Host that failed first"
-- scope = "single_rank, single_host, multi_rank, all_but_one, all_ranks, unknown"
-- tied_ranks = "Ranks with the same failure within 2 s of it"
-- ts = "When it began, UTC; a bound where the line has no time"
-- confidence = "high, medium, low"
-- why = "What decided, in a sentence"
-- file = "File of the decisive line"
-- line = "Its line"
-- message = "Its text, masked"
-- event_id = "Its event"
-- collateral_events = "Lines that follow from it"
-- ranks_seen = "Ranks seen in the logs"
-- world_size = "Ranks of the attempt"
-- fix = "The first remedy that the catalogue has"
WITH ended AS (  -- files without an attempt number are those of the launcher, which ends last
  SELECT cluster, run,
    arg_max(outcome, (coalesce(attempt, 1000000000), coalesce(last_ts, '-infinity'))) AS outcome
  FROM attempts GROUP BY cluster, run
)
SELECT c.cluster, c.run AS run_id, c.job, c.attempt, e.outcome, c.failure, t.title, t.category,
  c.severity, c.signature AS root_signature, c.initiating_rank, c.initiating_host, c.scope,
  c.tied_ranks, c.ts, c.confidence, c.why, c.file, c.line, c.message, c.event_id,
  c.collateral_events, c.ranks_seen, c.world_size, t.fix[1] AS fix
FROM run_verdicts AS c
LEFT JOIN failures AS t ON t.failure = c.failure
LEFT JOIN ended AS e ON e.cluster IS NOT DISTINCT FROM c.cluster AND e.run = c.run
WHERE asked(c.cluster, $cluster) AND asked(coalesce(c.job, c.run), $job)
  AND asked(c.failure, $failure) AND within(coalesce(c.ts, c.t_about), $since, $until)
ORDER BY ts NULLS LAST, cluster, run_id, file, line
