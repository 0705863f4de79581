-- title = "Healthy against failed"
-- order = 13
-- description = """
-- What failed attempts say that healthy ones do not, and what they never reached. Controls are the
-- completed attempts nearest in time of the same cluster, job name and size, else of the cluster.
-- Causes and warnings come first: what follows from a failure tells the two apart best and explains
-- nothing. Failed attempts are shorter, so a milestone counts as missing only where some ran long
-- enough to reach it. Lines that only a fallback signature knows are told apart by their text.
-- """
-- brief = ["template_id", "failed_with", "healthy_with", "p_failed", "p_healthy", "log_odds", "q",
--   "verdict", "causal_role"]
-- [parameters.controls]
-- type = "BIGINT"
-- default = 20
-- minimum = 1
-- description = "Completed attempts to compare with, at most, for each failed one"
-- [parameters.min_margin]
-- type = "BIGINT"
-- default = 5
-- minimum = 1
-- description = "Templates are tested that so many attempts have, among so many of each kind"
-- [parameters.min_n11]
-- type = "BIGINT"
-- default = 3
-- minimum = 1
-- description = "Fewer failed attempts with a template associate nothing"
-- [parameters.similarity]
-- type = "DOUBLE"
-- default = 0.7
-- minimum = 0
-- description = "Unknown lines with this share of their words in common are one template"
-- [parameters.limit]
-- type = "BIGINT"
-- default = 0
-- minimum = 0
-- description = "At most this many templates; 0 lists all"
-- [columns]
-- template_id = "Signature, or of a fallback one its lines of one template"
-- signature = "Signature"
-- failure = "Failure it belongs to"
-- text = "An example, of a failed attempt where there is one, masked; else the template"
-- failed_with = "Failed attempts with it"
-- healthy_with = "Controls with it"
-- n_failed = "Failed attempts"
-- n_healthy = "Controls: completed attempts compared with"
-- same_kind = "Those of them of the same job name and size as a failed one"
-- p_failed = "failed_with / n_failed"
-- p_healthy = "healthy_with / n_healthy"
-- log_odds = "Logarithm of the odds ratio, 1/2 added to each cell"
-- fisher_p = "Fisher's exact test, one-sided: more often in failed attempts than chance"
-- q = "False discovery rate at which it is found; NULL where too rare to test"
-- only_in_failed = "No control has it"
-- only_in_healthy = "No failed attempt has it, though some ran long enough"
-- failed_reached = "Failed attempts that ran to where 90 % of the controls with it have it"
-- missing_p = "Fisher's exact test that those lack it by chance, where none has it"
-- rate_ratio = "Its lines per run-hour in failed attempts over those in controls"
-- first_step = "Earliest step at which a failed attempt has it; of the last step before it in its file"
-- ranks_share = "Median share of a failed attempt's ranks that have it; below 0.2 it is of few ranks"
-- causal_role = "initiating (a cause), cascade (follows), teardown, unknown"
-- state_source = "Where the outcomes of the failed attempts come from, with how many do"
-- verdict = "associated, missing, not_distinguishable, too_rare"
WITH runs AS MATERIALIZED (
  SELECT a.attempt_id, a.cluster, a.outcome = 'failed' AS bad, a.first_ts, a.t_about, a.ranks_seen,
    a.last_step, a.state_source,
    coalesce(a.first_ts, a.t_about) AS t,
    seconds_between(a.first_ts, a.last_ts) AS run_s,
    hash(a.cluster, coalesce(j.name, regexp_replace(coalesce(a.job, a.run), '[0-9]+', '#', 'g')),
      CASE WHEN a.gpus <= 1 THEN 0 WHEN a.gpus <= 8 THEN 1 WHEN a.gpus <= 64 THEN 2
        WHEN a.gpus <= 512 THEN 3 WHEN a.gpus <= 4096 THEN 4 WHEN a.gpus > 4096 THEN 5 END)
      AS stratum,
    asked(a.cluster, $cluster) AND asked(coalesce(a.job, a.run), $job)
      AND within(a.t_about, $since, $until) AS wanted
  FROM attempts AS a
  LEFT JOIN (
    SELECT cluster, job, any_value(name) AS name FROM jobs GROUP BY cluster, job
  ) AS j ON j.job = a.job AND j.cluster IS NOT DISTINCT FROM a.cluster
  WHERE (a.files > 0 OR NOT EXISTS (FROM files)) AND a.outcome IN ('failed', 'completed')
), failed AS (
  SELECT *, CASE WHEN stratum IN (SELECT stratum FROM runs WHERE NOT bad) THEN stratum
    ELSE hash(cluster) END AS key
  FROM runs WHERE bad AND wanted
), healthy AS (
  SELECT key, attempt_id, same_kind,
    row_number() OVER (PARTITION BY key ORDER BY least(before_s, after_s), attempt_id) AS place
  FROM (
    SELECT h.key, h.attempt_id, h.same_kind, seconds_between(b.t, h.t) AS before_s,
      seconds_between(h.t, n.t) AS after_s
    FROM (
      SELECT stratum AS key, attempt_id, t, true AS same_kind FROM runs WHERE NOT bad
      UNION ALL
      SELECT hash(cluster), attempt_id, t, false FROM runs WHERE NOT bad) AS h
    ASOF LEFT JOIN (SELECT key, t FROM failed) AS b ON b.key = h.key AND b.t <= h.t
    ASOF LEFT JOIN (SELECT key, t FROM failed) AS n ON n.key = h.key AND n.t >= h.t)
), controls AS (
  SELECT h.attempt_id, bool_or(h.same_kind) AS same_kind
  FROM healthy AS h JOIN (SELECT key, count(*) AS n FROM failed GROUP BY key) AS f USING (key)
  WHERE h.place <= f.n * $controls
  GROUP BY h.attempt_id
), sampled AS MATERIALIZED (
  SELECT r.attempt_id, r.bad, r.first_ts, r.ranks_seen, r.last_step, r.run_s, c.same_kind
  FROM runs AS r LEFT JOIN controls AS c USING (attempt_id)
  WHERE (r.bad AND r.wanted) OR c.attempt_id IS NOT NULL
), totals AS (
  SELECT count(*) FILTER (bad) AS n_failed, count(*) FILTER (NOT bad) AS n_healthy,
    count(*) FILTER (same_kind) AS same_kind,
    sum(run_s) FILTER (bad) AS failed_s, sum(run_s) FILTER (NOT bad) AS healthy_s,
    (SELECT string_agg(format('{} {}', state_source, n), ', ' ORDER BY n DESC, state_source)
      FROM (SELECT state_source, count(*) AS n FROM failed GROUP BY state_source)) AS state_source
  FROM sampled
), shaped AS MATERIALIZED (
  SELECT event_id, signature, line_shape(message, coalesce(captures['peer_host'], host)) AS shape
  FROM events WHERE signature IN (SELECT signature FROM signatures WHERE fallback)
), mined AS (
  SELECT signature, unnest(list(shape ORDER BY shape)) AS shape,
    unnest(log_templates(list(shape ORDER BY shape), $similarity)) AS template
  FROM (
    SELECT signature, shape FROM shaped GROUP BY signature, shape
    ORDER BY count(*) DESC, signature, shape LIMIT 100000)
  GROUP BY signature
), known AS (
  SELECT s.event_id, coalesce(m.template, '<other>') AS template
  FROM shaped AS s LEFT JOIN mined AS m ON m.signature = s.signature AND m.shape = s.shape
), printed AS (  -- a row an attempt and kind of line, of a failed attempt also a rank
  SELECT e.attempt_id, e.signature, e.failure, e.role, k.template, s.bad,
    CASE WHEN s.bad AND e.role <> 'progress' THEN e.rank END AS rank, any_value(s.first_ts)
      AS first_ts, any_value(s.ranks_seen) AS ranks_seen, sum(e.repeats) AS lines, min(e.t0) AS t0,
    min(e.step) AS step,
    arg_min(e.event_id, {'a': coalesce(epoch_us(e.t0), 0), 'b': e.line_no, 'c': e.event_id}) AS first
  FROM placed_events AS e JOIN sampled AS s USING (attempt_id)
  LEFT JOIN known AS k ON k.event_id = e.event_id
  WHERE e.failure <> 'run-completed'
  GROUP BY ALL
), present AS MATERIALIZED (
  SELECT attempt_id, signature, template, bad, any_value(failure) AS failure,
    any_value(role) AS role, sum(lines) AS lines,
    seconds_between(any_value(first_ts), min(t0)) AS after_s, min(step) AS step,
    nullif(count(DISTINCT rank), 0) / nullif(any_value(ranks_seen), 0) AS share,
    arg_min(first, {'a': t0 IS NULL, 'b': t0, 'c': first}) AS first
  FROM printed
  GROUP BY attempt_id, signature, template, bad
), stepped AS (  -- the last step before its first line of each failed attempt
  SELECT p.signature, p.template, min(coalesce(p.step, s.step)) AS first_step
  FROM (
    SELECT p.signature, p.template, p.step, e.file_id, e.line_no
    FROM present AS p JOIN events AS e ON e.event_id = p.first
    WHERE p.bad AND p.role <> 'progress') AS p
  ASOF LEFT JOIN (
    SELECT file_id, line_no, step FROM events WHERE failure = 'training-step' AND step IS NOT NULL
  ) AS s ON s.file_id = p.file_id AND s.line_no < p.line_no
  GROUP BY p.signature, p.template
), counted AS (
  SELECT signature, template, any_value(failure) AS failure, any_value(role) AS role,
    count(*) FILTER (bad) AS failed_with,
    count(*) FILTER (NOT bad) AS healthy_with,
    sum(lines) FILTER (bad) AS failed_lines, sum(lines) FILTER (NOT bad) AS healthy_lines,
    median(share) FILTER (bad) AS ranks_share,
    quantile_cont(after_s, 0.9) FILTER (NOT bad) AS typical_s,
    quantile_cont(step, 0.9) FILTER (NOT bad) AS typical_step,
    arg_min(first, {'a': NOT bad, 'b': attempt_id}) AS example
  FROM present GROUP BY signature, template
), reached AS (
  SELECT c.signature, c.template, count(*) AS failed_reached
  FROM (FROM counted WHERE failed_with = 0) AS c
  JOIN (SELECT run_s, last_step FROM sampled WHERE bad) AS s
    ON coalesce(s.run_s >= c.typical_s, s.last_step >= c.typical_step)
  GROUP BY c.signature, c.template
), tabled AS (
  SELECT c.*, t.* EXCLUDE (failed_s, healthy_s), coalesce(r.failed_reached, 0) AS reached,
    failed_lines * healthy_s / nullif(failed_s * healthy_lines, 0) AS rate_ratio,
    failed_with + healthy_with >= $min_margin AND n_failed >= $min_margin
      AND n_healthy >= $min_margin AS tested,
    row_number() OVER (ORDER BY c.signature, c.template) AS place
  FROM counted AS c CROSS JOIN totals AS t
  LEFT JOIN reached AS r ON r.signature = c.signature AND r.template IS NOT DISTINCT FROM c.template
  WHERE n_failed > 0
), tailed AS (
  SELECT *,
    fisher_greater(failed_with, n_failed - failed_with, healthy_with, n_healthy - healthy_with)
      AS fisher_p,
    CASE WHEN failed_with = 0 AND reached > 0
      THEN fisher_less(0, reached, healthy_with, n_healthy - healthy_with) END AS missing_p
  FROM tabled
), adjusted AS (
  SELECT unnest(places) AS place, unnest(bh_q(ps)) AS q
  FROM (
    SELECT list(place ORDER BY place) AS places, list(fisher_p ORDER BY place) AS ps
    FROM tailed WHERE tested)
), judged AS (
  SELECT *,
    CASE WHEN template IS NOT NULL THEN 'unknown' WHEN role IN ('cause', 'confirmation') THEN 'initiating'
      WHEN role = 'collateral' THEN 'cascade' WHEN role = 'teardown' THEN 'teardown'
      ELSE 'unknown' END AS causal_role,
    CASE WHEN NOT tested THEN 'too_rare'
      WHEN q < 0.05 AND failed_with >= $min_n11 THEN 'associated'
      WHEN missing_p < 0.05 THEN 'missing' ELSE 'not_distinguishable' END AS verdict
  FROM tailed LEFT JOIN adjusted USING (place)
), ordered AS (
  SELECT *, {'a': verdict NOT IN ('associated', 'missing'),
    'b': CASE causal_role WHEN 'cascade' THEN 1 WHEN 'teardown' THEN 2 ELSE 0 END,
    'c': coalesce(q, 2), 'd': fisher_p, 'e': -failed_with, 'f': place} AS turn
  FROM judged WHERE asked(failure, $failure)
)
SELECT CASE WHEN o.template IS NULL THEN o.signature
    ELSE format('{}#{:08x}', o.signature, hash(o.template) % 4294967296) END AS template_id,
  o.signature, o.failure, coalesce(o.template, x.message) AS text,
  failed_with, healthy_with, n_failed, n_healthy, same_kind, failed_with / n_failed AS p_failed,
  healthy_with / nullif(n_healthy, 0) AS p_healthy,
  ln((failed_with + 0.5) * (n_healthy - healthy_with + 0.5)
    / ((n_failed - failed_with + 0.5) * (healthy_with + 0.5))) AS log_odds,
  fisher_p, q, failed_with > 0 AND healthy_with = 0 AS only_in_failed,
  failed_with = 0 AND reached > 0 AS only_in_healthy,
  CASE WHEN failed_with = 0 THEN reached END AS failed_reached, missing_p, rate_ratio, first_step,
  ranks_share, causal_role, state_source, verdict
FROM ordered AS o
LEFT JOIN events AS x ON x.event_id = o.example
LEFT JOIN stepped AS s ON s.signature = o.signature AND s.template IS NOT DISTINCT FROM o.template
QUALIFY $limit = 0 OR row_number() OVER (ORDER BY turn) <= $limit
ORDER BY turn
