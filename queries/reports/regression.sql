-- title = "Regression check"
-- order = 60
-- description = """
-- Is a failure gone since a change, or did it just not have the chance? Occurrences against
-- exposure before and after, by the exact conditional test. Exposure is what can trigger it: for
-- failures of checkpoints the lines that begin one, else attempts, unless `trigger` says more.
-- `gone` needs enough exposure, and a control group in which the failure did not vanish as well.
-- """
-- brief = ["failure", "verdict", "k0", "e0", "k1", "e1", "unit", "p", "p_detect",
--   "exposure_needed_conservative", "upper95_ratio"]
-- note = """
-- SELECT CASE
--   WHEN $change IS NULL THEN
--     'give -p change=2026-03-01T12:00 or -p "change=deepspeed >= 0.18.0": without, there is no row'
--   WHEN try_cast($change AS TIMESTAMP) IS NULL AND NOT regexp_matches($change,
--       '^\\s*[A-Za-z][\\w.-]*\\s*(>=|<=|==|!=|=|>|<)\\s*[vV]?[0-9][\\w.+-]*\\s*$') THEN
--     'change is neither a time (2026-03-01T12:00) nor a comparison (deepspeed >= 0.18.0): no row'
-- END
-- """
-- [parameters.change]
-- type = "VARCHAR"
-- description = "When or what changed: a time (UTC), or NAME OPERATOR VERSION as in deepspeed >= 0.18.0"
-- [parameters.signature]
-- type = "VARCHAR"
-- description = "Count only what this signature matched"
-- [parameters.trigger]
-- type = "VARCHAR"
-- default = "auto"
-- description = "Unit of exposure: auto, checkpoint-begin (lines), save (each once, of many ranks), attempt, gpu-hour, or any failure or signature whose lines count"
-- [parameters.control]
-- type = "VARCHAR"
-- description = "A cluster that did not get the change; by default attempts of the same time on other versions"
-- [parameters.window_s]
-- type = "DOUBLE"
-- default = 300
-- minimum = 0
-- description = "Lines of one attempt closer than this are one occurrence, seconds"
-- [parameters.alpha]
-- type = "DOUBLE"
-- default = 0.05
-- minimum = 0.0001
-- description = "Level of the test, and of the limits"
-- [columns]
-- failure = "Failure"
-- signature = "Signature asked for"
-- change_id = "The change asked about"
-- change_ts = "Its time, UTC; of a version the first attempt that has it"
-- k0 = "Occurrences before"
-- e0 = "Exposure before"
-- k1 = "Occurrences after"
-- e1 = "Exposure after"
-- unit = "Unit of exposure"
-- rate0 = "k0 / e0"
-- rate1 = "k1 / e1"
-- ratio = "rate1 / rate0"
-- p = "How probable as few after are if nothing changed"
-- upper95_ratio = "Upper limit of the rate after, over rate0"
-- exposure_needed = "Exposure without any that would prove it gone"
-- exposure_needed_conservative = "The same at the lower limit of rate0: for those who look daily"
-- p_detect = "Chance that it would have shown in e1 at rate0"
-- control_k0 = "Occurrences in the control group before"
-- control_e0 = "Exposure of the control group before"
-- control_k = "Occurrences in the control group after"
-- control_e = "Exposure of the control group after"
-- ratio_of_ratios = "Ratio against that of the control group, 1/2 added to each count"
-- verdict = "gone, not_enough_exposure, reduced, still_present, not_distinguishable (gone in the control group too)"
-- unknown_k = "Occurrences that are on neither side, such as in attempts without a known version"
-- unknown_e = "Exposure that is on neither side"
-- exposure_source = "jobs, log, mixed; none where there is no exposure"
-- state_log_share = "Share of the attempts whose outcome is inferred from logs"
WITH asked_for AS (
  SELECT *, CASE lower(test.name) WHEN 'pytorch' THEN 'torch' ELSE lower(test.name) END AS component
  FROM (
    SELECT try_cast($change AS TIMESTAMP) AS at, $change AS change_id, regexp_extract($change,
      '^\s*([A-Za-z][\w.-]*?)(?:[_-]version)?\s*(>=|<=|==|!=|=|>|<)\s*([vV]?[0-9][\w.+-]*)\s*$',
      ['name', 'operator', 'version']) AS test)
), versions AS MATERIALIZED (
  SELECT v.attempt_id, version_is(v.version, c.test.operator, c.test.version) AS fixed
  FROM run_versions AS v JOIN asked_for AS c
    ON c.at IS NULL AND c.test.version <> '' AND v.component = c.component
), runs AS MATERIALIZED (
  SELECT a.attempt_id, a.cluster, coalesce(a.first_ts, a.t_about) AS t, a.first_ts, a.last_ts,
    a.gpus, v.fixed, a.state_source,
    $control IS NOT NULL AND coalesce(a.cluster, '') = $control AS of_control
  FROM attempts AS a LEFT JOIN versions AS v USING (attempt_id)
  WHERE asked(coalesce(a.job, a.run), $job) AND within(a.t_about, $since, $until)
    AND (asked(a.cluster, $cluster) OR a.cluster = $control)
), changed AS MATERIALIZED (
  SELECT c.change_id, c.at IS NOT NULL AS by_time,
    coalesce(c.at, (SELECT min(t) FROM runs WHERE fixed AND NOT of_control)) AS change_ts
  FROM asked_for AS c WHERE c.at IS NOT NULL OR c.test.version <> ''
), told AS MATERIALIZED (
  SELECT e.failure, e.signature, e.role, e.category, e.attempt_id, e.cluster, e.host, e.rank,
    coalesce(e.t0, e.t_about) AS t, e.repeats, r.fixed, r.t AS started,
    r.attempt_id IS NOT NULL AS placed,
    $control IS NOT NULL AND coalesce(e.cluster, '') = $control AS of_control
  FROM placed_events AS e LEFT JOIN runs AS r ON r.attempt_id = e.attempt_id
  WHERE EXISTS (FROM changed) AND (e.attempt_id IS NULL OR r.attempt_id IS NOT NULL)
    AND (e.failure = 'checkpoint-begin' OR $trigger IN (e.failure, e.signature)
      OR (asked(e.failure, $failure) AND asked(e.signature, $signature)
        AND ($signature IS NOT NULL OR e.role IN ('cause', 'confirmation', 'collateral'))))
    AND (e.attempt_id IS NOT NULL OR (
      $job IS NULL AND within(e.t_about, $since, $until)
      AND (asked(e.cluster, $cluster) OR e.cluster = $control)))
), parts AS (  -- of exposure, split at the change
  SELECT 'attempt' AS unit, t, fixed, of_control, 1.0 AS n FROM runs
  UNION ALL
  SELECT 'gpu-hour', first_ts, fixed, of_control,
    gpus * seconds_between(first_ts, least(last_ts, coalesce(change_ts, last_ts))) / 3600
  FROM runs CROSS JOIN changed WHERE first_ts < coalesce(change_ts, 'infinity'::TIMESTAMP)
  UNION ALL
  SELECT 'gpu-hour', change_ts, fixed, of_control,
    gpus * seconds_between(greatest(first_ts, change_ts), last_ts) / 3600
  FROM runs CROSS JOIN changed WHERE last_ts >= change_ts
  UNION ALL
  SELECT 'checkpoint-begin', t, fixed, of_control, repeats FROM told
  WHERE failure = 'checkpoint-begin' AND placed
  UNION ALL
  SELECT $trigger, t, fixed, of_control, repeats FROM told
  WHERE $trigger IN (failure, signature) AND $trigger <> 'checkpoint-begin' AND placed
  UNION ALL
  SELECT 'save', t, fixed, of_control, n
  FROM (
    SELECT attempt_id, min(t) AS t, any_value(fixed) AS fixed, any_value(of_control) AS of_control,
      sum(repeats) AS n
    FROM told CROSS JOIN changed WHERE failure = 'checkpoint-begin' AND placed
    GROUP BY attempt_id, signature, host, rank, told.t >= change_ts)
  QUALIFY row_number() OVER (PARTITION BY attempt_id, t >= (SELECT change_ts FROM changed)
    ORDER BY n DESC, t) = 1
), exposed AS (
  SELECT unit,
    sum(n) FILTER (NOT side) AS e0, sum(n) FILTER (side) AS e1,
    sum(n) FILTER (NOT control_side) AS control_e0, sum(n) FILTER (control_side) AS control_e,
    sum(n) FILTER (side IS NULL AND NOT of_control) AS unknown_e
  FROM (
    SELECT unit, n, of_control,
      CASE WHEN of_control THEN NULL WHEN by_time THEN t >= change_ts ELSE fixed END AS side,
      CASE WHEN of_control THEN t >= change_ts
        WHEN NOT by_time AND $control IS NULL AND NOT fixed THEN t >= change_ts END AS control_side
    FROM parts CROSS JOIN changed)
  GROUP BY unit
), units AS (  -- of what occurred, and of what was asked for and never did
  SELECT failure, CASE WHEN $trigger <> 'auto' THEN $trigger
    WHEN any_value(category) = 'checkpoint' THEN 'checkpoint-begin' ELSE 'attempt' END AS unit
  FROM (
    SELECT DISTINCT failure, category FROM told
    WHERE asked(failure, $failure) AND asked(signature, $signature)
      AND ($signature IS NOT NULL OR role IN ('cause', 'confirmation', 'collateral'))
    UNION ALL
    SELECT failure, category FROM failures
    WHERE EXISTS (FROM changed) AND (failure = $failure OR ($failure IS NULL AND failure = (
      SELECT failure FROM signatures WHERE signature = $signature))))
  GROUP BY failure
), hits AS (
  SELECT failure, coalesce(attempt_id, hash(cluster, host)) AS place, min(t) AS t,
    any_value(started) AS started, any_value(fixed) AS fixed, any_value(of_control) AS of_control
  FROM told
  WHERE asked(failure, $failure) AND asked(signature, $signature)
    AND ($signature IS NOT NULL OR role IN ('cause', 'confirmation', 'collateral'))
  GROUP BY failure, place, floor(epoch(told.t) / 60)
), occurred AS (  -- the first of each episode; of attempts one counts, however often it occurs
  FROM hits JOIN units USING (failure)
  WINDOW w AS (PARTITION BY failure, place ORDER BY t)
  QUALIFY coalesce(seconds_between(lag(t) OVER w, t) > $window_s, lag(place) OVER w IS NULL)
    AND (unit <> 'attempt' OR row_number() OVER w = 1)
), counted AS (
  SELECT u.failure, u.unit,
    count(*) FILTER (NOT side) AS k0, count(*) FILTER (side) AS k1,
    count(*) FILTER (NOT control_side) AS control_k0, count(*) FILTER (control_side) AS control_k,
    count(o.failure) FILTER (side IS NULL AND NOT of_control) AS unknown_k
  FROM units AS u LEFT JOIN (
    SELECT failure, of_control,
      CASE WHEN unit = 'attempt' THEN coalesce(started, t) ELSE t END AS counted_t,
      CASE WHEN of_control THEN NULL WHEN by_time THEN counted_t >= change_ts ELSE fixed END
        AS side,
      CASE WHEN of_control THEN counted_t >= change_ts
        WHEN NOT by_time AND $control IS NULL AND NOT fixed THEN counted_t >= change_ts END
        AS control_side
    FROM occurred CROSS JOIN changed) AS o USING (failure)
  GROUP BY u.failure, u.unit
), rated AS (
  SELECT k.failure, k.unit, k0, coalesce(e0, 0)::DOUBLE AS e0, k1, coalesce(e1, 0)::DOUBLE AS e1,
    nullif(e0, 0) AS some0, nullif(e1, 0) AS some1, k0 / some0 AS rate0, k1 / some1 AS rate1,
    CASE WHEN some0 IS NOT NULL AND some1 IS NOT NULL
      THEN binomial_le(k1, k0 + k1, some1 / (some0 + some1)) END AS p,
    poisson_hi(k1, 2 * $alpha) / some1 AS upper1,
    -ln($alpha) / nullif(rate0, 0) AS exposure_needed,
    -ln($alpha) / nullif(poisson_lo(k0, 2 * $alpha) / some0, 0) AS exposure_needed_conservative,
    1 - exp(-rate0 * coalesce(some1, 0)) AS p_detect,
    CASE WHEN control_e > 0 OR control_e0 > 0 THEN control_k0 END AS control_k0, control_e0,
    CASE WHEN control_e > 0 OR control_e0 > 0 THEN control_k END AS control_k, control_e,
    ((k1 + 0.5) / some1) / ((k0 + 0.5) / some0) AS treated_ratio,
    ((control_k + 0.5) / nullif(control_e, 0)) / ((control_k0 + 0.5) / nullif(control_e0, 0))
      AS control_ratio,
    unknown_k, coalesce(unknown_e, 0) AS unknown_e
  FROM counted AS k LEFT JOIN exposed AS e USING (unit)
), known AS (
  SELECT count(*) FILTER (state_source = 'log') / count(*) AS state_log_share,
    CASE WHEN count(*) = 0 THEN 'none' WHEN state_log_share = 1 THEN 'log'
      WHEN state_log_share = 0 THEN 'jobs' ELSE 'mixed' END AS source
  FROM runs
)
SELECT failure, $signature AS signature, change_id, change_ts, k0, e0, k1, e1, unit, rate0, rate1,
  rate1 / nullif(rate0, 0) AS ratio, p, upper1 / nullif(rate0, 0) AS upper95_ratio,
  exposure_needed, exposure_needed_conservative, p_detect,
  control_k0, control_e0::DOUBLE AS control_e0, control_k, control_e::DOUBLE AS control_e,
  treated_ratio / control_ratio AS ratio_of_ratios,
  CASE WHEN k1 = 0 AND p <= $alpha
      AND control_k = 0 AND coalesce(1 - exp(-rate0 * control_e) >= 1 - $alpha, false)
      THEN 'not_distinguishable'
    WHEN k1 = 0 AND p <= $alpha THEN 'gone'
    WHEN k1 = 0 THEN 'not_enough_exposure'
    WHEN p <= $alpha THEN 'reduced'
    ELSE 'still_present' END AS verdict,
  unknown_k, unknown_e::DOUBLE AS unknown_e,
  CASE WHEN some0 IS NULL AND some1 IS NULL THEN 'none' WHEN unit IN ('attempt', 'gpu-hour')
    THEN known.source ELSE 'log' END AS exposure_source,
  known.state_log_share
FROM rated CROSS JOIN changed CROSS JOIN known
ORDER BY list_position(['still_present', 'reduced', 'not_distinguishable', 'not_enough_exposure',
  'gone'], verdict), p, failure
