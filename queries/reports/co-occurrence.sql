-- title = "Co-occurrence"
-- order = 5
-- chart = { kind = "heatmap", x = "a", y = "b", value = "lift", mask = "q", title = "Lift of pairs; empty: not found at a false discovery rate of 5 %" }
-- description = """
-- Which failures come together more often than chance, and which of the two comes first. Units
-- without any failure count too: without healthy runs association is invented or hidden. Pairs
-- are a < b; q is Benjamini-Hochberg over the pairs tested here (both in 5 units or more). A pair
-- that is associated only because some clusters or sizes have more of both is confounded; attempts
-- of one run are not independent: what runs do not show is not reported.
-- """
-- brief = ["a", "b", "n11", "lift", "q", "verdict", "direction", "odds_ratio", "delta_median_s"]
-- [parameters.unit]
-- type = "VARCHAR"
-- default = "attempt"
-- choices = ["attempt", "run", "host-day", "incident"]
-- description = "What a and b occur in; incidents leave out the healthy, so read them with care"
-- [parameters.roles]
-- type = "VARCHAR"
-- default = "causes"
-- choices = ["causes", "all"]
-- description = "Pair failures seen as cause or as context worse than info; all adds collateral"
-- [parameters.buckets]
-- type = "NUMBERS"
-- default = "1,8,64,512,4096"
-- minimum = 1
-- description = "Upper bounds of the sizes, GPUs, that attempts and runs are compared within"
-- [parameters.limit]
-- type = "BIGINT"
-- default = 0
-- minimum = 0
-- description = "At most this many pairs; 0 lists all"
-- [columns]
-- a = "Failure, first in the alphabet"
-- b = "Failure"
-- n_units = "Units looked at, healthy ones too"
-- n11 = "Units with both"
-- n10 = "Units with a only"
-- n01 = "Units with b only"
-- n00 = "Units with neither"
-- expected = "n11 if they were independent"
-- support = "n11 / n_units"
-- p_b_given_a = "Share of the units with a that have b"
-- p_a_given_b = "Share of the units with b that have a"
-- lift = "n11 / expected"
-- jaccard = "n11 / units with either"
-- phi = "Correlation of the two"
-- odds_ratio = "Odds ratio, 1/2 added to each cell"
-- or_lo = "Its lower 95 % limit"
-- or_hi = "Its upper 95 % limit"
-- fisher_p = "Fisher's exact test, one-sided: more often together than chance"
-- q = "False discovery rate at which it is found; NULL where too rare to test"
-- mh_or = "Odds ratio within clusters and sizes (Mantel-Haenszel); see co-occurrence-by-scale"
-- cmh_p = "Chance of such an association if there is none within them"
-- simpson_flag = "Within clusters and sizes it is another one, or not significant"
-- run_n11 = "Runs with both, where units are attempts"
-- run_fisher_p = "Fisher's exact test over runs"
-- run_q = "False discovery rate of that"
-- verdict = "associated, confounded, not_distinguishable, too_rare, negative, alias"
-- same_line_share = "Share of n11 where both are the same line, or 1 s apart on one rank"
-- delta_median_s = "Median of b's first time less a's, seconds"
-- delta_q25_s = "Its lower quartile"
-- delta_q75_s = "Its upper quartile"
-- a_first = "Units where a came first"
-- b_first = "Units where b came first"
-- ties = "Units where they are within 2 s"
-- sign_p = "Two-sided sign test of a_first against b_first"
-- direction = "What comes first, where the sign test says so and it does in 70 % of the units"
-- role_a = "Strongest role that a was seen in"
-- role_b = "Strongest role that b was seen in"
-- edge = "What the catalogue knows to cause the other"
-- edge_scope = "Where that effect shows"
-- edge_lag_lo_s = "Its shortest lag, seconds"
-- edge_lag_hi_s = "Its longest lag, seconds"
-- edge_basis = "What that knowledge rests on"
-- example_units = "Up to three units with both"
WITH population AS MATERIALIZED (
  SELECT CASE WHEN $unit = 'run' THEN hash(cluster, run) ELSE attempt_id END AS unit,
    any_value(hash(cluster, run)) AS run_key,
    hash(any_value(cluster), scale_bucket(max(gpus), $buckets)) AS stratum
  FROM attempts
  WHERE $unit IN ('attempt', 'run') AND (files > 0 OR NOT EXISTS (FROM files))
    AND asked(cluster, $cluster) AND asked(coalesce(job, run), $job) AND within(t_about, $since, $until)
    AND ($unit = 'attempt' OR run IS NOT NULL)
  GROUP BY unit
  UNION
  SELECT hash(cluster, host, day), NULL, NULL
  FROM (
    SELECT cluster, host, unnest(generate_series(
      date_trunc('day', first_ts), date_trunc('day', last_ts), INTERVAL 1 DAY))::DATE AS day
    FROM (
      SELECT cluster, unnest(hosts) AS host, first_ts, last_ts, coalesce(job, run) AS job
      FROM attempts WHERE files > 0
      UNION ALL
      SELECT cluster, host, first_ts, last_ts, coalesce(job, run) FROM live_files
      UNION ALL
      SELECT cluster, host, min(t0), max(t0), coalesce(job, run) FROM placed_events
      GROUP BY cluster, host, coalesce(job, run), t0::DATE)
    WHERE $unit = 'host-day' AND host IS NOT NULL AND first_ts IS NOT NULL
      AND asked(cluster, $cluster) AND asked(job, $job))
  WHERE within(day, $since, $until)
  UNION
  SELECT incident_id, NULL, NULL FROM incidents
  WHERE $unit = 'incident' AND asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
    AND within(t_about, $since, $until)
), hits AS MATERIALIZED (
  SELECT CASE $unit WHEN 'run' THEN hash(e.cluster, e.run)
      WHEN 'host-day' THEN hash(e.cluster, e.host, e.t0::DATE)
      WHEN 'incident' THEN i.incident_id ELSE e.attempt_id END AS unit,
    CASE $unit WHEN 'run' THEN concat_ws('/', e.cluster, e.run)
      WHEN 'host-day' THEN concat_ws('/', e.cluster, e.host, e.t0::DATE)
      WHEN 'incident' THEN i.incident_id::VARCHAR
      ELSE concat_ws('/', e.cluster, e.run, e.attempt) END AS label,
    e.failure, e.t0, e.file_id, e.line_no, e.rank, e.role_no, e.ts IS NOT NULL AS stamped
  FROM pairable_events($roles) AS e
  LEFT JOIN (
    SELECT event_id, incident_id FROM incident_members WHERE $unit = 'incident'
  ) AS i USING (event_id)
  WHERE NOT ($unit = 'host-day' AND (e.host IS NULL OR e.t0 IS NULL))
    AND NOT ($unit = 'run' AND e.run IS NULL)
), present AS MATERIALIZED (
  SELECT unit, failure, min(t0) AS t, min(role_no) AS role_no, any_value(label) AS label,
    any_value(p.run_key) AS run_key, any_value(p.stratum) AS stratum,
    arg_min(file_id, (t0 IS NULL, t0, file_id, line_no)) AS file_id,
    arg_min(line_no, (t0 IS NULL, t0, file_id, line_no)) AS line_no
  FROM hits JOIN population AS p USING (unit) GROUP BY unit, failure
), margins AS MATERIALIZED (
  SELECT failure, count(*) AS n, min(role_no) AS role_no FROM present GROUP BY failure
), together AS MATERIALIZED (
  SELECT a.failure AS a, b.failure AS b, a.unit, a.label, a.run_key, a.stratum,
    CASE WHEN a.t IS NOT NULL AND b.t IS NOT NULL THEN seconds_between(a.t, b.t) END AS delta,
    CASE WHEN (a.t IS NULL OR b.t IS NULL) AND a.file_id = b.file_id
      THEN sign(b.line_no - a.line_no) END AS line_order
  FROM present AS a JOIN present AS b ON b.unit = a.unit AND a.failure < b.failure
  WHERE $failure IS NULL OR a.failure = $failure OR b.failure = $failure
), moments AS (  -- by the clock: what lines without a time stand between says nothing here
  SELECT unit, failure, rank, min(t0) AS t FROM hits WHERE rank IS NOT NULL AND stamped GROUP BY ALL
), same AS (
  SELECT DISTINCT a.failure AS a, b.failure AS b, a.unit
  FROM hits AS a JOIN hits AS b
    ON b.unit = a.unit AND b.file_id = a.file_id AND b.line_no = a.line_no AND a.failure < b.failure
  UNION
  SELECT a.failure, b.failure, a.unit
  FROM moments AS a JOIN moments AS b
    ON b.unit = a.unit AND b.rank = a.rank AND a.failure < b.failure
    AND abs(seconds_between(a.t, b.t)) <= 1
), paired AS (
  SELECT t.a, t.b, count(*) AS n11, count(s.unit) / count(*) AS same_line_share,
    median(t.delta) AS delta_median_s, quantile_cont(t.delta, 0.25) AS delta_q25_s,
    quantile_cont(t.delta, 0.75) AS delta_q75_s,
    count(*) FILTER (t.delta > 2 OR t.line_order > 0) AS a_first,
    count(*) FILTER (t.delta < -2 OR t.line_order < 0) AS b_first,
    count(*) FILTER (abs(t.delta) <= 2 OR t.line_order = 0) AS ties,
    (list(t.label ORDER BY t.label))[1:3] AS example_units
  FROM together AS t
  LEFT JOIN same AS s ON s.a = t.a AND s.b = t.b AND s.unit = t.unit
  GROUP BY t.a, t.b
), crossed AS MATERIALIZED (
  SELECT a.failure AS a, b.failure AS b, u.n_units,
    coalesce(p.n11, 0) AS n11, a.n - coalesce(p.n11, 0) AS n10, b.n - coalesce(p.n11, 0) AS n01,
    n_units - a.n - b.n + coalesce(p.n11, 0) AS n00, a.n AS n1, b.n AS m1,
    ['cause', 'confirmation', 'context', 'collateral'][a.role_no] AS role_a,
    ['cause', 'confirmation', 'context', 'collateral'][b.role_no] AS role_b,
    p.* EXCLUDE (a, b, n11),
    a.n >= 5 AND b.n >= 5 AS tested,
    row_number() OVER (ORDER BY a.failure, b.failure) AS pair
  FROM margins AS a JOIN margins AS b ON a.failure < b.failure
  CROSS JOIN (SELECT count(*) AS n_units FROM population) AS u
  LEFT JOIN paired AS p ON p.a = a.failure AND p.b = b.failure
  WHERE $failure IS NULL OR a.failure = $failure OR b.failure = $failure
), strata AS (
  SELECT stratum, count(*) AS n FROM population WHERE stratum IS NOT NULL GROUP BY stratum
), stratum_margins AS (
  SELECT stratum, failure, count(*) AS n FROM present GROUP BY ALL
), stratum_pairs AS (
  SELECT stratum, a, b, count(*) AS n FROM together GROUP BY ALL
), within_strata AS (
  SELECT pair, stratified(list([n11, n1 - n11, m1 - n11, n - n1 - m1 + n11]::DOUBLE[]
    ORDER BY stratum)) AS fit
  FROM (
    SELECT c.pair, s.stratum, s.n, coalesce(a.n, 0) AS n1, coalesce(b.n, 0) AS m1,
      coalesce(x.n, 0) AS n11
    FROM (FROM crossed WHERE tested) AS c CROSS JOIN strata AS s
    LEFT JOIN stratum_margins AS a ON a.stratum = s.stratum AND a.failure = c.a
    LEFT JOIN stratum_margins AS b ON b.stratum = s.stratum AND b.failure = c.b
    LEFT JOIN stratum_pairs AS x ON x.stratum = s.stratum AND x.a = c.a AND x.b = c.b)
  GROUP BY pair
), tested_strata AS MATERIALIZED (
  SELECT pair, fit[1] AS mh_or, fit[5] AS strata,
    chi2_sf(fit[2], CASE WHEN fit[5] > 0 THEN 1 END) AS cmh_p
  FROM within_strata
), cmh_adjusted AS (
  SELECT unnest(pairs) AS pair, unnest(bh_q(ps)) AS cmh_q
  FROM (
    SELECT list(pair ORDER BY pair) AS pairs, list(cmh_p ORDER BY pair) AS ps
    FROM tested_strata WHERE cmh_p IS NOT NULL)
), run_margins AS (
  SELECT failure, count(DISTINCT run_key) AS n FROM present GROUP BY failure
), run_pairs AS (
  SELECT a.failure AS a, b.failure AS b, count(*) AS n
  FROM (SELECT DISTINCT run_key, failure FROM present WHERE $unit = 'attempt') AS a
  JOIN (SELECT DISTINCT run_key, failure FROM present WHERE $unit = 'attempt') AS b
    ON b.run_key = a.run_key AND a.failure < b.failure
  GROUP BY ALL
), by_run AS MATERIALIZED (
  SELECT c.pair, coalesce(x.n, 0) AS run_n11, a.n >= 5 AND b.n >= 5 AS run_tested,
    fisher_greater(run_n11, a.n - run_n11, b.n - run_n11, u.n - a.n - b.n + run_n11)
      AS run_fisher_p
  FROM (FROM crossed WHERE tested AND $unit = 'attempt') AS c
  JOIN run_margins AS a ON a.failure = c.a
  JOIN run_margins AS b ON b.failure = c.b
  LEFT JOIN run_pairs AS x ON x.a = c.a AND x.b = c.b
  CROSS JOIN (SELECT count(DISTINCT run_key) AS n FROM population) AS u
), run_adjusted AS (
  SELECT unnest(pairs) AS pair, unnest(bh_q(ps)) AS run_q
  FROM (
    SELECT list(pair ORDER BY pair) AS pairs, list(run_fisher_p ORDER BY pair) AS ps
    FROM by_run WHERE run_tested)
), tailed AS MATERIALIZED (
  SELECT *, fisher_greater(n11, n10, n01, n00) AS fisher_p,
    CASE WHEN tested THEN fisher_less(n11, n10, n01, n00) END AS less_p,
    (n11 + 0.5) * (n00 + 0.5) / ((n10 + 0.5) * (n01 + 0.5)) AS odds_ratio,
    1.959963985 * sqrt(1 / (n11 + 0.5) + 1 / (n10 + 0.5) + 1 / (n01 + 0.5) + 1 / (n00 + 0.5))
      AS or_width
  FROM crossed
), adjusted AS (
  SELECT unnest(pairs) AS pair, unnest(bh_q(ps)) AS q, unnest(bh_q(less_ps)) AS less_q
  FROM (
    SELECT list(pair ORDER BY pair) AS pairs, list(fisher_p ORDER BY pair) AS ps,
      list(less_p ORDER BY pair) AS less_ps
    FROM tailed WHERE tested)
), judged AS (
  SELECT *, n1 * m1 / n_units AS expected, sign_test(a_first, b_first) AS sign_p,
    CASE WHEN n11 * n10 * n01 * n00 > 0 THEN ln(n11::DOUBLE * n00 / (n10::DOUBLE * n01)) END
      AS crude_ln,
    ln(nullif(mh_or, 0)) AS mh_ln,
    CASE WHEN strata IS NOT NULL THEN coalesce(strata > 1 AND (crude_ln * mh_ln < 0
      OR abs(crude_ln - mh_ln) > ln(2) OR (q < 0.05 AND cmh_p > 0.05)), false) END AS simpson_flag
  FROM tailed
  LEFT JOIN adjusted USING (pair)
  LEFT JOIN tested_strata USING (pair)
  LEFT JOIN cmh_adjusted USING (pair)
  LEFT JOIN by_run USING (pair)
  LEFT JOIN run_adjusted USING (pair)
)
SELECT j.a, j.b, n_units, n11, n10, n01, n00, expected,
  n11 / n_units AS support, n11 / n1 AS p_b_given_a, n11 / m1 AS p_a_given_b,
  n11 / expected AS lift, n11 / (n11 + n10 + n01) AS jaccard,
  (n11 * n00 - n10 * n01)
    / nullif(sqrt(n1::DOUBLE * m1 * (n_units - n1) * (n_units - m1)), 0) AS phi,
  odds_ratio, odds_ratio / exp(or_width) AS or_lo, odds_ratio * exp(or_width) AS or_hi,
  fisher_p, q, mh_or, cmh_p, simpson_flag, run_n11, run_fisher_p, run_q,
  CASE WHEN same_line_share > 0.5 THEN 'alias'
    WHEN NOT tested THEN 'too_rare'
    WHEN q < 0.05 AND n11 / expected >= 1.5 AND n11 >= 3 THEN CASE
      WHEN strata > 1 AND NOT coalesce(cmh_q < 0.05 AND coalesce(mh_or > 1, true), false)
        THEN 'confounded'
      WHEN $unit = 'attempt' AND NOT coalesce(run_q < 0.05, false) THEN 'not_distinguishable'
      ELSE 'associated' END
    WHEN less_q < 0.05 THEN 'negative'
    ELSE 'not_distinguishable' END AS verdict,
  same_line_share, delta_median_s, delta_q25_s, delta_q75_s,
  coalesce(a_first, 0) AS a_first, coalesce(b_first, 0) AS b_first, coalesce(ties, 0) AS ties,
  sign_p,
  CASE WHEN sign_p < 0.05 AND a_first >= 0.7 * (a_first + b_first + ties)
      THEN j.a || ' → ' || j.b
    WHEN sign_p < 0.05 AND b_first >= 0.7 * (a_first + b_first + ties)
      THEN j.b || ' → ' || j.a END AS direction,
  role_a, role_b,
  CASE WHEN ab.cause IS NOT NULL AND ba.cause IS NOT NULL THEN 'both'
    WHEN ab.cause IS NOT NULL THEN j.a || ' → ' || j.b
    WHEN ba.cause IS NOT NULL THEN j.b || ' → ' || j.a END AS edge,
  coalesce(ab.scope, ba.scope) AS edge_scope,
  coalesce(ab.lag_lo_s, ba.lag_lo_s) AS edge_lag_lo_s,
  coalesce(ab.lag_hi_s, ba.lag_hi_s) AS edge_lag_hi_s,
  coalesce(ab.basis, ba.basis) AS edge_basis,
  coalesce(example_units, []) AS example_units
FROM judged AS j
LEFT JOIN precedence AS ab ON ab.cause = j.a AND ab.effect = j.b
LEFT JOIN precedence AS ba ON ba.cause = j.b AND ba.effect = j.a
QUALIFY $limit = 0 OR row_number() OVER (ORDER BY q NULLS LAST, phi DESC, j.a, j.b) <= $limit
ORDER BY q NULLS LAST, phi DESC, j.a, j.b
