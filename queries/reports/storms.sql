-- title = "Storms"
-- order = 6
-- description = """
-- Which flood of lines is really one thing. A minute is part of a storm where it has more matches
-- than the 99.9 % Poisson quantile of the place's median minute, and more than ten; adjacent
-- minutes are one storm. Progress and facts do not count. A line without a time counts as late as
-- its neighbours allow. A file without any time is one bin; it and a place of one minute have no
-- usual minute, so that ten lines alone are their limit.
-- """
-- brief = ["scope", "top_signature", "t_first", "minutes", "events", "incidents", "top_share",
--   "ranks", "class"]
-- note = """
-- SELECT format('{} events in {} incidents: compression {:.2f}', n, incidents, n / incidents)
-- FROM (
--   SELECT sum(e.repeats)::BIGINT AS n, count(DISTINCT i.incident_id) AS incidents
--   FROM placed_events AS e
--   LEFT JOIN (SELECT event_id, incident_id FROM incident_members) AS i USING (event_id)
--   WHERE e.role <> 'progress' AND (e.role <> 'context' OR e.severity <> 'info')
--     AND asked(e.cluster, $cluster)
--     AND asked(coalesce(e.job, e.run), $job)
--     AND asked(e.failure, $failure) AND within(e.t_about, $since, $until))
-- WHERE incidents > 0
-- """
-- [parameters.by]
-- type = "VARCHAR"
-- default = "run"
-- choices = ["run", "host", "cluster"]
-- description = "What a storm stays inside: an attempt (else its host), a host, a cluster"
-- [columns]
-- scope = "The place: cluster, run and attempt, or cluster and host"
-- cluster = "Cluster"
-- run_id = "Run, where it is one"
-- attempt = "Attempt, where it is one"
-- host = "Host, where it is one"
-- t_first = "First line, UTC; NULL where no line has a time"
-- t_last = "Last line, UTC"
-- minutes = "Minutes it lasted"
-- events = "Lines matched"
-- incidents = "Incidents that they belong to"
-- compression = "events / incidents"
-- baseline = "Median lines a minute of the place"
-- threshold = "Lines a minute above which it is a storm"
-- top_signature = "Signature with the most lines"
-- top_share = "Its share"
-- signatures = "All signatures, most lines first"
-- counts = "Lines of each of them"
-- ranks = "Ranks that printed"
-- lines_per_rank = "events / ranks"
-- world_size = "Ranks of the attempt"
-- nodes = "Its nodes, or the hosts that its logs name"
-- class = "teardown_storm: a line a process or a launcher; rank_fan_out; repeat; mixed"
-- first_lines = "The first five lines"
-- last_lines = "The last five lines"
WITH hits AS (
  SELECT e.*, coalesce(e.ts, e.ts_hi, e.ts_lo) AS t,
    coalesce(e.ts_last, e.ts, e.ts_hi, e.ts_lo) AS t_end,
    CASE WHEN $by = 'cluster' THEN hash(e.cluster) WHEN $by = 'host' THEN hash(e.cluster, e.host)
      ELSE coalesce(e.attempt_id, hash(e.cluster, e.host, CASE WHEN e.host IS NULL THEN e.path END))
      END AS place
  FROM placed_events AS e
  WHERE e.role <> 'progress' AND (e.role <> 'context' OR e.severity <> 'info')
    AND asked(e.cluster, $cluster) AND asked(coalesce(e.job, e.run), $job)
    AND asked(e.failure, $failure) AND within(e.t_about, $since, $until)
), binned AS (
  SELECT *, epoch(date_trunc('minute', t))::BIGINT // 60 AS minute,
    CASE WHEN t IS NULL THEN file_id END AS file
  FROM hits
), spans AS (
  SELECT place, least(min(minute), epoch(min(a.first_ts))::BIGINT // 60) AS lo,
    greatest(max(minute), epoch(max(a.last_ts))::BIGINT // 60) AS hi
  FROM binned LEFT JOIN attempt_spans AS a USING (attempt_id)
  WHERE minute IS NOT NULL GROUP BY place
), counts AS (
  SELECT place, file, minute, sum(repeats) AS n FROM binned GROUP BY ALL
), ranked AS (
  SELECT place, list(n ORDER BY n) AS ns, any_value(hi - lo + 1) AS total
  FROM counts JOIN spans USING (place) WHERE minute IS NOT NULL GROUP BY place
), medians AS (  -- of all minutes of the span, silent ones too; one minute alone has none
  SELECT place, CASE WHEN total = 1 THEN 0 ELSE (
      coalesce(ns[greatest(0, (total + 1) // 2 - (total - len(ns)))], 0)
      + coalesce(ns[greatest(0, (total + 2) // 2 - (total - len(ns)))], 0)) / 2 END AS baseline
  FROM ranked
), limits AS (
  SELECT baseline, greatest(poisson_quantile(0.999, greatest(baseline, 1)), 10) AS threshold
  FROM (SELECT DISTINCT baseline FROM medians)
), storm_bins AS (
  SELECT c.*, coalesce(m.baseline, 0) AS baseline, coalesce(l.threshold, 10) AS threshold
  FROM (FROM counts WHERE n > 10) AS c
  LEFT JOIN medians AS m USING (place) LEFT JOIN limits AS l ON l.baseline = m.baseline
), islands AS (
  SELECT *, minute - row_number() OVER (PARTITION BY place, file ORDER BY minute) AS island
  FROM storm_bins WHERE n > threshold
), members AS (
  SELECT b.*, i.island, i.baseline, i.threshold, hash(b.place, i.file, i.island) AS storm
  FROM binned AS b
  JOIN islands AS i ON i.place = b.place AND i.file IS NOT DISTINCT FROM b.file
    AND i.minute IS NOT DISTINCT FROM b.minute
), shares AS (
  SELECT storm, signature, sum(repeats) AS n, bool_and(is_noise(role, severity)) AS noise,
    count(DISTINCT rank) AS ranks
  FROM members GROUP BY storm, signature
), tops AS (
  SELECT storm, arg_max(signature, n) AS top_signature, max(n) AS top_n, sum(n) AS n,
    sum(n) FILTER (noise) AS noise_n,
    arg_max(ranks, n) AS top_ranks, list(signature ORDER BY n DESC, signature) AS signatures,
    list(n::BIGINT ORDER BY n DESC, signature) AS counts
  FROM shares GROUP BY storm
), floods AS (
  SELECT storm,
    CASE WHEN min(cluster) = max(cluster) THEN min(cluster) END AS cluster,
    CASE WHEN min(attempt_id) = max(attempt_id) AND count(*) = count(attempt_id)
      THEN any_value(attempt_id) END AS attempt_id,
    CASE WHEN min(host) = max(host) THEN min(host) END AS host,
    min(t) AS t_first, max(t_end) AS t_last, count(DISTINCT minute) AS minutes,
    sum(repeats)::BIGINT AS events, count(DISTINCT rank) AS ranks, count(DISTINCT host) AS hosts,
    count(DISTINCT i.incident_id) AS incidents,
    any_value(baseline) AS baseline, any_value(threshold) AS threshold,
    list(message ORDER BY t, path, line_no)[1:5] AS first_lines,
    list_reverse(list(message ORDER BY t DESC, path DESC, line_no DESC)[1:5]) AS last_lines
  FROM members
  LEFT JOIN (SELECT event_id, incident_id FROM incident_members) AS i USING (event_id)
  GROUP BY storm
), teardowns AS (  -- a noise signature printed once a process or launcher, or two in that ratio
  SELECT s.storm
  FROM shares AS s JOIN floods AS f USING (storm)
  LEFT JOIN attempt_spans AS a USING (attempt_id)
  WHERE s.noise AND (s.n BETWEEN 0.9 * a.world_size AND 1.1 * a.world_size
    OR s.n BETWEEN 0.9 * coalesce(a.nodes, a.hosts_seen) AND 1.1 * coalesce(a.nodes, a.hosts_seen))
  UNION
  SELECT p.storm
  FROM shares AS p JOIN shares AS l ON l.storm = p.storm AND l.noise AND l.n >= 2 AND p.n > l.n
  WHERE p.noise AND p.n % l.n = 0 AND p.n // l.n <= 16
)
SELECT concat_ws('/', f.cluster, a.run, a.attempt, CASE WHEN a.run IS NULL THEN f.host END)
    AS scope,
  f.cluster, a.run AS run_id, a.attempt, f.host, f.t_first, f.t_last,
  nullif(f.minutes, 0) AS minutes, f.events, f.incidents,
  f.events / nullif(f.incidents, 0) AS compression, f.baseline, f.threshold::BIGINT AS threshold,
  t.top_signature, t.top_n / t.n AS top_share, t.signatures, t.counts,
  f.ranks,
  f.events / nullif(f.ranks, 0) AS lines_per_rank, a.world_size,
  coalesce(a.nodes, nullif(a.hosts_seen, 0)) AS nodes,
  CASE WHEN f.storm IN (SELECT storm FROM teardowns) AND 2 * t.noise_n >= t.n THEN 'teardown_storm'
    WHEN t.top_ranks > 2 AND t.top_n <= 2 * t.top_ranks THEN 'rank_fan_out'
    WHEN f.ranks <= 1 AND f.hosts <= 1 AND 2 * t.top_n >= t.n THEN 'repeat'
    ELSE 'mixed' END AS class,
  f.first_lines, f.last_lines
FROM floods AS f JOIN tops AS t USING (storm)
LEFT JOIN attempt_spans AS a USING (attempt_id)
ORDER BY f.events DESC, f.t_first, scope
