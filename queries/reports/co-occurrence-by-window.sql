-- title = "Co-occurrence by window"
-- order = 14
-- description = """
-- How much more likely than at any other time is a failure on a host, so long after another one there:
-- the form for effects of hosts and for slow ones (memory errors, then failure days later). `a`
-- comes first; a = b asks whether a failure comes back. Hosts count as long as their logs and
-- attempts last, silent hosts too; an `a` whose window reaches beyond that is left out.
-- """
-- brief = ["a", "b", "window_s", "n_a", "hits", "p_b_after_a", "base", "factor", "q", "verdict"]
-- [parameters.window_s]
-- type = "NUMBERS"
-- default = "5,3600,86400,604800"
-- minimum = 1e-6
-- description = "Windows, seconds"
-- [parameters.base]
-- type = "VARCHAR"
-- default = "disjoint"
-- choices = ["disjoint", "poisson"]
-- description = "Share of all windows side by side that have b, or as its rate leads to expect"
-- [parameters.dup_s]
-- type = "DOUBLE"
-- default = 5
-- minimum = 0
-- description = "The same failure on a host within so many seconds is one, a storm is one"
-- [parameters.roles]
-- type = "VARCHAR"
-- default = "causes"
-- choices = ["causes", "all"]
-- description = "Failures seen as cause or as context worse than info; all adds collateral"
-- [columns]
-- a = "Failure that comes first"
-- b = "Failure within the window after it, on the same host"
-- window_s = "Window, seconds"
-- n_a = "Times that a occurred, with its window seen to the end"
-- hits = "Those with b within the window"
-- p_b_after_a = "hits / n_a"
-- lo = "Its lower 95 % limit (Wilson)"
-- hi = "Its upper 95 % limit"
-- n_b = "Times that b occurred"
-- hosts = "Hosts looked at"
-- host_days = "Days that they were observed"
-- base = "Probability of b in a window at any time"
-- factor = "p_b_after_a / base"
-- p = "Binomial test, one-sided: chance of so many hits at the base's probability"
-- q = "False discovery rate over all pairs and windows; NULL where too rare to test"
-- same_second_share = "Share of the hits that came within 1 s of a"
-- verdict = "associated, not_distinguishable, too_rare (a or b under 5 times), alias (most in 1 s)"
WITH spans AS (
  SELECT cluster, host, first_ts AS lo, last_ts AS hi
  FROM live_files
  WHERE host IS NOT NULL AND first_ts IS NOT NULL AND asked(coalesce(job, run), $job)
  UNION ALL
  SELECT cluster, unnest(hosts), first_ts, last_ts FROM attempts
  WHERE first_ts <= last_ts AND asked(coalesce(job, run), $job)
), clipped AS (
  SELECT coalesce(cluster, '') AS cluster, host, greatest(lo, $since) AS lo,
    least(hi, $until) AS hi
  FROM spans WHERE asked(cluster, $cluster) AND ($since IS NULL OR hi >= $since)
    AND ($until IS NULL OR lo < $until)
), marked AS (
  SELECT *, coalesce(lo > max(hi) OVER (PARTITION BY cluster, host ORDER BY lo, hi
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS opens
  FROM clipped
), merged AS (
  SELECT cluster, host, min(lo) AS lo, max(hi) AS hi
  FROM (
    SELECT *, sum(opens::INTEGER) OVER (PARTITION BY cluster, host ORDER BY lo, hi) AS island
    FROM marked)
  GROUP BY cluster, host, island
), observed AS MATERIALIZED (
  SELECT cluster, host, min(lo) AS lo, max(hi) AS hi, sum(seconds_between(lo, hi)) AS seconds
  FROM merged GROUP BY cluster, host
), hits AS MATERIALIZED (
  SELECT coalesce(cluster, '') AS cluster, host, failure, t0 AS t,
    lag(t0) OVER (PARTITION BY coalesce(cluster, ''), host, failure ORDER BY t0) AS before
  FROM pairable_events($roles)
  WHERE host IS NOT NULL AND t0 IS NOT NULL AND asked(cluster, $cluster)
    AND asked(coalesce(job, run), $job) AND within(t0, $since, $until)
), occurrences AS MATERIALIZED (
  SELECT cluster, host, failure, t FROM hits
  WHERE before IS NULL OR seconds_between(before, t) > $dup_s OR ($dup_s = 0 AND before = t)
), widths AS MATERIALIZED (
  SELECT unnest($window_s::DOUBLE[]) AS w
), times AS MATERIALIZED (
  SELECT failure, w, count(*) FILTER (seconds_between(t, hi) >= w) AS n_a, count(*) AS n_b
  FROM occurrences JOIN observed USING (cluster, host) CROSS JOIN widths GROUP BY ALL
), exposed AS (
  SELECT count(*) AS hosts, sum(seconds) AS seconds FROM observed
), taken AS (  -- windows with b: those of which it is the first line
  SELECT h.failure AS b, w.w, count(*) FILTER (h.before IS NULL OR
      floor(seconds_between(s.lo, h.before) / w.w) <> floor(seconds_between(s.lo, h.t) / w.w)) AS n
  FROM hits AS h JOIN observed AS s USING (cluster, host) CROSS JOIN widths AS w
  GROUP BY ALL
), bases AS MATERIALIZED (
  SELECT b, w, hosts, seconds, n_b, CASE WHEN $base = 'poisson' THEN 1 - exp(-n_b * w / seconds)
    ELSE least(1, n * w / seconds) END AS base
  FROM taken JOIN (SELECT failure AS b, w, n_b FROM times) USING (b, w) CROSS JOIN exposed
  WHERE seconds > 0
), sought AS (  -- after each a, on a host that has b at some time
  SELECT a.cluster, a.host, a.failure AS a, h.failure AS b,
    CASE WHEN h.failure = a.failure THEN a.t + INTERVAL 1 MICROSECOND ELSE a.t END AS t, a.t AS t_a
  FROM occurrences AS a
  JOIN (SELECT DISTINCT cluster, host, failure FROM occurrences) AS h
    ON h.cluster = a.cluster AND h.host = a.host
  WHERE $failure IS NULL OR a.failure = $failure OR h.failure = $failure
), followed AS (
  SELECT s.a, s.b, seconds_between(s.t_a, n.t) AS delta, seconds_between(s.t_a, o.hi) AS seen_s
  FROM sought AS s ASOF JOIN occurrences AS n
    ON n.cluster = s.cluster AND n.host = s.host AND n.failure = s.b AND n.t >= s.t
  JOIN observed AS o ON o.cluster = s.cluster AND o.host = s.host
), counted AS (
  SELECT a, b, w, count(*) FILTER (delta <= w AND seen_s >= w) AS hits,
    count(*) FILTER (delta <= least(1, w) AND seen_s >= w) AS at_once
  FROM (FROM followed WHERE delta <= (SELECT max(w) FROM widths)) CROSS JOIN widths GROUP BY ALL
), pairs AS MATERIALIZED (
  SELECT a.failure AS a, b.b, b.w, a.n_a, b.n_b, coalesce(c.hits, 0) AS hits, c.at_once, b.base,
    b.hosts, b.seconds / 86400 AS host_days, a.n_a >= 5 AND b.n_b >= 5 AS tested,
    row_number() OVER (ORDER BY a.failure, b.b, b.w) AS id,
    binomial_ge(coalesce(c.hits, 0), a.n_a, b.base) AS p
  FROM times AS a JOIN bases AS b ON b.w = a.w
  LEFT JOIN counted AS c ON c.a = a.failure AND c.b = b.b AND c.w = b.w
  WHERE $failure IS NULL OR a.failure = $failure OR b.b = $failure
), adjusted AS (
  SELECT unnest(ids) AS id, unnest(bh_q(ps)) AS q
  FROM (SELECT list(id ORDER BY id) AS ids, list(p ORDER BY id) AS ps FROM pairs WHERE tested)
)
SELECT a, b, w AS window_s, n_a, hits, hits / nullif(n_a, 0) AS p_b_after_a,
  wilson_lo(hits, n_a) AS lo, wilson_hi(hits, n_a) AS hi, n_b, hosts, host_days, base,
  hits / nullif(n_a, 0) / nullif(base, 0) AS factor,
  p, q, at_once / nullif(hits, 0) AS same_second_share,
  CASE WHEN a <> b AND at_once > 0.5 * hits THEN 'alias'
    WHEN NOT tested THEN 'too_rare'
    WHEN q < 0.05 AND hits / n_a >= 1.5 * base AND hits >= 3 THEN 'associated'
    ELSE 'not_distinguishable' END AS verdict
FROM pairs LEFT JOIN adjusted USING (id)
ORDER BY q NULLS LAST, factor DESC NULLS LAST, a, b, w
