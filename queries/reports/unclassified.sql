-- title = "Unclassified"
-- order = 7
-- description = """
-- What the catalogue does not know yet: lines that only a fallback signature matched, and the last
-- word of failed attempts that have no cause at all, by what such lines have in common. The first
-- row touches the most runs that nothing explains: add an entry for it first. A run counts as
-- explained by an attempt's own cause only, and `fallback` signatures name none.
-- """
-- brief = ["template", "runs", "share", "events", "ranks", "signature", "example_file",
--   "example_line"]
-- chart = { kind = "bar", x = "template", y = "runs" }
-- note = """
-- WITH lines AS MATERIALIZED (
--   FROM unclassified_lines()
-- ), shapes AS (
--   SELECT DISTINCT signature, shape, place FROM lines WHERE event_id IS NOT NULL
-- ), mined AS (
--   SELECT unnest(log_templates(list(shape ORDER BY place), $similarity)) AS template
--   FROM shapes WHERE place <= 100000 GROUP BY signature
-- ), unknown AS (
--   SELECT cluster, run, count(event_id) > 0 AS lined
--   FROM lines
--   WHERE outcome = 'failed' AND state = 'open'
--     AND asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
--     AND within(t_about, $since, $until)
--   GROUP BY cluster, run
-- )
-- SELECT format('{} failed runs have no catalogued cause, {} of them no line to add one from',
--   count(*), count(*) FILTER (NOT lined))
-- FROM unknown HAVING count(*) > 0
-- UNION ALL
-- SELECT format('{} of {} kinds of line are too rare to be told apart: their template is <other>',
--   (SELECT count(*) FROM shapes) - count(template), (SELECT count(*) FROM shapes))
-- FROM mined HAVING (SELECT count(*) FROM shapes) > count(template)
-- """
-- [parameters.similarity]
-- type = "DOUBLE"
-- default = 0.7
-- minimum = 0
-- description = "Lines with this share of their words in common are one template; 1 merges none"
-- [parameters.min_runs]
-- type = "BIGINT"
-- default = 0
-- minimum = 0
-- description = "Only templates of so many runs; 0 keeps those of hosts and services outside of runs"
-- [parameters.explained]
-- type = "BOOLEAN"
-- default = "false"
-- description = "Take in lines of runs that a catalogued cause explains, or that did not fail"
-- [columns]
-- template = "What the lines have in common; <*> stands for a word that differs"
-- signature = "Signature that matched them"
-- failure = "Failure that the signature belongs to"
-- evidence = "fallback, or by which rule of first-failure it is the last word of a failed attempt"
-- example = "The first of them, masked"
-- runs = "Runs it touches in an attempt that nothing catalogued explains"
-- failed_runs = "Those of them where that attempt failed"
-- share = "failed_runs / all failed runs without a catalogued cause"
-- runs_explained = "Runs it touches in an attempt with a catalogued cause"
-- runs_settled = "Runs it touches in an attempt that completed, was cancelled or hit its limit"
-- clusters = "Clusters it was seen in"
-- hosts = "Hosts that printed it"
-- ranks = "Ranks that printed it"
-- events = "Lines"
-- kinds = "How many they are when only numbers, addresses, times, ids and paths are left out"
-- first_seen = "First time, UTC"
-- last_seen = "Last time, UTC"
-- example_run = "Run of the example"
-- example_file = "File of the example"
-- example_line = "Its line"
WITH lines AS MATERIALIZED (
  SELECT *, hash(cluster, run) AS run_key FROM unclassified_lines()
), mined AS (  -- over the whole database, so that no filter changes a template
  SELECT signature, unnest(list(shape ORDER BY place)) AS shape,
    unnest(log_templates(list(shape ORDER BY place), $similarity)) AS template
  FROM (SELECT DISTINCT signature, shape, place FROM lines WHERE place <= 100000)
  GROUP BY signature
), asked_for AS (
  SELECT *, state = 'open' AS unknown, state = 'open' AND outcome = 'failed' AS failed
  FROM lines
  WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
    AND within(t_about, $since, $until)
), hits AS (
  SELECT l.*, coalesce(m.template, '<other>') AS template,
    {'a': l.t0 IS NULL, 'b': l.t0, 'c': l.cluster, 'd': l.path, 'e': l.line_no} AS turn
  FROM asked_for AS l LEFT JOIN mined AS m ON m.signature = l.signature AND m.shape = l.shape
  WHERE l.event_id IS NOT NULL AND asked(l.failure, $failure)
), counted AS (
  SELECT template, signature,
    count(DISTINCT run_key) FILTER (unknown AND attempt_id IS NOT NULL) AS runs,
    count(DISTINCT run_key) FILTER (failed) AS failed_runs,
    count(DISTINCT run_key) FILTER (state = 'explained') AS runs_explained,
    count(DISTINCT run_key) FILTER (state = 'settled') AS runs_settled
  FROM hits GROUP BY template, signature
), told AS (
  SELECT template, signature, any_value(failure) AS failure,
    string_agg(DISTINCT evidence, ', ' ORDER BY evidence) AS evidence,
    list_sort(list(DISTINCT cluster) FILTER (cluster IS NOT NULL)) AS clusters,
    count(DISTINCT hash(cluster, host)) FILTER (host IS NOT NULL) AS hosts,
    count(DISTINCT hash(attempt_id, rank)) FILTER (rank IS NOT NULL) AS ranks,
    sum(repeats)::BIGINT AS events, count(DISTINCT shape) AS kinds,
    min(t0) AS first_seen, max(t1) AS last_seen,
    arg_min({'message': message, 'run': run, 'path': path, 'line_no': line_no}, turn) AS example
  FROM hits WHERE unknown OR $explained GROUP BY template, signature
)
SELECT t.template, t.signature, t.failure, t.evidence, t.example.message AS example,
  c.runs, c.failed_runs,
  c.failed_runs / (SELECT nullif(count(DISTINCT run_key), 0) FROM asked_for WHERE failed) AS share,
  c.runs_explained, c.runs_settled, coalesce(t.clusters, []) AS clusters, t.hosts, t.ranks, t.events,
  t.kinds, t.first_seen, t.last_seen, t.example.run AS example_run, t.example.path AS example_file,
  t.example.line_no AS example_line
FROM told AS t JOIN counted AS c ON c.template = t.template AND c.signature = t.signature
WHERE c.runs >= $min_runs
ORDER BY c.runs DESC, t.events DESC, t.signature, t.template
