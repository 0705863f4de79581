-- title = "Time to failure"
-- order = 11
-- chart = { kind = "survival", x = "t_h", y = "surv", lo = "lo", hi = "hi", group = "group", where = { row = "curve" }, title = "Share of attempts that run longer (Kaplan-Meier), 95 % limits" }
-- description = """
-- What share of attempts runs how long without a failure (Kaplan-Meier), with log(-log) limits from
-- Greenwood's variance, and whether groups differ (log-rank). Attempts that were cancelled, ran into
-- a limit, were preempted or still run are censored. That holds only where they were not stopped
-- because they looked sick: see cancelled_share. An attempt that is seen only from some time on
-- (since, or logs that begin in the middle) counts from then on. Restarts of one run are not
-- independent: compare attempts with runs.
-- """
-- brief = ["row", "group", "t_h", "at_risk", "failures", "surv", "lo", "hi", "median_h", "p"]
-- [parameters.group]
-- type = "VARCHAR"
-- default = "none"
-- choices = ["none", "cluster", "scale", "name", "version", "change"]
-- description = "Compare clusters, sizes, job names, versions that logs print, or before and after"
-- [parameters.change]
-- type = "TIMESTAMP"
-- description = "With group=change: attempts that start at this time (UTC) or later are after"
-- [parameters.definition]
-- type = "VARCHAR"
-- default = "any_failed"
-- choices = ["infra", "any_failed"]
-- description = "What counts: failures of infrastructure or whole systems, or all"
-- [parameters.buckets]
-- type = "NUMBERS"
-- default = "1,8,64,512,4096"
-- minimum = 1
-- description = "With group=scale: upper bounds of the sizes, GPUs"
-- [parameters.times]
-- type = "NUMBERS"
-- minimum = 0
-- description = "The curve at these hours only; else at each failure"
-- [columns]
-- row = "summary of a group; logrank: all groups compared; curve"
-- group = "Group; NULL without groups"
-- t_h = "Hours since the attempt's start"
-- at_risk = "Attempts that ran this long and were seen then"
-- failures = "Failures at this time; in a summary all"
-- surv = "Share that runs longer; NULL after the longest attempt"
-- se = "Its standard error (Greenwood)"
-- lo = "Its lower 95 % limit"
-- hi = "Its upper 95 % limit"
-- attempts = "Attempts of the group"
-- runs = "Runs that they belong to"
-- hours = "Hours that they were seen to run"
-- median_h = "First time at which no more than half run on; NULL where more do to the end"
-- mttf_exp_h = "Mean if the hazard were constant: hours / failures; NULL without failures"
-- mttf_lo_h = "Its lower 95 % limit; without failures one-sided"
-- mttf_hi_h = "Its upper 95 % limit"
-- expected = "Failures if the groups did not differ (log-rank)"
-- cancelled_share = "Share of the attempts that were cancelled: censored, perhaps for a reason"
-- late_entries = "Attempts seen only from some time after their start on"
-- no_time = "Attempts left out: when they ran is not known"
-- chi2 = "Log-rank chi-square"
-- df = "Its degrees of freedom"
-- p = "Its p-value"
-- verdict = "differ, not_distinguishable; too_rare: under 5 failures"
-- exposure_jobs_share = "Share of the attempts whose times the scheduler tells"
-- state_log_share = "Share of the attempts whose outcome is inferred from logs"
WITH began AS (
  SELECT attempt_id, min(first_ts) AS log_ts FROM live_files WHERE run IS NOT NULL GROUP BY attempt_id
), named AS (
  SELECT cluster, job, any_value(name) AS name FROM jobs WHERE $group = 'name' GROUP BY ALL
), versioned AS (
  SELECT attempt_id, min(captures['version']) AS version FROM placed_events
  WHERE $group = 'version' AND role = 'progress' AND captures['version'] IS NOT NULL
  GROUP BY attempt_id
), spans AS MATERIALIZED (  -- without hours where none of them was seen
  SELECT * REPLACE (CASE WHEN entry < hours THEN hours END AS hours)
  FROM (
    SELECT x.attempt_id, hash(x.cluster, x.run) AS run_key, x.outcome,
      x.exposure_source, x.state_source,
      coalesce(CASE $group WHEN 'none' THEN '(all)' WHEN 'cluster' THEN x.cluster
        WHEN 'scale' THEN scale_bucket(x.gpus, $buckets) WHEN 'name' THEN n.name
        WHEN 'version' THEN v.version
        ELSE CASE WHEN x.start_ts >= $change THEN 'after' WHEN x.start_ts < $change THEN 'before' END
        END, '(unknown)') AS grp,
      CASE $group WHEN 'scale' THEN scale_no(x.gpus, $buckets) ELSE 0 END AS grp_no,
      seconds_between(x.start_ts, least(x.end_ts, $until)) / 3600 AS hours,
      coalesce(greatest(
        CASE WHEN $since > x.start_ts THEN seconds_between(x.start_ts, $since::TIMESTAMP) / 3600 END,
        CASE WHEN x.state_source IN ('log', 'inferred') AND b.log_ts > x.start_ts
          THEN seconds_between(x.start_ts, b.log_ts) / 3600 END), -1) AS entry,
      CASE WHEN $definition = 'infra' THEN x.infra_failed ELSE x.failed END
        AND asked(x.failure, $failure) AND within(x.end_ts, $since, $until) AS counts
    FROM exposed_failures(causes := $definition = 'infra' OR $failure IS NOT NULL) AS x
    LEFT JOIN began AS b ON b.attempt_id = x.attempt_id
    LEFT JOIN named AS n ON n.job = x.job AND n.cluster IS NOT DISTINCT FROM x.cluster
    LEFT JOIN versioned AS v ON v.attempt_id = x.attempt_id
    WHERE asked(x.cluster, $cluster) AND asked(coalesce(x.job, x.run), $job)
      AND coalesce(($since IS NULL OR x.end_ts > $since) AND ($until IS NULL OR x.start_ts < $until),
        within(x.t_about, $since, $until)))
), points AS MATERIALIZED (
  SELECT grp, t, sum(enters) AS enters, sum(leaves) AS leaves, sum(fails) AS fails
  FROM (
    SELECT grp, entry AS t, 1 AS enters, 0 AS leaves, 0 AS fails FROM spans WHERE hours IS NOT NULL
    UNION ALL
    SELECT grp, hours, 0, 1, counts::INTEGER FROM spans WHERE hours IS NOT NULL)
  GROUP BY grp, t
), running AS MATERIALIZED (  -- before and after each time
  SELECT *, sum(enters - leaves) OVER (PARTITION BY grp ORDER BY t) AS going,
    going - enters + leaves AS at_risk
  FROM points
), curve AS MATERIALIZED (
  SELECT grp, t, at_risk, fails,
    CASE WHEN bool_or(fails = at_risk) OVER w THEN 0.0
      ELSE exp(sum(ln(1 - CASE WHEN fails < at_risk THEN fails / at_risk ELSE 0 END)) OVER w) END
      AS surv,
    sqrt(sum(CASE WHEN fails < at_risk THEN fails / (at_risk * (at_risk - fails)) END) OVER w)
      AS spread
  FROM running WHERE fails > 0 AND at_risk > 0
  WINDOW w AS (PARTITION BY grp ORDER BY t)
), limited AS MATERIALIZED (
  SELECT *, CASE WHEN surv > 0 THEN surv * spread END AS se,
    CASE WHEN surv > 0 THEN surv ** exp(1.959963985 * spread / -ln(surv)) END AS lo,
    CASE WHEN surv > 0 THEN surv ** exp(-1.959963985 * spread / -ln(surv)) END AS hi
  FROM curve
), asked_times AS (
  SELECT grp, t, coalesce(at_risk, 0) AS at_risk
  FROM (
    SELECT w.grp, w.t, r.going AS at_risk
    FROM (
      SELECT grp, unnest($times::DOUBLE[]) AS t FROM (SELECT DISTINCT grp FROM points)) AS w
    ASOF LEFT JOIN running AS r ON r.grp = w.grp AND r.t < w.t)
), shown AS (
  SELECT 'curve' AS row, grp, t AS t_h, at_risk, fails AS failures, surv, se, lo, hi
  FROM limited WHERE $times IS NULL
  UNION ALL
  SELECT 'curve', w.grp, w.t, w.at_risk, coalesce(CASE WHEN l.t = w.t THEN l.fails END, 0),
    CASE WHEN w.at_risk > 0 OR l.surv = 0 THEN coalesce(l.surv, 1) END,
    CASE WHEN w.at_risk > 0 THEN CASE WHEN l.grp IS NULL THEN 0 ELSE l.se END END,
    CASE WHEN w.at_risk > 0 THEN l.lo END, CASE WHEN w.at_risk > 0 THEN l.hi END
  FROM asked_times AS w ASOF LEFT JOIN limited AS l ON l.grp = w.grp AND l.t <= w.t
), grouped AS MATERIALIZED (
  SELECT grp, any_value(grp_no) AS grp_no, count(*) AS attempts, count(DISTINCT run_key) AS runs,
    count(*) FILTER (counts AND hours IS NOT NULL) AS failures,
    sum(hours - greatest(entry, 0)) AS hours,
    count(*) FILTER (outcome = 'cancelled') / count(*) AS cancelled_share,
    count(*) FILTER (entry > 0) AS late_entries, count(*) FILTER (hours IS NULL) AS no_time,
    count(*) FILTER (exposure_source = 'jobs') / count(*) AS exposure_jobs_share,
    count(*) FILTER (state_source IN ('log', 'inferred')) / count(*) AS state_log_share
  FROM spans GROUP BY grp
), grid AS (
  SELECT e.t, g.grp, coalesce(r.going, 0) AS at_risk
  FROM (SELECT DISTINCT t FROM curve) AS e CROSS JOIN grouped AS g
  ASOF LEFT JOIN running AS r ON r.grp = g.grp AND r.t < e.t
), faced AS (
  SELECT g.t, list(g.at_risk ORDER BY g.grp) AS at_risk,
    list(coalesce(c.fails, 0) ORDER BY g.grp) AS fails
  FROM grid AS g LEFT JOIN curve AS c ON c.grp = g.grp AND c.t = g.t
  GROUP BY g.t
), ranked AS (
  SELECT logrank(list(at_risk ORDER BY t), list(fails ORDER BY t)) AS test
  FROM faced HAVING count(*) > 0
), tested AS MATERIALIZED (
  SELECT test, (SELECT list(grp ORDER BY grp) FROM grouped) AS groups,
    (SELECT sum(failures) FROM grouped) AS failures
  FROM ranked
), rows AS (
  SELECT 'summary' AS row, g.* EXCLUDE (hours), g.hours,
    (SELECT min(t) FROM curve AS c WHERE c.grp = g.grp AND c.surv <= 0.5 + 1e-12) AS median_h,
    g.hours / nullif(g.failures, 0) AS mttf_exp_h,
    g.hours / CASE g.failures WHEN 0 THEN -ln(0.05) ELSE poisson_hi(g.failures, 0.05) END
      AS mttf_lo_h,
    g.hours / nullif(poisson_lo(g.failures, 0.05), 0) AS mttf_hi_h,
    CASE WHEN len(t.groups) > 1 THEN t.test[2 + list_position(t.groups, g.grp)] END AS expected,
    CASE WHEN g.failures < 5 THEN 'too_rare' END AS verdict
  FROM grouped AS g LEFT JOIN tested AS t ON true
  UNION ALL BY NAME
  SELECT 'logrank' AS row, test[1] AS chi2, test[2]::BIGINT AS df, chi2_sf(test[1], test[2]) AS p,
    failures, CASE WHEN failures < 5 OR p IS NULL THEN 'too_rare' WHEN p < 0.05 THEN 'differ'
      ELSE 'not_distinguishable' END AS verdict
  FROM tested WHERE len(groups) > 1
  UNION ALL BY NAME
  SELECT s.*, g.grp_no FROM shown AS s JOIN grouped AS g USING (grp)
)
SELECT row, nullif(grp, '(all)') AS "group", t_h, at_risk::BIGINT AS at_risk,
  failures::BIGINT AS failures, surv, se, lo, hi, attempts, runs, hours, median_h, mttf_exp_h,
  mttf_lo_h, mttf_hi_h, expected, cancelled_share, late_entries, no_time, chi2, df, p, verdict,
  exposure_jobs_share, state_log_share
FROM rows
ORDER BY list_position(['summary', 'logrank', 'curve'], row), grp_no, grp, t_h
