-- title = "Stragglers"
-- order = 40
-- chart = { kind = "heatmap", x = "rank", y = "run_id", value = "median_ratio", title = "Time of a rank over the median of its peers" }
-- description = """
-- Which rank is slow, always or at times, and whether it is the machine, the pipeline stage or the
-- data. A rank's time is held against the median of its peers: ranks of its stage in the same step.
-- One row an attempt, then its ranks. Reports that name only the fastest and the slowest rank are
-- read as such: a ratio is to the fastest, a share of all reports. Where only step times are known,
-- which all ranks share, a drift names no rank.
-- """
-- brief = ["run_id", "attempt", "rank", "host", "class", "kind", "median_ratio", "share_slow",
--   "S_proxy", "drift_ratio"]
-- [parameters.ranks]
-- type = "VARCHAR"
-- default = "all"
-- choices = ["all", "slow"]
-- description = "Ranks listed: all, or persistent and transient ones only"
-- [parameters.slow_ratio]
-- type = "DOUBLE"
-- default = 1.1
-- minimum = 1
-- description = "Ratio to the peers above which a step is slow; of stages, of an imbalance"
-- [parameters.slow_share]
-- type = "DOUBLE"
-- default = 0.5
-- minimum = 0
-- description = "Share of slow steps from which a rank is persistent"
-- [parameters.min_steps]
-- type = "BIGINT"
-- default = 50
-- minimum = 1
-- description = "Steps that a class rests on at least; of reports, 3"
-- [parameters.skip_steps]
-- type = "BIGINT"
-- default = 5
-- minimum = 0
-- description = "First steps left out: set-up and compilation"
-- [parameters.nvrx_threshold]
-- type = "DOUBLE"
-- default = 0.75
-- minimum = 0
-- description = "NVRx score below which a report's rank is slow"
-- [parameters.fb_corr]
-- type = "DOUBLE"
-- default = 0.9
-- minimum = 0
-- description = "Correlation of forward and backward times from which sequence lengths are meant"
-- [parameters.fwd_cv]
-- type = "DOUBLE"
-- default = 0.1
-- minimum = 0
-- description = "Variation of forward times that goes with it at least"
-- [parameters.drift_ratio]
-- type = "DOUBLE"
-- default = 1.03
-- minimum = 1
-- description = "Rolling median over the best before it from which step times drift"
-- [parameters.drift_steps]
-- type = "BIGINT"
-- default = 5
-- minimum = 1
-- description = "Steps that a drift lasts at least"
-- [parameters.drift_window]
-- type = "BIGINT"
-- default = 50
-- minimum = 1
-- description = "Steps of the rolling median"
-- [columns]
-- cluster = "Cluster"
-- run_id = "Run"
-- attempt = "Attempt"
-- rank = "Rank; NULL in the attempt's own row"
-- host = "Its host, where told"
-- stage = "Its pipeline stage; in the attempt's row the slowest one"
-- steps = "Steps (or reports) compared"
-- median_ratio = "Median of time over the peers' median"
-- share_slow = "Share of steps above slow_ratio"
-- longest_run = "Slow steps in a row at most"
-- run_from_step = "First step of that run"
-- run_to_step = "Last step of that run"
-- nvrx_score = "Fastest peer's median over the rank's own, or NVRx's own score: 1 is best"
-- class = "persistent, transient, none, too_few_steps, no_peers"
-- kind = "worker, sequence_length, stage_imbalance, global, not_distinguishable, none"
-- S_proxy = "Mean of the slowest rank over mean of the median rank: slowdown by unequal ranks"
-- waste = "1 - 1 / S_proxy"
-- slowest_rank_top_share = "Share of steps in which the most frequent slowest rank is slowest"
-- distinct_slowest = "Ranks that were slowest in some step"
-- fb_corr_median = "Median over ranks of the correlation of forward and backward times"
-- fwd_cv_median = "Median over ranks of the variation of forward times"
-- stage_ratio = "Slowest stage over the median of the others, median of steps"
-- drift_ratio = "Rolling median over the best before it, in the largest drift; NULL without one"
-- drift_from_step = "First step of that drift"
-- source = "Where the times are from"
WITH saving AS (  -- steps with a save, and the one behind it
  SELECT DISTINCT attempt_id, unnest([step, step + 1]) AS step
  FROM placed_events WHERE failure = 'checkpoint-begin' AND step IS NOT NULL
), told AS MATERIALIZED (
  SELECT *, hash(attempt_id, source) AS series
  FROM rank_timings
  WHERE rank IS NOT NULL AND (t_compute_s IS NOT NULL OR metric = 'score')
    AND asked(cluster, $cluster) AND asked(coalesce(job, run), $job) AND within(ts, $since, $until)
    AND ($failure IS NULL OR $failure = 'straggler')
), labels AS (
  SELECT series, any_value(attempt_id) AS attempt_id, any_value(cluster) AS cluster,
    any_value(run) AS run, any_value(attempt) AS attempt, any_value(source) AS source,
    min(step) AS first_step, bool_or(partial) AS partial, bool_or(metric = 'score') AS scored,
    count(DISTINCT hash(file, line)) AS reports
  FROM told GROUP BY series
), full_steps AS MATERIALIZED (  -- ranks with all their peers; microbatches summed
  SELECT t.series, t.rank, t.stage, t.step, any_value(t.host) AS host, sum(t.t_compute_s) AS t
  FROM told AS t JOIN labels AS l USING (series)
  WHERE NOT t.partial AND t.step >= l.first_step + $skip_steps
    AND NOT EXISTS (FROM saving AS s WHERE s.attempt_id = t.attempt_id AND s.step = t.step)
  GROUP BY t.series, t.rank, t.stage, t.step
), compared AS MATERIALIZED (
  SELECT series, rank, stage, host, step, t,
    t / nullif(median(t) OVER peers, 0) AS ratio, count(*) OVER peers AS peers, NULL AS score
  FROM full_steps WINDOW peers AS (PARTITION BY series, stage, step)
), named AS (
  SELECT series, rank, stage, host, line AS step, t_compute_s AS t,
    CASE WHEN metric = 'score' THEN 1 / nullif(value, 0)
      ELSE t_compute_s / nullif(min(t_compute_s) OVER (PARTITION BY series, file, line), 0) END
      AS ratio,
    NULL AS peers, CASE WHEN metric = 'score' THEN value END AS score
  FROM told WHERE partial
), observed AS MATERIALIZED (
  SELECT *, CASE WHEN score IS NOT NULL THEN score < $nvrx_threshold
      ELSE coalesce(ratio > $slow_ratio, false) END AS slow
  FROM (FROM compared UNION ALL FROM named)
), runs AS (
  SELECT series, rank, count(*) AS n, min(step) AS run_from, max(step) AS run_to
  FROM (
    SELECT series, rank, step, slow,
      row_number() OVER (PARTITION BY series, rank ORDER BY step)
        - row_number() OVER (PARTITION BY series, rank, slow ORDER BY step) AS island
    FROM observed)
  WHERE slow GROUP BY series, rank, island
), longest AS (
  SELECT series, rank, max(n) AS longest_run, arg_max(run_from, n) AS run_from,
    arg_max(run_to, n) AS run_to
  FROM runs GROUP BY series, rank
), ranks AS (
  SELECT series, rank, any_value(stage) AS stage, any_value(host) AS host, count(*) AS steps,
    median(ratio) AS median_ratio, count(*) FILTER (slow) AS slow_steps, median(t) AS t_median,
    median(score) AS score, max(peers) AS peers
  FROM observed GROUP BY series, rank
), judged AS (
  SELECT r.*, l.* EXCLUDE (series), coalesce(g.longest_run, 0) AS longest_run,
    CASE WHEN NOT l.partial THEN g.run_from END AS run_from,
    CASE WHEN NOT l.partial THEN g.run_to END AS run_to,
    CASE WHEN l.partial AND NOT l.scored THEN l.reports ELSE r.steps END AS out_of,
    CASE WHEN NOT l.partial
      THEN min(r.t_median) OVER (PARTITION BY r.series, r.stage) / nullif(r.t_median, 0)
      ELSE r.score END AS nvrx_score
  FROM ranks AS r JOIN labels AS l USING (series)
  LEFT JOIN longest AS g ON g.series = r.series AND g.rank = r.rank
), classed AS MATERIALIZED (
  SELECT *, slow_steps / out_of AS share_slow,
    CASE WHEN peers < 2 THEN 'no_peers'
      WHEN out_of < CASE WHEN partial THEN 3 ELSE $min_steps END THEN 'too_few_steps'
      WHEN slow_steps >= $slow_share * out_of AND slow_steps > 0 THEN 'persistent'
      WHEN longest_run >= 3 THEN 'transient'
      ELSE 'none' END AS class
  FROM judged
), slowest AS (
  SELECT series, step, arg_max(rank, ratio) AS rank, max(t) AS t_max, median(t) AS t_median
  FROM compared GROUP BY series, step
  UNION ALL
  SELECT series, step, arg_max(rank, ratio), max(t), min(t) FROM named GROUP BY series, step
), tops AS (
  SELECT series, max(n) / sum(n) AS top_share, count(*) AS distinct_slowest, sum(n) AS steps
  FROM (SELECT series, rank, count(*) AS n FROM slowest GROUP BY series, rank) GROUP BY series
), slowdown AS (
  SELECT series, avg(t_max) / nullif(avg(t_median), 0) AS s FROM slowest GROUP BY series
), halves AS (  -- within each rank: pooled over ranks, one slow rank would fake the correlation
  SELECT series, median(r) AS fb_corr, median(cv) AS fwd_cv
  FROM (
    SELECT series, rank, CASE WHEN stddev_samp(t_fwd_s) > 0 AND stddev_samp(t_bwd_s) > 0
        THEN corr(t_fwd_s, t_bwd_s) END AS r,
      stddev_samp(t_fwd_s) / nullif(avg(t_fwd_s), 0) AS cv
    FROM told WHERE t_fwd_s IS NOT NULL AND t_bwd_s IS NOT NULL GROUP BY series, rank)
  GROUP BY series
), stages AS (
  SELECT *, row_number() OVER (PARTITION BY series, step ORDER BY t DESC) AS place
  FROM (
    SELECT series, step, stage, median(t) AS t FROM full_steps WHERE stage IS NOT NULL
    GROUP BY series, step, stage)
), imbalance AS (
  SELECT series, median(ratio) AS stage_ratio, mode(stage) AS stage
  FROM (
    SELECT series, step, max(t) / nullif(median(t) FILTER (place > 1), 0) AS ratio,
      arg_max(stage, t) AS stage
    FROM stages GROUP BY series, step)
  GROUP BY series
), paced AS (  -- time a step: of the median rank, else as the steps' lines say
  SELECT series, step, t_median AS t FROM slowest
  WHERE series IN (SELECT series FROM labels WHERE NOT partial)
  UNION ALL
  SELECT hash(i.attempt_id, 'training-step'), i.step, median(i.t_iter_s)
  FROM iterations AS i
  WHERE i.step IS NOT NULL AND i.t_iter_s IS NOT NULL AND i.attempt_id IS NOT NULL
    AND asked(i.cluster, $cluster) AND asked(coalesce(i.job, i.run), $job)
    AND within(i.t0, $since, $until) AND ($failure IS NULL OR $failure = 'straggler')
    AND NOT EXISTS (FROM saving AS s WHERE s.attempt_id = i.attempt_id AND s.step = i.step)
    AND i.attempt_id NOT IN (SELECT attempt_id FROM labels WHERE attempt_id IS NOT NULL
      AND NOT partial)
  GROUP BY i.attempt_id, i.step
), rolling AS (
  SELECT series, step, t, row_number() OVER w AS n,
    median(t) OVER (PARTITION BY series ORDER BY step
      ROWS BETWEEN $drift_window - 1 PRECEDING AND CURRENT ROW) AS level
  FROM paced WINDOW w AS (PARTITION BY series ORDER BY step)
), best AS (
  SELECT *, level / nullif(min(level) OVER (PARTITION BY series ORDER BY step
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS ratio
  FROM rolling WHERE n >= $drift_window
), drifts AS (
  SELECT series, max(drift) AS drift_ratio, arg_max(from_step, drift) AS drift_from_step
  FROM (
    SELECT series, count(*) AS n, max(ratio) AS drift, min(step) AS from_step
    FROM (
      SELECT *, ratio >= $drift_ratio AS high,
        n - row_number() OVER (PARTITION BY series, ratio >= $drift_ratio ORDER BY step) AS island
      FROM best)
    WHERE high GROUP BY series, island)
  WHERE n >= $drift_steps GROUP BY series
), whole AS (
  SELECT series, attempt_id, cluster, run, attempt, source, partial FROM labels
  UNION ALL
  SELECT DISTINCT hash(attempt_id, 'training-step'), attempt_id, cluster, run, attempt,
    'training-step', NULL
  FROM iterations
  WHERE hash(attempt_id, 'training-step') IN (SELECT series FROM paced)
), jobs_of AS (
  SELECT w.*, t.steps, t.top_share, t.distinct_slowest, s.s, h.fb_corr, h.fwd_cv, m.stage_ratio,
    m.stage, d.drift_ratio, d.drift_from_step, p.n AS paced_steps,
    c.persistent, c.transient, c.judged, c.slow_reports
  FROM whole AS w
  LEFT JOIN tops AS t USING (series)
  LEFT JOIN slowdown AS s USING (series)
  LEFT JOIN halves AS h USING (series)
  LEFT JOIN imbalance AS m USING (series)
  LEFT JOIN drifts AS d USING (series)
  LEFT JOIN (SELECT series, count(*) AS n FROM paced GROUP BY series) AS p USING (series)
  LEFT JOIN (
    SELECT series, count(*) FILTER (class = 'persistent') AS persistent,
      count(*) FILTER (class = 'transient') AS transient,
      count(*) FILTER (class NOT IN ('too_few_steps', 'no_peers')) AS judged,
      sum(slow_steps) / any_value(reports) >= $slow_share AS slow_reports
    FROM classed GROUP BY series) AS c USING (series)
), kinds AS (
  SELECT *, CASE
      WHEN persistent > 0 THEN 'worker'
      WHEN partial IS NULL AND drift_ratio IS NOT NULL THEN 'not_distinguishable'
      WHEN partial IS NULL THEN CASE WHEN paced_steps > $drift_window THEN 'none'
        ELSE 'too_few_steps' END
      WHEN fb_corr >= $fb_corr AND fwd_cv >= $fwd_cv AND top_share < 0.25
        AND steps >= $min_steps THEN 'sequence_length'
      WHEN stage_ratio >= $slow_ratio AND steps >= $min_steps THEN 'stage_imbalance'
      WHEN partial AND judged > 0 AND slow_reports THEN 'not_distinguishable'
      WHEN transient > 0 THEN 'worker'
      WHEN drift_ratio IS NOT NULL THEN 'global'
      WHEN judged > 0 THEN 'none'
      ELSE 'too_few_steps' END AS kind
  FROM jobs_of
)
SELECT cluster, run_id, attempt, rank, host, stage, steps, median_ratio, share_slow, longest_run,
  run_from_step, run_to_step, nvrx_score, class, kind, S_proxy, waste, slowest_rank_top_share,
  distinct_slowest, fb_corr_median, fwd_cv_median, stage_ratio, drift_ratio, drift_from_step,
  source
FROM (
  SELECT series, 0 AS level, cluster, run AS run_id, attempt, NULL::INTEGER AS rank,
    NULL::VARCHAR AS host, CASE WHEN kind = 'stage_imbalance' THEN stage END AS stage,
    coalesce(steps, paced_steps)::BIGINT AS steps, NULL::DOUBLE AS median_ratio,
    NULL::DOUBLE AS share_slow, NULL::BIGINT AS longest_run, NULL::BIGINT AS run_from_step,
    NULL::BIGINT AS run_to_step, NULL::DOUBLE AS nvrx_score, NULL::VARCHAR AS class, kind,
    s AS S_proxy, 1 - 1 / s AS waste, top_share AS slowest_rank_top_share, distinct_slowest,
    fb_corr AS fb_corr_median, fwd_cv AS fwd_cv_median, stage_ratio, drift_ratio, drift_from_step,
    source
  FROM kinds
  UNION ALL
  SELECT c.series, 1, c.cluster, c.run, c.attempt, c.rank, c.host, c.stage, c.out_of,
    c.median_ratio, c.share_slow, c.longest_run, c.run_from, c.run_to, c.nvrx_score, c.class,
    k.kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, c.source
  FROM classed AS c JOIN kinds AS k USING (series)
  WHERE $ranks = 'all' OR c.class IN ('persistent', 'transient')
)
ORDER BY cluster, run_id, attempt, series, level, share_slow DESC NULLS LAST,
  median_ratio DESC NULLS LAST, rank
