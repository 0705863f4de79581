-- title = "Co-occurrence by cluster and scale"
-- order = 13
-- description = """
-- Does a pair hold in every cluster and at every size, or only because large jobs have more of
-- everything? Each pair has a pooled row (all units, and all strata together by Mantel and Haenszel)
-- and, where it can be tested, one a stratum. Strata are what was assigned, cluster and GPUs: never
-- what a failure changes, as the length of a run. simpson_flag warns that the whole misleads.
-- """
-- brief = ["row", "a", "b", "cluster", "bucket", "n_units", "n11", "lift", "q", "mh_or", "cmh_p",
--   "simpson_flag", "verdict"]
-- [parameters.unit]
-- type = "VARCHAR"
-- default = "attempt"
-- choices = ["attempt", "run"]
-- description = "What a and b occur in"
-- [parameters.buckets]
-- type = "NUMBERS"
-- default = "1,8,64,512,4096"
-- minimum = 1
-- description = "Upper bounds of the sizes, GPUs; one more bucket lies above the last"
-- [parameters.roles]
-- type = "VARCHAR"
-- default = "causes"
-- choices = ["causes", "all"]
-- description = "Pair failures seen as cause or as context worse than info; all adds collateral"
-- [parameters.limit]
-- type = "BIGINT"
-- default = 0
-- minimum = 0
-- description = "At most this many pairs; 0 lists all"
-- [columns]
-- row = "pooled: the pair; stratum: in one cluster at one size"
-- a = "Failure, first in the alphabet"
-- b = "Failure"
-- cluster = "Cluster of the stratum"
-- bucket = "Its GPUs, from - to; all where there would be more than 200 strata"
-- n_units = "Units looked at, healthy ones too"
-- n11 = "Units with both"
-- n10 = "Units with a only"
-- n01 = "Units with b only"
-- n00 = "Units with neither"
-- lift = "n11 / n11 expected by chance"
-- fisher_p = "Fisher's exact test, one-sided: more often together than chance"
-- q = "False discovery rate, over all strata or all pairs; NULL where too rare to test"
-- crude_or = "Odds ratio of all units; NULL where a cell is empty"
-- mh_or = "Odds ratio over the strata (Mantel-Haenszel)"
-- strata = "Strata that take part: those where both failures may and may not occur"
-- cmh_chi2 = "Cochran-Mantel-Haenszel chi-square with continuity correction"
-- cmh_p = "Its p-value: chance of such an association if there is none in any stratum"
-- cmh_q = "False discovery rate of that, over all pairs"
-- bd_chi2 = "Breslow and Day's chi-square: do the strata differ"
-- bd_p = "Its p-value"
-- woolf_p = "P-value of Woolf's test, for strata with an empty cell"
-- simpson_flag = "Odds ratios on two sides of 1 or twofold apart, or only the crude one significant"
-- verdict = "associated, confounded, heterogeneous, negative, not_distinguishable, too_rare, alias"
WITH sized AS MATERIALIZED (
  SELECT CASE WHEN $unit = 'run' THEN hash(cluster, run) ELSE attempt_id END AS unit,
    any_value(coalesce(cluster, '(none)')) AS cluster, max(gpus) AS gpus
  FROM attempts
  WHERE (files > 0 OR NOT EXISTS (FROM files)) AND asked(cluster, $cluster)
    AND asked(coalesce(job, run), $job) AND within(t_about, $since, $until)
    AND ($unit = 'attempt' OR run IS NOT NULL)
  GROUP BY unit
), bucketed AS MATERIALIZED (
  SELECT unit, cluster, scale_bucket(gpus, $buckets) AS bucket,
    scale_no(gpus, $buckets) AS number
  FROM sized
), population AS MATERIALIZED (
  SELECT unit, cluster, CASE WHEN many THEN 'all' ELSE bucket END AS bucket,
    CASE WHEN NOT many THEN number END AS number,
    hash(cluster, CASE WHEN NOT many THEN bucket END) AS stratum
  FROM bucketed, (SELECT count(DISTINCT hash(cluster, bucket)) > 200 AS many FROM bucketed)
), hits AS MATERIALIZED (
  SELECT CASE WHEN $unit = 'run' THEN hash(cluster, run) ELSE attempt_id END AS unit, failure, t0,
    file_id, line_no, rank
  FROM pairable_events($roles) WHERE attempt_id IS NOT NULL
), present AS MATERIALIZED (
  SELECT DISTINCT p.stratum, unit, h.failure FROM hits AS h JOIN population AS p USING (unit)
), totals AS MATERIALIZED (
  SELECT stratum, any_value(cluster) AS cluster, any_value(bucket) AS bucket,
    any_value(number) AS number, count(*) AS n
  FROM population GROUP BY stratum
), margins AS MATERIALIZED (
  SELECT stratum, failure, count(*) AS n FROM present GROUP BY ALL
), overall AS MATERIALIZED (
  SELECT failure, sum(n)::BIGINT AS n FROM margins GROUP BY failure
), shared AS (
  SELECT a.stratum, a.failure AS a, b.failure AS b, count(*) AS n
  FROM present AS a JOIN present AS b ON b.unit = a.unit AND a.failure < b.failure
  GROUP BY ALL
), alike AS (
  SELECT a, b, count(*) AS n
  FROM (
    SELECT DISTINCT a.failure AS a, b.failure AS b, a.unit
    FROM hits AS a JOIN hits AS b
      ON b.file_id = a.file_id AND b.line_no = a.line_no AND a.failure < b.failure
    WHERE a.unit IN (SELECT unit FROM population))
  GROUP BY a, b
), pairs AS MATERIALIZED (
  SELECT a.failure AS a, b.failure AS b, a.n >= 5 AND b.n >= 5 AS tested,
    row_number() OVER (ORDER BY a.failure, b.failure) AS pair
  FROM overall AS a JOIN overall AS b ON a.failure < b.failure
  WHERE $failure IS NULL OR a.failure = $failure OR b.failure = $failure
), cells AS MATERIALIZED (
  SELECT p.*, t.* EXCLUDE (n), t.n AS n_units, coalesce(x.n, 0) AS n11,
    coalesce(a.n, 0) - n11 AS n10, coalesce(b.n, 0) - n11 AS n01, n_units - n11 - n10 - n01 AS n00
  FROM pairs AS p CROSS JOIN totals AS t
  LEFT JOIN margins AS a ON a.stratum = t.stratum AND a.failure = p.a
  LEFT JOIN margins AS b ON b.stratum = t.stratum AND b.failure = p.b
  LEFT JOIN shared AS x ON x.stratum = t.stratum AND x.a = p.a AND x.b = p.b
), pooled AS (
  SELECT pair, any_value(a) AS a, any_value(b) AS b, any_value(tested) AS tested,
    sum(n_units)::BIGINT AS n_units, sum(n11)::BIGINT AS n11, sum(n10)::BIGINT AS n10,
    sum(n01)::BIGINT AS n01, sum(n00)::BIGINT AS n00,
    CASE WHEN any_value(tested) THEN stratified(
      list([n11, n10, n01, n00]::DOUBLE[] ORDER BY stratum)) END AS fit
  FROM cells GROUP BY pair
), listed AS (
  SELECT 'pooled' AS row, pair, a, b, NULL AS cluster, NULL AS bucket, NULL AS number, tested,
    n_units, n11, n10, n01, n00, fit,
    CASE WHEN tested THEN chi2_sf(fit[2], CASE WHEN fit[5] > 0 THEN 1 END) END AS cmh_p
  FROM pooled
  UNION ALL BY NAME
  SELECT 'stratum' AS row, pair, a, b, cluster, bucket, number,
    n11 + n10 >= 5 AND n11 + n01 >= 5 AND n01 + n00 >= 1 AND n10 + n00 >= 1 AS tested, n_units,
    n11, n10, n01, n00
  FROM cells WHERE tested
), tailed AS MATERIALIZED (
  SELECT *, row_number() OVER () AS id, fisher_greater(n11, n10, n01, n00) AS fisher_p,
    CASE WHEN tested THEN fisher_less(n11, n10, n01, n00) END AS less_p
  FROM listed
), adjusted AS (
  SELECT unnest(ids) AS id, unnest(bh_q(ps)) AS q, unnest(bh_q(less_ps)) AS less_q
  FROM (
    SELECT row, list(id ORDER BY id) AS ids, list(fisher_p ORDER BY id) AS ps,
      list(less_p ORDER BY id) AS less_ps
    FROM tailed WHERE tested GROUP BY row)
), cmh_adjusted AS (
  SELECT unnest(ids) AS id, unnest(bh_q(ps)) AS cmh_q
  FROM (
    SELECT list(id ORDER BY id) AS ids, list(cmh_p ORDER BY id) AS ps
    FROM tailed WHERE cmh_p IS NOT NULL)
), judged AS MATERIALIZED (
  SELECT t.*, q, less_q, cmh_q, n11 * n_units / nullif((n11 + n10) * (n11 + n01), 0) AS lift,
    CASE WHEN row = 'pooled' AND n11 * n10 * n01 * n00 > 0
      THEN n11::DOUBLE * n00 / (n10::DOUBLE * n01) END AS crude_or,
    fit[1] AS mh_or, fit[5]::BIGINT AS strata, fit[2] AS cmh_chi2, fit[3] AS bd_chi2,
    chi2_sf(fit[3], fit[5] - 1) AS bd_p, chi2_sf(fit[4], fit[5] - 1) AS woolf_p,
    CASE WHEN row = 'pooled' AND tested THEN coalesce(
      fit[5] > 1 AND (sign(ln(crude_or)) * sign(ln(nullif(mh_or, 0))) < 0
        OR abs(ln(crude_or) - ln(nullif(mh_or, 0))) > ln(2) OR (q < 0.05 AND cmh_p > 0.05)),
      false) END AS simpson_flag
  FROM tailed AS t LEFT JOIN adjusted USING (id) LEFT JOIN cmh_adjusted USING (id)
), ranks AS (
  SELECT pair, row_number() OVER (ORDER BY cmh_q NULLS LAST, q NULLS LAST, pair) AS place
  FROM judged WHERE row = 'pooled'
)
SELECT row, j.a, j.b, nullif(cluster, '(none)') AS cluster, bucket, n_units, n11, n10, n01, n00,
  lift, fisher_p, q, crude_or, mh_or, strata, cmh_chi2, cmh_p, cmh_q, bd_chi2, bd_p, woolf_p,
  simpson_flag,
  CASE WHEN l.n > 0.5 * n11 AND row = 'pooled' THEN 'alias'
    WHEN NOT tested THEN 'too_rare'
    WHEN row = 'stratum' OR strata <= 1 THEN CASE
      WHEN q < 0.05 AND lift >= 1.5 AND n11 >= 3 THEN 'associated'
      WHEN less_q < 0.05 THEN 'negative' ELSE 'not_distinguishable' END
    WHEN cmh_q < 0.05 AND coalesce(mh_or < 1, false) THEN 'negative'
    WHEN cmh_q < 0.05 AND coalesce(woolf_p, bd_p) < 0.05 THEN 'heterogeneous'
    WHEN cmh_q < 0.05 AND n11 >= 3 THEN 'associated'
    WHEN simpson_flag AND q < 0.05 THEN 'confounded'
    ELSE 'not_distinguishable' END AS verdict
FROM judged AS j
JOIN ranks USING (pair)
LEFT JOIN alike AS l ON l.a = j.a AND l.b = j.b
WHERE $limit = 0 OR place <= $limit
ORDER BY place, row, cluster, number NULLS LAST
