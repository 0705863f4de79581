-- What every report builds on: events placed in attempts, outcomes, incidents, first failures.
--
-- Pure SQL over the tables of the database; `ingest` stores it in the database, so that any DuckDB
-- client reads the same views. Rules are those of the reports' documentation: t_eff is when a thing
-- began, order inside a file is its line order, order across files is claimed beyond 2 s only.

-- Seconds from one time to another.
CREATE OR REPLACE MACRO seconds_between(a, b) AS (epoch_us(b) - epoch_us(a)) / 1e6;

-- Whether a value passes a filter that may be left out, and a time a range that may be open.
CREATE OR REPLACE MACRO asked(value, wanted) AS (wanted IS NULL OR value = wanted);
CREATE OR REPLACE MACRO within(t, since, until) AS
  (since IS NULL OR t >= since) AND (until IS NULL OR t < until);

-- Words of failure ids that carry a meaning of their own here.
CREATE OR REPLACE MACRO is_generic(failure) AS failure = 'python-exception';
CREATE OR REPLACE MACRO stop_kind(failure, role, message) AS CASE
  WHEN role = 'teardown' OR contains(coalesce(message, ''), 'DUE TO TASK FAILURE') THEN NULL
  WHEN failure = 'slurm-time-limit' THEN 'timeout'
  WHEN failure = 'job-preempted' THEN 'preempted'
  WHEN failure = 'slurm-step-cancelled' THEN 'cancelled' END;
CREATE OR REPLACE MACRO is_scheduling(failure) AS
  failure IN ('slurm-time-limit', 'job-preempted', 'slurm-step-cancelled');

-- Whether a line is no sign of trouble of its own: teardown, context, collateral of no weight.
CREATE OR REPLACE MACRO is_noise(role, severity) AS
  role IN ('teardown', 'context')
  OR (role = 'collateral' AND severity IS NOT NULL AND severity IN ('low', 'info'));

-- Whether a line says that a process died, in whatever way.
CREATE OR REPLACE MACRO is_death(failure) AS starts_with(failure, 'process-sig')
  OR starts_with(failure, 'exit-') OR failure IN ('srun-exit', 'launcher-child-failed',
    'torchelastic-child-failed', 'pdsh-exit', 'jax-peer-terminated', 'ray-actor-died');

-- What a scheduler's final state means.
CREATE OR REPLACE MACRO state_outcome(state) AS CASE
  WHEN state IS NULL THEN NULL
  WHEN regexp_matches(upper(state), '^(COMPLETED|SUCCEEDED|CD)\b') THEN 'completed'
  WHEN regexp_matches(upper(state), '^(TIMEOUT|DEADLINE|TO|DL)\b') THEN 'timeout'
  WHEN regexp_matches(upper(state), '^(PREEMPTED|PR)\b') THEN 'preempted'
  WHEN regexp_matches(upper(state), '^(CANCELLED|CA)\b') THEN 'cancelled'
  WHEN regexp_matches(upper(state),
    '^(FAILED|NODE_FAIL|OUT_OF_MEMORY|BOOT_FAIL|ERROR|OOM|F|NF|BF)\b') THEN 'failed' END;

-- Files that were read, without copies of another file of the same rank and host. A run is the job
-- where no path says more. attempt_id is a number for (cluster, run, attempt); it means nothing
-- outside one query.
CREATE OR REPLACE VIEW live_files AS
SELECT f.* REPLACE (coalesce(f.run, f.job) AS run),
  hash(f.cluster, coalesce(f.run, f.job), f.attempt) AS attempt_id
FROM files AS f LEFT JOIN files AS o ON o.file_id = f.copy_of
WHERE f.status IN ('ok', 'truncated')
  AND (o.file_id IS NULL OR o.rank IS DISTINCT FROM f.rank OR o.host IS DISTINCT FROM f.host);

-- Events of those files with the bounds of what they say: t0 when it began, t1 when it was last
-- printed (a bound where the line has no time), t1_hi the latest it can have been.
CREATE OR REPLACE VIEW live_events AS
SELECT e.* REPLACE (coalesce(e.run, e.job) AS run),
  coalesce(e.t_eff, e.ts_hi) AS t0,
  greatest(coalesce(e.ts_last, e.ts, e.ts_lo, e.ts_hi), e.t_eff) AS t1,
  coalesce(e.ts_last, e.ts, e.ts_hi) AS t1_hi,
  coalesce(e.last_line_no, e.line_no) AS line_end,
  coalesce(e.t_eff, e.ts_hi, f.last_ts, f.mtime) AS t_about,
  f.path, f.rank AS file_rank,
  coalesce(e.run, e.job) IS NULL OR coalesce(f.kind IN ('dmesg', 'syslog'), false) AS from_host,
  CASE WHEN coalesce(e.run, e.job) IS NOT NULL
    THEN hash(e.cluster, coalesce(e.run, e.job), e.attempt) END AS file_attempt_id
FROM events AS e
LEFT JOIN live_files AS f ON f.file_id = e.file_id
WHERE f.file_id IS NOT NULL OR NOT EXISTS (FROM files AS x WHERE x.file_id = e.file_id);

-- One row an attempt (a launch of a run), healthy ones too, without its outcome.
CREATE OR REPLACE VIEW attempt_spans AS
WITH labelled AS (
  SELECT attempt_id, any_value(cluster) AS cluster, any_value(run) AS run, any_value(job) AS job,
    any_value(attempt) AS attempt, count(*) AS files, count(rank) AS rank_files,
    list(DISTINCT rank) AS ranks, list(DISTINCT host) AS hosts,
    min(first_ts) AS first_ts, max(last_ts) AS last_ts, max(mtime) AS mtime
  FROM live_files WHERE run IS NOT NULL GROUP BY attempt_id
), told AS (
  SELECT file_attempt_id AS attempt_id, any_value(cluster) AS cluster, any_value(run) AS run,
    any_value(job) AS job, any_value(attempt) AS attempt,
    greatest(max(world_size), max(try_cast(captures['nranks'] AS INTEGER))) AS world_size,
    max(greatest(step, try_cast(captures['step_last'] AS BIGINT)))
      FILTER (failure IN ('training-step', 'checkpoint-complete')) AS last_step,
    list(DISTINCT rank) AS ranks, list(DISTINCT host) AS hosts,
    min(t0) AS first_ts, max(t1) AS last_ts
  FROM live_events WHERE file_attempt_id IS NOT NULL GROUP BY file_attempt_id
), scheduled AS (
  SELECT *, row_number() OVER (
    PARTITION BY cluster, job ORDER BY attempt DESC NULLS LAST) AS newest
  FROM jobs
), logged AS (
  SELECT attempt_id, coalesce(l.cluster, t.cluster) AS cluster, coalesce(l.run, t.run) AS run,
    coalesce(l.job, t.job) AS job, coalesce(l.attempt, t.attempt) AS attempt,
    coalesce(l.files, 1) AS files, coalesce(l.rank_files, 0) AS rank_files,
    least(l.first_ts, t.first_ts) AS first_ts, greatest(l.last_ts, t.last_ts) AS last_ts, l.mtime,
    list_distinct(list_concat(coalesce(l.ranks, []), coalesce(t.ranks, []))) AS ranks,
    list_distinct(list_concat(coalesce(l.hosts, []), coalesce(t.hosts, []))) AS hosts,
    t.world_size, t.last_step
  FROM labelled AS l FULL JOIN told AS t USING (attempt_id)
), joined AS (
  SELECT l.attempt_id, coalesce(l.cluster, j.cluster) AS cluster, coalesce(l.run, j.job) AS run,
    coalesce(l.job, j.job) AS job, coalesce(l.attempt, j.attempt) AS attempt,
    coalesce(l.files, 0) AS files, coalesce(l.rank_files, 0) AS rank_files, l.ranks,
    l.hosts, l.first_ts, l.last_ts, l.mtime, l.world_size, l.last_step,
    j.state, j.source, j.start_ts, j.end_ts, j.submit_ts, j.gpus, j.nodes, j.hosts AS job_hosts
  FROM logged AS l
  FULL JOIN scheduled AS j
    ON j.job = l.job AND coalesce(j.cluster, '') = coalesce(l.cluster, '')
    AND coalesce(j.attempt = l.attempt, l.attempt IS NOT NULL OR j.newest = 1)
  QUALIFY l.attempt_id IS NULL OR row_number() OVER (
    PARTITION BY l.attempt_id ORDER BY j.attempt = l.attempt DESC NULLS LAST, j.newest) = 1
)
SELECT coalesce(attempt_id, hash(cluster, run, attempt)) AS attempt_id,
  cluster, run, job, attempt, files, rank_files,
  len(coalesce(ranks, [])) AS ranks_seen, len(coalesce(hosts, [])) AS hosts_seen,
  list_sort(list_distinct(list_concat(coalesce(hosts, []), coalesce(job_hosts, [])))) AS hosts,
  world_size, last_step,
  coalesce(start_ts, first_ts) AS first_ts, coalesce(end_ts, last_ts) AS last_ts,
  coalesce(end_ts, last_ts, start_ts, first_ts, mtime) AS t_about,
  submit_ts, coalesce(gpus, world_size) AS gpus, coalesce(nodes, len(job_hosts)) AS nodes,
  state, source
FROM joined;

-- The folders of a file, from the argument's own (empty) down to the one it lies in.
CREATE OR REPLACE MACRO folders_of(path) AS list_transform(
  range(0, len(string_split_regex(path, '[/!]'))),
  lambda n: array_to_string(string_split_regex(path, '[/!]')[1:n], '/'));

-- Logs of hosts and schedulers that were kept beside those of one run, with its attempts: the
-- deepest folder around such a log that has logs of runs has those of one run alone.
CREATE OR REPLACE VIEW kept_beside AS
WITH lone AS (
  SELECT file_id, host, unnest(folders_of(path)) AS folder FROM live_files WHERE run IS NULL
), held AS (
  SELECT DISTINCT attempt_id, run_id, unnest(folders_of(folder)) AS folder
  FROM (
    SELECT DISTINCT attempt_id, hash(cluster, run) AS run_id,
      regexp_replace(path, '[^/!]*$', '') AS folder
    FROM live_files WHERE run IS NOT NULL AND EXISTS (FROM lone))
), folders AS (
  SELECT folder, min(run_id) = max(run_id) AS of_one FROM held GROUP BY folder
), around AS (
  SELECT l.file_id, l.host, folder, f.of_one
  FROM lone AS l JOIN folders AS f USING (folder)
  QUALIFY row_number() OVER (PARTITION BY l.file_id ORDER BY len(folder) DESC) = 1
)
SELECT r.file_id, r.host, h.attempt_id
FROM (FROM around WHERE of_one) AS r JOIN held AS h USING (folder);

-- Events with the attempt they belong to. An event of a host's or a scheduler's log belongs to the
-- one attempt that ran on its host then, up to 5 min after its end; on a shared host to none. Where
-- no host says so, one in a log kept beside a run belongs to it from 10 min before its first line;
-- but not where any of these logs is of a host that the run is known to use, and it has a time.
CREATE OR REPLACE VIEW placed_events AS
WITH ran AS (
  SELECT attempt_id, cluster, run, job, attempt, unnest(hosts) AS host, first_ts, last_ts
  FROM attempt_spans
), homeless AS (
  SELECT event_id, file_id, cluster, host, coalesce(t_eff, ts_hi) AS t0
  FROM events WHERE coalesce(run, job) IS NULL
), near AS (
  SELECT e.event_id, r.attempt_id, r.run, r.job, r.attempt, e.t0 <= r.last_ts AS inside,
    r.last_ts
  FROM homeless AS e
  JOIN ran AS r ON r.host = e.host AND coalesce(r.cluster, '') = coalesce(e.cluster, '')
    AND e.t0 >= r.first_ts - INTERVAL 2 SECOND AND e.t0 <= r.last_ts + INTERVAL 5 MINUTE
), hosted AS (
  FROM near
  QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY inside DESC, last_ts DESC) = 1
    AND count(*) FILTER (inside) OVER (PARTITION BY event_id) <= 1
), beside AS (
  SELECT k.*, r.run, r.job, r.attempt, r.first_ts, r.last_ts, r.hosts,
    bool_or(coalesce(list_contains(r.hosts, k.host), false)) OVER (PARTITION BY k.attempt_id)
      AS known
  FROM kept_beside AS k JOIN attempt_spans AS r USING (attempt_id)
), placed AS (
  FROM hosted
  UNION ALL
  SELECT e.event_id, b.attempt_id, b.run, b.job, b.attempt, e.t0 <= b.last_ts, b.last_ts
  FROM homeless AS e JOIN beside AS b USING (file_id)
  WHERE e.event_id NOT IN (SELECT event_id FROM near)
    AND coalesce(e.t0 >= b.first_ts - INTERVAL 10 MINUTE, true)
    AND coalesce(e.t0 <= b.last_ts + INTERVAL 5 MINUTE, true)
    AND (NOT b.known OR e.host IS NULL OR (e.t0 IS NULL AND list_contains(b.hosts, e.host)))
  QUALIFY row_number() OVER (
    PARTITION BY e.event_id ORDER BY e.t0 <= b.last_ts DESC NULLS LAST, b.attempt DESC) = 1
)
SELECT e.* EXCLUDE (file_attempt_id) REPLACE (
    coalesce(e.run, h.run) AS run, coalesce(e.job, h.job) AS job,
    coalesce(e.attempt, h.attempt) AS attempt),
  coalesce(e.file_attempt_id, h.attempt_id) AS attempt_id
FROM live_events AS e LEFT JOIN placed AS h ON h.event_id = e.event_id;

-- Events that bear on how an attempt ended: causes, confirmations and collateral, its end, the
-- scheduler's word, and what a reading reads; with what stands after each of them.
-- `recovered`: real progress followed, so it did not end the attempt. That is a later step or
-- checkpoint of the same rank, the end of the run, three steps further on in the file, or a step
-- of any rank a minute later (training is synchronous: the others do not go on without a dead
-- rank). `stopped`: the scheduler had already ended the attempt. `after_done`: the run had completed.
-- Progress is by far the most of what logs hold, so it is summed up first and joined to the rest.
CREATE OR REPLACE VIEW marks AS
WITH relevant AS MATERIALIZED (
  SELECT event_id, attempt_id, file_id, path, line_no, line_end, failure, signature, role, severity,
    rank, t0, t1, t1_hi, repeats,
    failure = 'run-completed' AS ends, failure = 'training-step' AS steps,
    failure IN ('training-step', 'checkpoint-complete') AS advances,
    stop_kind(failure, role, message) AS stop, is_generic(failure) AS generic
  FROM placed_events
  WHERE attempt_id IS NOT NULL AND (role IN ('cause', 'confirmation', 'collateral')
    OR failure IN ('training-step', 'checkpoint-complete', 'run-completed')
    OR is_scheduling(failure) OR signature IN (SELECT event FROM readings))
), marked AS (
  SELECT * EXCLUDE (steps),
    role IN ('cause', 'confirmation', 'collateral') AND NOT is_scheduling(failure) AND NOT ends
      AND NOT advances AS trouble
  FROM relevant
  WHERE NOT advances OR signature IN (SELECT event FROM readings)
), by_attempt AS (
  SELECT attempt_id, bool_or(ends) AS done, max(t1_hi) FILTER (ends) AS done_t,
    max(t1_hi) FILTER (steps) AS step_t, min(t1) FILTER (stop IS NOT NULL) AS stop_t,
    bool_or(stop IS NOT NULL) AS has_stop, coalesce(min(rank) = max(rank), true) AS lone
  FROM relevant GROUP BY attempt_id
), by_file AS (
  SELECT file_id, max(line_end) FILTER (ends) AS done_line,
    min(line_no) FILTER (stop IS NOT NULL) AS stop_line
  FROM relevant WHERE ends OR stop IS NOT NULL GROUP BY file_id
), by_rank AS (
  SELECT attempt_id, rank, max(t1_hi) AS own_t
  FROM relevant WHERE advances AND rank IS NOT NULL GROUP BY ALL
), by_rank_file AS (
  SELECT file_id, rank, max(line_end) AS own_line FROM relevant WHERE advances GROUP BY ALL
), third_steps AS (  -- the line of the third step from the end of a file
  SELECT file_id,
    max(line_end - (line_end - line_no) * least(1, (3 - steps_later) / repeats)) AS third_line
  FROM (
    SELECT file_id, line_no, line_end, repeats, coalesce(sum(repeats) OVER (
      PARTITION BY file_id ORDER BY line_no DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS steps_later
    FROM relevant WHERE steps AND file_id IN (SELECT file_id FROM marked WHERE trouble))
  WHERE steps_later < 3 AND steps_later + repeats >= 3
  GROUP BY file_id
)
SELECT m.*, a.done,
  NOT m.ends AND NOT m.advances AND (
    coalesce(m.line_end < f.done_line, false)
    OR coalesce(m.t1_hi < a.done_t, false)
    OR coalesce(m.line_end < o.own_line AND (m.rank IS NOT NULL OR a.lone), false)
    OR coalesce(m.t1_hi < r.own_t, false)
    OR coalesce(m.line_end < t.third_line, false)
    OR coalesce(m.t1_hi + INTERVAL 60 SECOND < a.step_t, false)) AS recovered,
  coalesce(m.line_no > f.stop_line, m.t0 > a.stop_t + INTERVAL 2 SECOND, a.has_stop AND m.generic)
    AS stopped,
  coalesce(m.line_no > f.done_line, m.t0 >= a.done_t, false) AS after_done
FROM marked AS m
JOIN by_attempt AS a ON a.attempt_id = m.attempt_id
LEFT JOIN by_file AS f ON f.file_id = m.file_id
LEFT JOIN by_rank AS r ON r.attempt_id = m.attempt_id AND r.rank = m.rank
LEFT JOIN by_rank_file AS o ON o.file_id = m.file_id AND o.rank IS NOT DISTINCT FROM m.rank
LEFT JOIN third_steps AS t ON t.file_id = m.file_id;

-- One row an attempt with how it ended; `crashed` where a process died after the run had completed.
-- The scheduler's word wins over the log's, but a cancelled attempt whose cause lies in its last
-- 5 min was stopped because it had failed.
CREATE OR REPLACE VIEW attempts AS
WITH signs AS (
  SELECT attempt_id, bool_or(ends) AS done,
    bool_or(stop = 'timeout') AS timed_out, bool_or(stop = 'preempted') AS preempted,
    bool_or(stop = 'cancelled') AS cancelled,
    bool_or(caused) AS caused, max(t1) FILTER (caused) AS cause_t,
    bool_or(live AND role = 'collateral' AND NOT is_noise(role, severity)) AS hurt,
    bool_or(live AND after_done AND is_death(failure)) AS crashed
  FROM (
    SELECT *, trouble AND NOT recovered AND NOT stopped AS live,
      live AND role <> 'collateral' AND NOT (generic AND done) AS caused
    FROM marks)
  GROUP BY attempt_id
), judged AS (
  SELECT s.*, g.caused, g.cause_t, g.crashed, state_outcome(s.state) AS said,
    CASE WHEN g.caused THEN 'failed'
      WHEN g.done THEN 'completed'
      WHEN g.timed_out THEN 'timeout'
      WHEN g.preempted THEN 'preempted'
      WHEN g.cancelled AND NOT g.hurt THEN 'cancelled'
      WHEN g.hurt THEN 'failed'
      ELSE 'unknown' END AS told
  FROM attempt_spans AS s LEFT JOIN signs AS g ON g.attempt_id = s.attempt_id
), settled AS (
  SELECT *, coalesce(said = 'cancelled' AND caused
      AND (cause_t >= last_ts - INTERVAL 5 MINUTE OR cause_t IS NULL), false) AS inferred
  FROM judged
)
SELECT attempt_id, cluster, run, job, attempt, files, rank_files, ranks_seen, hosts_seen,
  world_size, gpus, nodes, first_ts, last_ts, last_step, submit_ts, hosts,
  CASE WHEN inferred THEN 'failed' ELSE coalesce(said, told) END AS outcome,
  CASE WHEN inferred THEN 'inferred' WHEN said IS NOT NULL THEN coalesce(source, 'jobs')
    ELSE 'log' END AS state_source,
  coalesce(crashed, false) AS crashed, t_about
FROM settled;

-- The members of incidents (three-step filtering of Liang et al., DSN'05, then gap tupling): an
-- incident is the union of intervals [t0, t1] of one place, joined across gaps up to window_s.
-- A place is the attempt (`run`), else the host; the host; or the whole cluster. A repeat (same
-- signature, rank and host within dup_s of the one before) and an echo (same signature elsewhere
-- within spatial_s of its episode's first) never start an incident and are not counted. Warnings
-- (context) join an incident that is near but never stretch or join others; teardown and collateral
-- of no weight make none.
-- Events without any time make one incident a file, per-rank files of an attempt one together.
-- Longer than max_h hours, an incident is cut and flagged.
CREATE OR REPLACE MACRO incident_events(
  window_s := 300, dup_s := 5, spatial_s := 60, max_h := 6, scope := 'run') AS TABLE
WITH placed AS MATERIALIZED (
  SELECT event_id, attempt_id, cluster, run, job, attempt, file_id, path, file_rank, host, rank,
    signature, failure, role, severity, repeats, line_no, ts, t_about, t0, t1
  FROM placed_events
  WHERE role IN ('cause', 'confirmation', 'collateral', 'teardown')
    OR (role = 'context' AND severity IS DISTINCT FROM 'info')
), keyed AS (
  SELECT *, hash(spot, warning) AS place, hash(spot, signature) AS same_key,
    hash(spot, signature, host, rank) AS own_key
  FROM (
    SELECT event_id, signature, host, rank, line_no, t0, greatest(t0, t1) AS t1,
      role <> 'cause' AS later, role = 'context' AS warning, is_noise(role, severity) AS noise,
      hash(
        CASE WHEN scope = 'cluster' THEN hash(cluster)
          WHEN scope = 'host' THEN hash(cluster, host, 'host')
          ELSE coalesce(attempt_id, hash(cluster, host, CASE WHEN host IS NULL THEN path END)) END,
        CASE WHEN t0 IS NULL AND (file_rank IS NULL OR attempt_id IS NULL) THEN path
          WHEN t0 IS NULL THEN 'no time' END) AS spot
    FROM placed)
), paced AS (
  SELECT event_id, spot, place, same_key, warning, noise, later, line_no, t0, t1,
    row_number() OVER (PARTITION BY place ORDER BY t0, event_id) = 1 AS opens,
    max(t1) OVER (PARTITION BY place ORDER BY t0, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier,
    dup_s > 0 AND coalesce(seconds_between(
      max(t1) OVER (PARTITION BY own_key ORDER BY t0, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), t0) <= dup_s, false) AS is_repeat,
    spatial_s > 0 AND coalesce(seconds_between(
      max(t1) OVER (PARTITION BY same_key ORDER BY t0, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), t0) <= spatial_s, t0 IS NULL) AS near
  FROM keyed
), burst AS (
  SELECT *, sum((NOT near)::INTEGER)
    OVER (PARTITION BY same_key ORDER BY t0, event_id) AS burst_no
  FROM paced
), episode AS (  -- an episode ends spatial_s after its first; timeless lines of a file are one
  SELECT *, floor(seconds_between(min(t0) OVER (PARTITION BY same_key, burst_no), t0)
    / greatest(spatial_s, 1e-6)) AS episode_no
  FROM burst
), echoed AS (
  SELECT *, row_number() OVER (
    PARTITION BY same_key, burst_no, episode_no ORDER BY t0, event_id) > 1 AS is_echo
  FROM episode
), islands AS (
  SELECT *, sum((opens OR (NOT is_repeat AND NOT is_echo
      AND seconds_between(earlier, t0) > window_s))::INTEGER)
      OVER (PARTITION BY place ORDER BY t0, event_id) AS island
  FROM echoed
), cut AS (
  SELECT *,
    CASE WHEN max_h > 0
      THEN floor(seconds_between(min(t0) OVER w, t0) / (3600 * max_h)) END AS piece,
    coalesce(max_h > 0 AND seconds_between(min(t0) OVER w, max(t1) OVER w) > 3600 * max_h,
      false) AS capped
  FROM islands WINDOW w AS (PARTITION BY place, island)
), grouped AS (
  SELECT event_id, spot, place, warning, t0, t1, is_repeat, is_echo, capped,
    first_value(event_id) OVER (
      PARTITION BY place, island, piece ORDER BY t0, later, line_no, event_id) AS incident_id,
    warning OR bool_or(NOT noise) OVER (PARTITION BY place, island, piece) AS wrong
  FROM cut
), spans AS (  -- of incidents proper, and which warnings they take in
  SELECT spot, incident_id, any_value(capped) AS capped, min(t0) AS t_first, max(t1) AS t_last,
    coalesce(min(t0), TIMESTAMP '1970-01-01') AS t_key
  FROM grouped WHERE NOT warning AND wrong GROUP BY spot, incident_id
), taken AS (
  SELECT g.event_id, s.incident_id, s.capped
  FROM (FROM grouped WHERE warning) AS g
  ASOF JOIN spans AS s ON s.spot = g.spot
    AND coalesce(g.t0, TIMESTAMP '1970-01-01')
      >= s.t_key - to_microseconds((1e6 * window_s)::BIGINT)
  WHERE coalesce(seconds_between(s.t_last, g.t0) <= window_s, true)
)
SELECT p.* EXCLUDE (severity, file_rank), g.warning,
  g.is_repeat, g.is_echo, coalesce(n.incident_id, g.incident_id) AS incident_id,
  coalesce(n.capped, g.capped) AS capped, g.warning AND n.event_id IS NULL AS warning_only
FROM grouped AS g
JOIN placed AS p ON p.event_id = g.event_id
LEFT JOIN taken AS n ON n.event_id = g.event_id
WHERE g.wrong;

-- Those of the usual windows.
CREATE OR REPLACE VIEW incident_members AS FROM incident_events();

-- One row an incident.
CREATE OR REPLACE MACRO incident_rows(
  window_s := 300, dup_s := 5, spatial_s := 60, max_h := 6, scope := 'run') AS TABLE
WITH members AS (
  FROM incident_events(window_s := window_s, dup_s := dup_s, spatial_s := spatial_s,
    max_h := max_h, scope := scope)
), rows AS (
  SELECT incident_id,
    CASE WHEN min(cluster) = max(cluster) THEN min(cluster) END AS cluster,
    CASE WHEN count(DISTINCT attempt_id) = 1 THEN any_value(run) END AS run,
    CASE WHEN count(DISTINCT attempt_id) = 1 THEN any_value(job) END AS job,
    CASE WHEN count(DISTINCT attempt_id) = 1 THEN any_value(attempt) END AS attempt,
    CASE WHEN count(DISTINCT attempt_id) = 1 THEN any_value(attempt_id) END AS attempt_id,
    min(t0) FILTER (alone OR NOT warning) AS t_first,
    max(t1) FILTER (alone OR NOT warning) AS t_last,
    count(*) FILTER (NOT is_repeat AND NOT is_echo) AS n_events,
    sum(repeats)::BIGINT AS n_raw_events,
    count(DISTINCT hash(attempt_id, rank)) FILTER (rank IS NOT NULL) AS n_ranks,
    count(DISTINCT host) AS n_hosts,
    list_sort(list(DISTINCT signature)) AS signatures,
    list_sort(list(DISTINCT failure)) AS failures,
    arg_min(signature, place) AS first_signature, arg_min(failure, place) AS first_failure,
    arg_min({'host': host}, place).host AS first_host,
    arg_min({'rank': rank}, place).rank AS first_rank,
    arg_min(path, place) AS first_file, arg_min(line_no, place) AS first_line,
    CASE WHEN count(*) = count(ts) THEN 'own' WHEN count(t0) > 0 THEN 'bounds' ELSE 'order_only' END
      AS ts_quality,
    bool_or(capped) AS capped, bool_and(warning) AS warning_only, max(t_about) AS t_about,
    list_sort(list(DISTINCT role)) AS roles,
    bool_or(live) AS live
  FROM (
    SELECT m.*, warning_only AS alone,
      {'a': warning, 'b': t0, 'c': role <> 'cause', 'd': line_no, 'e': event_id} AS place,
      event_id IN (SELECT event_id FROM marks WHERE trouble AND NOT recovered) AS live
    FROM members AS m)
  GROUP BY incident_id
)
SELECT r.* EXCLUDE (live), seconds_between(t_first, t_last) AS duration_s,
  coalesce(live AND a.outcome = 'failed', false) AS ended_attempt,
  CASE WHEN live AND a.outcome = 'failed' THEN greatest(a.gpus, r.n_ranks) ELSE r.n_ranks END
    AS gpus_affected,
  a.outcome, a.first_ts AS attempt_first_ts
FROM rows AS r LEFT JOIN attempts AS a USING (attempt_id);

CREATE OR REPLACE VIEW incidents AS FROM incident_rows();
