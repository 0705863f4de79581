-- title = "Fingerprints"
-- order = 12
-- description = """
-- Does a warning really announce the failure, how early, and how many false alarms would it ring. A
-- pattern is a list of signatures, each within the window of the one before; all but the last one
-- are the alarm, the last one is what it should announce. Every row is one window: the window alone
-- can turn a good alarm into a worthless one. Without `pattern` those are tried that warnings and
-- known causes form with later errors; choosing and judging on the same runs flatters, so give
-- `judge_from`. Units without any time are left out.
-- """
-- brief = ["pattern", "window_s", "fired", "hits", "precision", "recall", "lead_p50_s", "lift", "q",
--   "verdict"]
-- note = """
-- WITH runs AS (
--   SELECT *, gpus * seconds_between(first_ts, last_ts) / 3600 AS gpu_h
--   FROM attempt_spans
--   WHERE $unit <> 'line' AND (files > 0 OR NOT EXISTS (FROM files))
--     AND asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
--     AND within(t_about, $since, $until)
--     AND ($judge_from IS NULL OR t_about >= $judge_from)
-- )
-- SELECT 'gpu-hours come from: ' || string_agg(format('{} {} of {}', source, n, total), ', '
--   ORDER BY n DESC, source)
-- FROM (
--   SELECT coalesce(source, 'log') AS source, count(*) AS n, sum(count(*)) OVER ()::BIGINT AS total
--   FROM runs WHERE gpu_h IS NOT NULL GROUP BY ALL)
-- HAVING count(*) > 0
-- UNION ALL
-- SELECT format('left out: {} of {} attempts, which have no time', count(*) FILTER (first_ts IS NULL),
--   count(*))
-- FROM runs HAVING count(*) FILTER (first_ts IS NULL) > 0
-- UNION ALL
-- SELECT 'patterns were chosen on the runs that judge them: give judge_from, or the pattern and since'
-- FROM runs HAVING count(*) > 0 AND $pattern IS NULL AND $judge_from IS NULL
-- """
-- [parameters.pattern]
-- type = "VARCHAR"
-- description = "Signatures, failures, roles or printed levels, comma-separated, the announced one last"
-- [parameters.window_s]
-- type = "DOUBLE"
-- default = 1800
-- minimum = 0
-- description = "Longest gap between two of them, seconds; a quarter, half, twice and four times it too"
-- [parameters.unit]
-- type = "VARCHAR"
-- default = "attempt"
-- choices = ["attempt", "host", "line"]
-- description = "What is counted: attempts, hosts of attempts, or lines (ingest with --every-match)"
-- [parameters.judge_from]
-- type = "TIMESTAMP"
-- description = "Choose patterns on attempts before this time (UTC), count those from it on"
-- [parameters.min_fired]
-- type = "BIGINT"
-- default = 10
-- minimum = 1
-- description = "An alarm that rang in fewer units is too rare to judge"
-- [parameters.min_margin]
-- type = "BIGINT"
-- default = 5
-- minimum = 1
-- description = "Patterns are tested whose alarm and whose end are in so many units"
-- [parameters.min_lead_s]
-- type = "DOUBLE"
-- default = 60
-- minimum = 0
-- description = "An alarm whose median lead is shorter comes too late, seconds"
-- [parameters.limit]
-- type = "BIGINT"
-- default = 20
-- minimum = 0
-- description = "At most this many patterns; 0 lists all"
-- [columns]
-- pattern = "Signatures in their order, comma-separated as the parameter takes them"
-- origin = "given; edge: a cause and its effect that the catalogue knows; mined: a warning and an error"
-- window_s = "Longest gap between two of them, seconds"
-- n_units = "Units looked at, healthy ones too"
-- fired = "Units with all but the last: the alarm rang"
-- hits = "Those where the last followed within the window"
-- precision = "hits / fired"
-- lo = "Its lower 95 % limit (Wilson)"
-- hi = "Its upper 95 % limit"
-- ended = "Units with the last one"
-- recall = "hits / ended"
-- false_alarms = "fired - hits"
-- false_alarms_per_unit = "false_alarms / n_units"
-- false_alarms_per_kgpuh = "False alarms per 1000 GPU-hours; NULL without exposure"
-- gpu_hours = "GPU-hours of the units with GPUs and times"
-- exposure_source = "Where GPUs and times come from: sacct, k8s, csv, log, mixed; none: unknown"
-- lead_p10_s = "Seconds from the alarm to the last one: a tenth of the hits have less"
-- lead_p50_s = "Median of that"
-- lead_p90_s = "A tenth of the hits have more"
-- base_rate = "ended / n_units: how often it happens anyway"
-- lift = "precision / base_rate"
-- fisher_p = "Fisher's exact test, one-sided: more hits than chance"
-- q = "False discovery rate over all rows tested here; NULL where too rare to test"
-- verdict = "alert, too_late (lead), not_distinguishable (from chance), too_rare"
WITH RECURSIVE windows AS (
  SELECT unnest(CASE WHEN $window_s > 0 THEN [1, 0.25, 0.5, 2, 4] ELSE [1] END) AS factor,
    factor * $window_s AS window_s
), runs AS MATERIALIZED (
  SELECT attempt_id, hosts, coalesce(source, 'log') AS source, t_about,
    gpus * seconds_between(first_ts, last_ts) / 3600 AS gpu_h
  FROM attempt_spans
  WHERE (files > 0 OR NOT EXISTS (FROM files)) AND first_ts IS NOT NULL
    AND asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
    AND within(t_about, $since, $until)
), units AS MATERIALIZED (
  SELECT unit, $judge_from IS NULL OR t_about < $judge_from AS tuning,
    $judge_from IS NULL OR t_about >= $judge_from AS judging
  FROM (
    SELECT attempt_id AS unit, t_about FROM runs WHERE $unit = 'attempt'
    UNION ALL
    SELECT hash(attempt_id, unnest(hosts)), t_about FROM runs WHERE $unit = 'host')
), exposure AS (
  SELECT sum(gpu_h) AS gpu_hours,
    CASE WHEN count(gpu_h) = 0 THEN 'none'
      WHEN count(DISTINCT source) FILTER (gpu_h IS NOT NULL) > 1 THEN 'mixed'
      ELSE any_value(source) FILTER (gpu_h IS NOT NULL) END AS exposure_source
  FROM runs
  WHERE $unit <> 'line' AND ($judge_from IS NULL OR t_about >= $judge_from)
), population AS (
  SELECT CASE WHEN $unit = 'line' THEN (
      SELECT coalesce(sum(lines), 0) FROM live_files
      WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
        AND within(coalesce(last_ts, mtime), $since, $until)
        AND ($judge_from IS NULL OR coalesce(last_ts, mtime) >= $judge_from))
    ELSE count(*) FILTER (judging) END::BIGINT AS n_units
  FROM units
), hits AS MATERIALIZED (  -- k orders them: time, then line; what is on one line does not follow
  SELECT e.unit, e.signature, e.failure, e.role, lower(e.level) AS level, e.stage,
    coalesce(epoch_us(e.t0) / 1e6, 0) AS t,
    coalesce(epoch_us(e.t0), 0)::HUGEINT * 1099511627776 + e.line_no AS k,
    coalesce(u.tuning, true) AS tuning, coalesce(u.judging, true) AS judging
  FROM (
    SELECT *,
      CASE $unit WHEN 'line' THEN hash(file_id, line_no)
        WHEN 'host' THEN CASE WHEN host IS NOT NULL THEN hash(attempt_id, host) END
        ELSE attempt_id END AS unit,
      CASE WHEN role IN ('cause', 'confirmation', 'collateral') AND NOT is_noise(role, severity)
          THEN 3
        WHEN role = 'context' AND (severity <> 'info' OR level IN ('warn', 'error', 'fatal')) THEN 2
        WHEN role IN ('context', 'progress') AND failure <> 'training-step' THEN 1 ELSE 0 END
        AS stage
    FROM placed_events
    WHERE ($unit = 'line' OR t0 IS NOT NULL) AND asked(cluster, $cluster)
      AND asked(coalesce(job, run), $job)
      AND ($unit <> 'line' OR (within(t_about, $since, $until)
        AND ($judge_from IS NULL OR t_about >= $judge_from)))) AS e
  LEFT JOIN units AS u ON u.unit = e.unit
  WHERE (u.unit IS NOT NULL OR $unit = 'line') AND ($pattern IS NOT NULL OR e.stage > 0)
), seen AS MATERIALIZED (
  SELECT unit, signature, any_value(failure) AS failure, max(stage) AS stage, min(k) AS first_k,
    max(k) AS last_k
  FROM hits WHERE tuning AND $pattern IS NULL AND $unit <> 'line' GROUP BY unit, signature
), names AS (
  SELECT signature, any_value(failure) AS failure, max(stage) AS stage, count(*) AS n
  FROM seen GROUP BY signature HAVING count(*) >= $min_margin
  QUALIFY row_number() OVER (PARTITION BY max(stage) ORDER BY count(*) DESC, signature) <= 50
), pairs AS (  -- chosen by how often each is seen, never by how often together
  SELECT a.signature AS a, b.signature AS b, p.cause IS NOT NULL AS known
  FROM names AS a JOIN names AS b ON b.stage = 3 AND b.signature <> a.signature
  LEFT JOIN precedence AS p ON p.cause = a.failure AND p.effect = b.failure
  WHERE a.stage = 2 OR (p.cause IS NOT NULL AND a.failure <> b.failure)
), prefixes AS (  -- two in a row that say more than the second alone
  SELECT x.signature AS x, y.signature AS y, count(*) AS n
  FROM seen AS x JOIN seen AS y ON y.unit = x.unit AND y.stage = 2 AND x.stage IN (1, 2)
    AND x.signature <> y.signature AND x.first_k < y.last_k
  WHERE x.signature IN (SELECT signature FROM names)
  GROUP BY x.signature, y.signature
  HAVING count(*) >= $min_margin
    AND count(*) < (SELECT n FROM names AS m WHERE m.signature = y.signature)
  ORDER BY n DESC, x, y LIMIT 10
), chosen AS (
  SELECT list_transform(string_split($pattern, ','), lambda x: lower(trim(x))) AS elements,
    'given' AS origin
  WHERE contains($pattern, ',')
  UNION ALL
  SELECT [a, b], CASE WHEN known THEN 'edge' ELSE 'mined' END FROM pairs
  UNION ALL
  SELECT [f.x, f.y, p.b], 'mined' FROM prefixes AS f JOIN pairs AS p ON p.a = f.y WHERE p.b <> f.x
), patterns AS MATERIALIZED (
  SELECT elements, origin, hash(elements) AS id, elements[:-2] AS alarm, hash(elements[:-2])
    AS prefix, elements[-1] AS last
  FROM chosen
), occurrences AS MATERIALIZED (
  SELECT h.unit, h.signature AS element, h.k, h.t FROM hits AS h
  WHERE h.judging AND $pattern IS NULL
    AND h.signature IN (SELECT unnest(elements) FROM patterns)
  UNION
  SELECT h.unit, u.element, h.k, h.t
  FROM (FROM hits WHERE judging) AS h
  JOIN (SELECT DISTINCT unnest(elements) AS element FROM patterns WHERE $pattern IS NOT NULL) AS u
    ON u.element IN (lower(h.signature), lower(h.failure), h.role, h.level)
), steps AS MATERIALIZED (
  SELECT p.prefix, p.n, o.unit, o.k, o.t
  FROM (SELECT DISTINCT prefix, unnest(alarm) AS element, generate_subscripts(alarm, 1) AS n
    FROM patterns) AS p
  JOIN occurrences AS o ON o.element = p.element
), reach AS (  -- from each first one to the next of the second, and on from there
  SELECT *, 0::DOUBLE AS widest FROM steps WHERE n = 1
  UNION ALL
  SELECT prefix, n + 1, unit, next.k, next.t, greatest(widest, next.t - t)
  FROM (
    SELECT *, min(CASE WHEN coming THEN {'k': k, 't': t} END) OVER (
      PARTITION BY prefix, unit, n ORDER BY k, coming = ($unit = 'line')
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next
    FROM (
      SELECT *, false AS coming FROM reach
      UNION ALL
      SELECT prefix, n - 1, unit, k, t, 0, true FROM steps
      WHERE n = (SELECT max(n) + 1 FROM reach)))
  WHERE NOT coming AND next IS NOT NULL
), alarms AS MATERIALIZED (
  SELECT prefix, unit, k, any_value(t) AS t, min(widest) AS widest
  FROM reach JOIN (SELECT DISTINCT prefix, len(alarm) AS n FROM patterns) USING (prefix, n)
  GROUP BY prefix, unit, k
), rang AS (
  SELECT prefix, window_s, count(*) AS fired
  FROM (SELECT prefix, unit, min(widest) AS widest FROM alarms GROUP BY prefix, unit)
  JOIN windows ON widest <= window_s GROUP BY prefix, window_s
), ends AS (
  SELECT unit, element, max(k) AS last_k FROM occurrences
  WHERE element IN (SELECT last FROM patterns) GROUP BY unit, element
), answered AS (
  SELECT r.id, r.unit, r.k, greatest(r.widest, o.t - r.t) AS widest, o.t - r.t AS lead
  FROM (
    SELECT p.id, p.last, a.*, a.k - ($unit = 'line')::INTEGER AS after
    FROM patterns AS p JOIN alarms AS a ON a.prefix = p.prefix
    JOIN ends AS e ON e.unit = a.unit AND e.element = p.last AND e.last_k >= a.k) AS r
  ASOF JOIN occurrences AS o ON o.unit = r.unit AND o.element = r.last AND o.k > r.after
), hit AS (
  SELECT id, window_s, count(*) AS hits, quantile_cont(lead, 0.1) AS lead_p10_s,
    median(lead) AS lead_p50_s, quantile_cont(lead, 0.9) AS lead_p90_s
  FROM (
    SELECT id, window_s, unit, arg_min(lead, k) AS lead
    FROM answered JOIN windows ON widest <= window_s GROUP BY id, window_s, unit)
  GROUP BY id, window_s
), counted AS (
  SELECT p.elements, p.origin, w.window_s, w.factor, n_units,
    coalesce(r.fired, 0) AS fired, coalesce(h.hits, 0) AS hits, coalesce(e.n, 0) AS ended,
    h.* EXCLUDE (id, window_s, hits),
    coalesce(fired, 0) >= $min_margin AND ended >= $min_margin AS tested,
    row_number() OVER (ORDER BY p.elements, w.window_s) AS place
  FROM patterns AS p CROSS JOIN windows AS w CROSS JOIN population
  LEFT JOIN rang AS r ON r.prefix = p.prefix AND r.window_s = w.window_s
  LEFT JOIN hit AS h ON h.id = p.id AND h.window_s = w.window_s
  LEFT JOIN (SELECT element, count(*) AS n FROM ends GROUP BY element) AS e ON e.element = p.last
), tailed AS (
  SELECT *, fisher_greater(hits, fired - hits, ended - hits, n_units - fired - ended + hits)
    AS fisher_p
  FROM counted WHERE n_units > 0 AND ($pattern IS NOT NULL OR ended > 0)
), adjusted AS (
  SELECT unnest(places) AS place, unnest(bh_q(ps)) AS q
  FROM (
    SELECT list(place ORDER BY place) AS places, list(fisher_p ORDER BY place) AS ps
    FROM tailed WHERE tested)
), judged AS (
  SELECT *, hits / nullif(fired, 0) AS precision, wilson_lo(hits, fired) AS lo,
    wilson_hi(hits, fired) AS hi, ended / n_units AS base_rate,
    min((factor <> 1, coalesce(q, 2), fisher_p)) OVER (PARTITION BY elements) AS best
  FROM tailed LEFT JOIN adjusted USING (place)
)
SELECT array_to_string(elements, ',') AS pattern, origin, window_s, n_units, fired, hits, precision,
  lo, hi, ended, hits / nullif(ended, 0) AS recall, fired - hits AS false_alarms,
  (fired - hits) / n_units AS false_alarms_per_unit,
  1000 * (fired - hits) / nullif(gpu_hours, 0) AS false_alarms_per_kgpuh, gpu_hours,
  exposure_source, lead_p10_s, lead_p50_s, lead_p90_s, base_rate,
  precision / nullif(base_rate, 0) AS lift, fisher_p, q,
  CASE WHEN fired < $min_fired OR NOT tested THEN 'too_rare'
    WHEN lo <= 2 * base_rate OR q >= 0.05 THEN 'not_distinguishable'
    WHEN lead_p50_s < $min_lead_s THEN 'too_late' ELSE 'alert' END AS verdict
FROM judged CROSS JOIN exposure
WHERE $failure IS NULL OR elements[-1] = lower($failure)
  OR elements[-1] IN (SELECT lower(signature) FROM hits WHERE failure = $failure)
QUALIFY $limit = 0 OR dense_rank() OVER (ORDER BY best, elements) <= $limit
ORDER BY best, elements, factor <> 1, window_s
