-- Which failure came first, on which rank and host: what `diagnose` and the reports answer with.
--
-- Pure SQL over the views of views.sql. What failures are to each other comes from the tables
-- `precedence`, `readings` and `traits`; named in here are only marks of progress, the launcher's
-- table of dead children, and what says the size of the world.

-- Whether a failure or a signature has a trait.
CREATE OR REPLACE MACRO has_trait(failure, signature, wanted) AS EXISTS (
  FROM traits AS t WHERE t.trait = wanted AND t.subject IN (failure, signature));

-- Whether a message is the last line of a Python traceback.
CREATE OR REPLACE MACRO is_exception(message) AS
  regexp_matches(message, '^\W*[\w.]*(?:Error|Exception|Interrupt|Exit)\b');

-- The rank in whose folder or file a path lies: .../rank3/..., rank_3.log.
CREATE OR REPLACE MACRO rank_of_path(path) AS
  try_cast(nullif(regexp_extract(path, '(?:^|[/_.-])rank[_-]?0*([0-9]{1,6})(?:[/_.-]|$)', 1), '')
    AS INTEGER);

-- The local rank that torchelastic names a folder of logs after: attempt_0/3/stderr.log.
CREATE OR REPLACE MACRO local_of_path(path) AS
  try_cast(nullif(regexp_extract(path, 'attempt_[0-9]+/([0-9]{1,4})/std(?:out|err)', 1), '')
    AS INTEGER);

-- The events of attempts that may have failed, and of hosts that ran none.
-- Staged, a table; first_failures reads it instead of `placed_events` then.
CREATE OR REPLACE VIEW unit_events AS
FROM placed_events
WHERE attempt_id IS NULL
  OR attempt_id IN (SELECT attempt_id FROM attempts WHERE outcome = 'failed' OR crashed)
  OR attempt_id IN (SELECT attempt_id FROM marks WHERE role IN ('cause', 'confirmation'));

-- What went wrong first: one row an attempt that failed or crashed at its end, or
-- (grain := 'incident') one an incident.
-- Of a rank's causes in a file the first counts, a generic exception only where nothing specific
-- is there. Across files the earliest t0 wins; within skew_s, and inside one file whose lines lack
-- times, line order decides and all ranks of the same failure are tied. A confirmation (kernel
-- oom) counts from the first death that it explains. Collateral never outranks a cause. Where
-- there is no cause, one that had been got over counts if what ended the attempt is its known
-- effect, else the first reading that fits, else what launcher and signals say.
CREATE OR REPLACE MACRO first_failures(grain := 'attempt', skew_s := 2) AS TABLE
WITH all_runs AS MATERIALIZED (  -- staged: WITH all_runs AS NOT MATERIALIZED (
  FROM attempts
), all_marks AS MATERIALIZED (  -- staged: ), all_marks AS NOT MATERIALIZED (
  SELECT event_id, attempt_id, file_id, path, line_no, failure, signature, role, rank, t0, t1,
    recovered, stopped, after_done, generic, done, trouble
  FROM marks
), wanted AS MATERIALIZED (  -- the attempts to look at: all else is left aside at once
  SELECT attempt_id FROM all_runs WHERE grain <> 'incident' AND (outcome = 'failed' OR crashed)
  UNION
  SELECT attempt_id FROM all_marks WHERE grain = 'incident' AND role IN ('cause', 'confirmation')
), runs AS MATERIALIZED (
  FROM all_runs WHERE attempt_id IN (FROM wanted)
), placed AS MATERIALIZED (  -- staged: ), placed AS NOT MATERIALIZED (
  SELECT attempt_id, event_id, file_id, path, line_no, line_end, role, failure, signature, severity,
    rank, host, pid, t0, t1, ts, ts_lo, ts_hi, repeats, message, captures, from_host
  FROM placed_events  -- staged: FROM unit_events
  WHERE attempt_id IN (FROM wanted) OR (attempt_id IS NULL AND grain = 'incident')
), marked AS NOT MATERIALIZED (
  FROM all_marks WHERE attempt_id IN (FROM wanted)
), process_ranks AS MATERIALIZED (  -- by a line with both, or a communicator of the whole world
  SELECT attempt_id, host, pid, min(rank) AS rank
  FROM (
    SELECT e.attempt_id, e.host, e.pid, coalesce(
        CASE WHEN try_cast(e.captures['nranks'] AS INTEGER) = a.world_size
          THEN try_cast(e.captures['pg_rank'] AS INTEGER) END, e.rank) AS rank
    FROM placed AS e JOIN runs AS a USING (attempt_id)
    WHERE e.pid IS NOT NULL)
  WHERE rank IS NOT NULL
  GROUP BY attempt_id, host, pid HAVING min(rank) = max(rank)
), told AS (
  FROM placed WHERE failure = 'torchelastic-child-failed' AND attempt_id IS NOT NULL
), reaped AS (  -- torchrun's table of dead children, a row each; `first` stands under its marker
  SELECT r.attempt_id, r.event_id, r.file_id, r.path, r.line_no, r.severity, r.message, r.t0,
    try_cast(r.captures['peer_rank'] AS INTEGER) AS rank,
    max(n.captures['peer_host']) FILTER (n.line_no < r.line_no) AS host,
    try_strptime(max(n.captures['at']) FILTER (n.line_no < r.line_no), '%Y-%m-%d_%H:%M:%S')
      AS died_at,
    try_cast(max(n.captures['exit_code']) FILTER (n.line_no > r.line_no) AS INTEGER) AS exit_code,
    bool_or(n.signature = 'torchelastic-first-failure') AS first
  FROM (FROM told WHERE captures['peer_rank'] IS NOT NULL) AS r
  JOIN told AS n ON n.file_id = r.file_id AND n.rank IS NOT DISTINCT FROM r.rank
    AND (n.line_no BETWEEN r.line_no - 2 AND r.line_no + 1
      OR (n.signature = 'torchelastic-first-failure'
        AND n.line_no BETWEEN r.line_no - 5 AND r.line_no))
  GROUP BY ALL
), homes AS MATERIALIZED (  -- where the logs show a rank to run
  SELECT attempt_id, rank, min(host) AS host
  FROM (
    SELECT attempt_id, rank, host FROM placed
    UNION ALL
    SELECT attempt_id, rank, host FROM process_ranks
    UNION ALL
    SELECT attempt_id, rank, host FROM reaped)
  WHERE rank IS NOT NULL AND host IS NOT NULL AND attempt_id IS NOT NULL
  GROUP BY attempt_id, rank HAVING min(host) = max(host)
), judged AS (
  SELECT event_id, recovered, stopped, generic AND done AS late
  FROM marked WHERE trouble
), members AS (
  SELECT p.attempt_id AS unit, p.* EXCLUDE (path, message, captures, pid)
  FROM placed AS p
  WHERE grain <> 'incident' AND p.role IN ('cause', 'confirmation', 'collateral', 'teardown')
    AND p.attempt_id IS NOT NULL
  UNION ALL
  SELECT i.incident_id AS unit, p.* EXCLUDE (path, message, captures, pid)
  FROM (
    SELECT incident_id, event_id FROM incident_events() WHERE grain = 'incident' AND NOT warning
  ) AS i JOIN placed AS p USING (event_id)
), happened AS MATERIALIZED (
  SELECT m.* REPLACE (coalesce(m.host, o.host) AS host),
    NOT is_scheduling(m.failure) AND NOT coalesce(j.stopped, false) AND NOT coalesce(j.late, false)
      AS possible,
    possible AND (grain = 'incident' OR NOT coalesce(j.recovered, false)) AS eligible
  FROM members AS m LEFT JOIN judged AS j USING (event_id)
  LEFT JOIN homes AS o ON o.attempt_id = m.attempt_id AND o.rank = m.rank
), explained AS (  -- the deaths that a confirmation may explain
  SELECT unit, c.event_id, min(d.t0) AS t0,
    min(d.line_no) FILTER (d.file_id = c.file_id) AS line_no
  FROM (FROM happened WHERE role = 'confirmation' AND eligible) AS c
  JOIN (FROM happened WHERE role = 'collateral' AND eligible) AS d USING (unit)
  WHERE (d.file_id = c.file_id AND d.line_no < c.line_no)
    OR d.t0 BETWEEN c.t0 - INTERVAL 10 MINUTE AND c.t0
  GROUP BY unit, c.event_id
), effects AS MATERIALIZED (  -- causes that another failure is known to bring about
  SELECT h.unit, h.event_id, h.file_id, h.rank, h.host, h.t0,
    coalesce(h.ts, h.ts_hi) AS latest, p.cause, coalesce(p.lag_hi_s, 600) AS lag_s
  FROM happened AS h
  JOIN precedence AS p ON p.effect = h.failure AND p.scope IN ('same-rank', 'same-gpu', 'same-host')
  WHERE h.eligible AND h.role IN ('cause', 'confirmation')
    AND NOT EXISTS (FROM precedence AS q WHERE q.cause = p.effect AND q.effect = p.cause)
), wrapped AS (  -- those whose cause is there, on the same rank or host
  SELECT DISTINCT h.event_id
  FROM effects AS h
  JOIN (FROM happened WHERE eligible AND role <> 'collateral') AS k
    ON k.unit = h.unit AND k.failure = h.cause
    AND ((k.file_id = h.file_id AND k.rank IS NOT DISTINCT FROM h.rank)
      OR ((k.host = h.host OR (k.from_host AND h.host IS NULL))
        AND k.t0 <= coalesce(h.latest, k.t0) + INTERVAL 2 SECOND
        AND seconds_between(k.t0, h.t0) <= h.lag_s))
), own AS (
  SELECT h.* REPLACE (least(h.t0, x.t0) AS t0),
    h.line_no AS said_at, least(h.line_no, x.line_no) AS line_key, is_generic(h.failure) AS generic,
    h.role = 'confirmation' AND x.event_id IS NULL AS unproved,
    h.event_id IN (FROM wrapped) AS wrapper, 'line' AS basis, NULL AS why
  FROM happened AS h LEFT JOIN explained AS x USING (unit, event_id)
  WHERE h.eligible AND h.role IN ('cause', 'confirmation')
  QUALIFY row_number() OVER (
    PARTITION BY h.unit, h.file_id, h.rank
    ORDER BY generic, wrapper, line_key, h.role = 'cause', h.event_id) = 1
), swallowed AS (  -- causes that were got over, of which the end is a known effect
  SELECT DISTINCT k.*, k.line_no AS said_at, k.line_no AS line_key, false AS generic,
    false AS wrapper, 'swallowed' AS basis,
    format('the run went on after it, and ended with {}, its known effect', h.failure) AS why
  FROM (FROM happened WHERE possible AND role = 'cause' AND NOT is_generic(failure)) AS k
  JOIN (
    SELECT unit, arg_min(failure, coalesce(t0, 'infinity'::TIMESTAMP)) AS failure, min(t0) AS t0
    FROM happened WHERE eligible AND role = 'collateral' AND NOT is_noise(role, severity)
    GROUP BY unit
  ) AS h USING (unit)
  JOIN precedence AS p ON p.cause = k.failure AND p.effect = h.failure
    AND seconds_between(k.t0, h.t0) BETWEEN -skew_s AND p.lag_hi_s
  WHERE grain <> 'incident' AND k.unit NOT IN (SELECT unit FROM own)
  QUALIFY row_number() OVER (PARTITION BY k.unit ORDER BY k.t0 DESC, k.line_no) = 1
), settled AS MATERIALIZED (  -- units that need no reading
  SELECT unit FROM own UNION SELECT unit FROM swallowed
), said AS MATERIALIZED (  -- of each reading and attempt the first line that it fits
  SELECT r.reading, r.becomes, r.phase, r.needs, r.quiet, r.shows, r.why, m.attempt_id, m.event_id,
    m.file_id, m.line_no, m.failure, m.t0, m.t1, m.rank
  FROM marked AS m JOIN readings AS r ON r.event IN (m.failure, m.signature)
  WHERE grain <> 'incident' AND NOT r.apart AND NOT coalesce(r.lags, false) AND r.attempts = 1
    AND m.attempt_id NOT IN (FROM settled) AND NOT m.stopped AND (m.after_done OR NOT m.recovered)
    AND m.after_done = (r.phase IS NOT NULL AND r.phase = 'done')
  QUALIFY row_number() OVER (
    PARTITION BY r.reading, m.attempt_id ORDER BY m.t0 NULLS LAST, m.path, m.line_no) = 1
), needed AS (
  SELECT s.reading, s.attempt_id,
    arg_max(e.event_id, (coalesce(e.t1, e.ts_lo, TIMESTAMP '1970-01-01'), e.line_no)) AS event_id
  FROM said AS s JOIN placed AS e USING (attempt_id)
  WHERE s.needs IN (e.failure, e.signature) AND e.event_id <> s.event_id
    AND CASE WHEN e.file_id = s.file_id THEN e.line_no < s.line_no
      ELSE coalesce(e.t0 <= s.t1, true) END
  GROUP BY ALL
), progress AS (
  SELECT s.reading, s.attempt_id, p.event_id, p.failure, p.file_id, p.line_no, p.line_end, p.t0,
    p.t1, p.repeats, p.file_id = s.file_id AS here,
    -- begun before the line's process began to wait; ended before it was printed
    CASE WHEN p.file_id = s.file_id AND (p.t0 IS NULL OR s.t0 IS NULL) THEN p.line_no < s.line_no
      ELSE p.t0 <= s.t0 + INTERVAL 5 SECOND END AS before,
    CASE WHEN p.file_id = s.file_id THEN p.line_no < s.line_no ELSE p.t1 <= s.t1 END AS before_print
  FROM said AS s JOIN placed AS p USING (attempt_id)
  WHERE p.failure IN ('training-step', 'checkpoint-begin', 'checkpoint-complete',
    'checkpoint-load-begin', 'checkpoint-loaded')
), begun AS (  -- the last save and load that began before it
  SELECT reading, attempt_id, failure = 'checkpoint-load-begin' AS loads,
    arg_max({'event_id': event_id, 'file_id': file_id, 'line_no': line_no, 't0': t0},
      (coalesce(t0, TIMESTAMP '1970-01-01'), line_no)) AS it
  FROM progress
  WHERE failure IN ('checkpoint-begin', 'checkpoint-load-begin') AND before GROUP BY ALL
), opened AS (  -- those which nothing completed and no three steps followed
  SELECT b.reading, b.attempt_id, b.loads, b.it.event_id AS event_id
  FROM begun AS b LEFT JOIN progress AS p ON p.reading = b.reading AND p.attempt_id = b.attempt_id
    AND p.before_print AND CASE WHEN p.file_id = b.it.file_id THEN p.line_no > b.it.line_no
      ELSE p.t0 > b.it.t0 END
  GROUP BY ALL
  HAVING count(*) FILTER (p.failure = CASE WHEN b.loads THEN 'checkpoint-loaded'
      ELSE 'checkpoint-complete' END) = 0
    AND coalesce(sum(p.repeats) FILTER (p.failure = 'training-step'), 0) < 3
), phased AS (
  SELECT s.*, n.event_id AS needed_id,
    max(o.event_id) FILTER (NOT o.loads) AS saving_id,
    max(o.event_id) FILTER (o.loads) AS loading_id,
    EXISTS (FROM progress AS p WHERE p.reading = s.reading AND p.attempt_id = s.attempt_id
      AND p.failure = 'training-step' AND (p.before OR NOT coalesce(p.before, false) AND p.here
        AND p.line_no < s.line_no)) AS stepped
  FROM said AS s
  LEFT JOIN needed AS n ON n.reading = s.reading AND n.attempt_id = s.attempt_id
  LEFT JOIN opened AS o ON o.reading = s.reading AND o.attempt_id = s.attempt_id
  WHERE s.needs IS NULL OR n.event_id IS NOT NULL
  GROUP BY ALL
), sayers AS (  -- who prints it, of the ranks that there are
  SELECT m.attempt_id, m.failure, count(DISTINCT m.rank) AS ranks,
    max(m.rank) + 1 AS at_least
  FROM marked AS m WHERE m.rank IS NOT NULL AND m.role = 'collateral' GROUP BY ALL
), waits AS (  -- in what each rank of a group waits first
  SELECT attempt_id, failure, coalesce(captures['pg_guid'], '') AS pg, rank,
    arg_min({'event_id': event_id, 'op': captures['op'],
      'seq': try_cast(captures['seq'] AS BIGINT)}, (t1, line_no)) AS it
  FROM placed
  WHERE role = 'collateral' AND rank IS NOT NULL AND captures['op'] IS NOT NULL
    AND try_cast(captures['seq'] AS BIGINT) IS NOT NULL AND grain <> 'incident'
  GROUP BY attempt_id, failure, pg, rank
), apart AS (  -- the one rank of a group that waits in another collective than all others
  SELECT w.attempt_id, w.failure, any_value(w.it.event_id) FILTER (w.it.op <> m.op) AS event_id
  FROM waits AS w JOIN (
    SELECT attempt_id, failure, pg, mode(it.op) AS op, mode(it.seq) AS seq FROM waits GROUP BY ALL
  ) AS m ON m.attempt_id = w.attempt_id AND m.failure = w.failure AND m.pg = w.pg
  GROUP BY w.attempt_id, w.failure, w.pg
  HAVING count(*) >= 3 AND count(*) FILTER (w.it.op <> m.op) = 1
    AND max(abs(w.it.seq - m.seq)) <= 1
), reach AS (  -- how far each rank came in each group; pipeline stages differ by design
  SELECT attempt_id, captures['pg_guid'] AS pg, rank,
    arg_min({'event_id': event_id, 'failure': failure, 'signature': signature, 't0': t0,
      'enqueued': try_cast(captures['last_enqueued'] AS BIGINT)}, (t1, line_no)) AS it
  FROM placed
  WHERE grain <> 'incident' AND rank IS NOT NULL AND captures['pg_guid'] IS NOT NULL
    AND try_cast(captures['last_enqueued'] AS BIGINT) IS NOT NULL
    AND NOT regexp_matches(coalesce(captures['pg_desc'], captures['pg_guid']),
      'pipeline|embedding', 'i')
  GROUP BY ALL
), lagging AS (  -- who is behind in a group and waits for nobody in another: all wait for them
  SELECT attempt_id, rank,
    arg_min(it, (it.enqueued - most, it.event_id)) FILTER (it.enqueued < most) AS it
  FROM (
    SELECT *, max(it.enqueued) OVER g AS most, min(it.enqueued) OVER g AS least
    FROM reach WINDOW g AS (PARTITION BY attempt_id, pg))
  GROUP BY attempt_id, rank
  HAVING bool_or(it.enqueued < most) AND NOT bool_or(it.enqueued = most AND least < most)
), fitting AS (  -- the readings that fit an attempt
  SELECT r.reading, a.attempt_id, r.becomes, r.why, a.event_id AS read_id, a.event_id,
    a.failure AS read_failure, r.phase, false AS at_last, false AS lags
  FROM apart AS a JOIN readings AS r ON r.apart AND r.event = a.failure
  UNION ALL
  SELECT r.reading, l.attempt_id, r.becomes, r.why, l.it.event_id, l.it.event_id, l.it.failure,
    r.phase, false, true
  FROM lagging AS l JOIN readings AS r ON r.lags AND r.event IN (l.it.failure, l.it.signature)
  WHERE l.attempt_id NOT IN (FROM settled)
  UNION ALL
  SELECT p.reading, p.attempt_id, p.becomes, p.why, p.event_id,
    CASE p.shows WHEN 'needs' THEN p.needed_id
      WHEN 'begin' THEN CASE p.phase WHEN 'save' THEN p.saving_id ELSE p.loading_id END
      ELSE p.event_id END, p.failure, p.phase, p.shows = 'needs', false
  FROM phased AS p
  LEFT JOIN sayers AS h ON h.attempt_id = p.attempt_id AND h.failure = p.failure
  LEFT JOIN runs AS a ON a.attempt_id = p.attempt_id
  WHERE CASE p.phase WHEN 'save' THEN p.saving_id IS NOT NULL
      WHEN 'load' THEN p.loading_id IS NOT NULL
      WHEN 'start' THEN NOT p.stepped WHEN 'step' THEN p.stepped ELSE true END
    AND (NOT p.quiet OR h.ranks < greatest(a.world_size, a.ranks_seen, h.at_least))
), read_events AS MATERIALIZED (  -- the first of them; all who lag
  FROM fitting
  QUALIFY row_number() OVER (PARTITION BY attempt_id ORDER BY reading) = 1
    OR (lags AND reading = min(reading) OVER (PARTITION BY attempt_id))
), readable AS (
  SELECT r.attempt_id AS unit, e.* EXCLUDE (path, message, captures, pid) REPLACE (r.becomes AS failure,
      CASE WHEN r.at_last AND (e.file_id <> x.file_id OR e.line_end < x.line_no)
        THEN e.line_end ELSE e.line_no END AS line_no,
      f.severity AS severity, 'cause' AS role),
    true AS possible, true AS eligible, r.why, r.read_failure, r.phase,
    CASE WHEN r.lags THEN 'collective_lag' ELSE 'reading' END AS basis
  FROM read_events AS r
  JOIN placed AS e ON e.event_id = r.event_id
  JOIN placed AS x ON x.event_id = r.read_id
  LEFT JOIN failures AS f ON f.failure = r.becomes
  WHERE grain <> 'incident' AND r.attempt_id NOT IN (FROM settled)
), causes AS (
  FROM own
  UNION ALL BY NAME FROM swallowed
  UNION ALL BY NAME
  SELECT *, line_no AS said_at, line_no AS line_key, false AS generic, false AS wrapper
  FROM readable
), weighed AS (  -- the kernel's word on a host outweighs a line of unknown time that may follow it
  SELECT causes.*, f.path, wrapper
      OR (coalesce(unproved, false) AND bool_or(role = 'cause' AND NOT generic) OVER u)
      OR (generic AND (
        bool_or(role = 'confirmation') OVER u
        OR (ts IS NULL AND (ts_hi IS NULL OR ts_hi > t0 + INTERVAL 60 SECOND)
          AND bool_or(NOT generic OR ts IS NOT NULL) OVER u)))
      OR (ts IS NULL AND NOT from_host AND coalesce(
        max(t0) FILTER (from_host) OVER (PARTITION BY unit, host) BETWEEN t0 - INTERVAL 2 SECOND
          AND coalesce(ts_hi, 'infinity'::TIMESTAMP), false)) AS weak,
    min(file_id) OVER u = max(file_id) OVER u AS one_file
  FROM causes LEFT JOIN (SELECT file_id, path FROM files) AS f USING (file_id)
  WINDOW u AS (PARTITION BY unit)
), timed AS (
  SELECT *, min(t0) FILTER (NOT weak) OVER u AS t_min,
    one_file AND NOT bool_and(ts IS NOT NULL) OVER u AS by_line
  FROM weighed WINDOW u AS (PARTITION BY unit)
), ordered AS (
  SELECT *, row_number() OVER (
    PARTITION BY unit
    ORDER BY weak, NOT coalesce(by_line OR t0 <= t_min + to_microseconds((1e6 * skew_s)::BIGINT),
        t_min IS NULL),
      CASE WHEN one_file THEN line_key END, t0 NULLS LAST, path, line_key, event_id) AS place
  FROM timed
), winner AS (
  SELECT o.*, e.message, e.captures, e.pid,
    CASE WHEN s.points_to NOT LIKE '%local%'
        OR (a.hosts_seen <= 1 AND coalesce(a.world_size, 1) <= 16)
      THEN try_cast(e.captures[s.points_to] AS INTEGER) END AS pointed_rank,
    lower(CASE WHEN s.points_to NOT LIKE '%rank%' THEN e.captures[s.points_to]
      WHEN e.captures[s.points_to] IS NOT NULL THEN e.captures['peer_host'] END) AS pointed_host,
    o.basis <> 'collective_lag' AND has_trait(o.failure, o.signature, 'witness') AS witness,
    has_trait(o.failure, o.signature, 'shared') AS shared,
    has_trait(o.failure, o.signature, 'main-rank') AS of_main
  FROM ordered AS o
  LEFT JOIN placed AS e ON e.event_id = o.event_id
  LEFT JOIN signatures AS s ON s.signature = o.signature
  LEFT JOIN runs AS a ON a.attempt_id = o.attempt_id
  WHERE place = 1
), signs AS (  -- the first sign of what was found, without three steps between the two
  SELECT w.unit, arg_min({'event_id': e.event_id, 'line_no': e.line_no, 't0': e.t0,
    'signature': e.signature, 'message': e.message}, (e.line_no, e.event_id)) AS it
  FROM winner AS w
  JOIN placed AS e ON e.file_id = w.file_id AND e.failure = w.failure AND e.line_no < w.said_at
  JOIN traits AS t ON t.subject = e.signature AND t.trait = 'precursor'
  LEFT JOIN signatures AS s ON s.signature = e.signature
  WHERE coalesce(try_cast(e.captures[s.points_to] AS INTEGER), e.rank)
      IS NOT DISTINCT FROM coalesce(w.pointed_rank, w.rank, try_cast(e.captures[s.points_to]
        AS INTEGER), e.rank)
    AND NOT EXISTS (FROM placed AS p WHERE p.file_id = w.file_id AND p.failure = 'training-step'
      AND p.line_no > e.line_no AND p.line_no < w.said_at)
  GROUP BY w.unit
), raised AS (  -- the exception below a frame that tells the kind
  SELECT w.unit, arg_min({'event_id': e.event_id, 'line_no': e.line_no, 't0': e.t0,
    'signature': e.signature, 'message': e.message}, (e.line_no, e.event_id)) AS it
  FROM winner AS w
  JOIN placed AS e ON e.file_id = w.file_id AND coalesce(e.rank = w.rank, true)
    AND e.line_no > w.said_at AND e.line_no <= w.said_at + 40
    AND (e.role = 'cause' OR e.rank IS NOT DISTINCT FROM w.rank) AND NOT is_death(e.failure)
    AND e.role IN ('cause', 'collateral') AND is_exception(e.message)
  WHERE has_trait(w.failure, w.signature, 'frame') AND NOT is_exception(w.message)
  GROUP BY w.unit
), rivals AS (  -- other causes of the unit against the first one
  SELECT w.unit,
    list_sort(list(DISTINCT o.rank) FILTER (alike AND o.rank IS NOT NULL)) AS tied_ranks,
    count(DISTINCT o.host) FILTER (alike) AS tied_hosts,
    arg_min(o.rank, o.place) FILTER (alike) AS tied_rank,
    CASE WHEN count(DISTINCT o.rank) FILTER (o.host = w.host) = 1
      THEN min(o.rank) FILTER (o.host = w.host) END AS host_rank,
    bool_or(NOT alike AND NOT o.weak AND o.rank IS DISTINCT FROM w.rank
      AND NOT coalesce(seconds_between(w.t0, o.t0) > skew_s, false)) AS contested,
    bool_or(o.file_id <> w.file_id AND NOT o.weak AND (o.t0 IS NULL OR w.t0 IS NULL)
      AND o.rank IS NOT NULL AND o.rank IS DISTINCT FROM w.rank) AS unordered,
    count(DISTINCT o.host) > 1 AS scattered,
    any_value(w.shared) AND count(DISTINCT o.rank) FILTER (alike) > 1
      AND NOT bool_and(o.ts IS NOT NULL) FILTER (alike) AS alike_all
  FROM (
    SELECT o.*, o.failure = w.failure
      AND (w.basis = 'collective_lag'
        OR coalesce(abs(seconds_between(w.t0, o.t0)) <= skew_s, true)) AS alike
    FROM ordered AS o JOIN winner AS w USING (unit)) AS o
  JOIN winner AS w USING (unit)
  GROUP BY w.unit
), echoes AS (  -- a cause without a rank has that of the first known effect on its own rank soon after
  SELECT w.unit, arg_min(h.rank, (h.file_id <> w.file_id, h.t0, h.line_no)) AS rank,
    arg_min(h.host, (h.file_id <> w.file_id, h.t0, h.line_no)) AS host
  FROM winner AS w
  JOIN happened AS h ON h.unit = w.unit AND h.rank IS NOT NULL
    AND CASE WHEN h.file_id = w.file_id THEN h.line_no > w.said_at AND h.line_no <= w.said_at + 100
      ELSE w.from_host AND coalesce(h.host = w.host, true) END
  JOIN precedence AS p ON p.cause = w.failure AND p.effect = h.failure
    AND (p.scope = 'same-rank' OR (w.from_host AND p.scope IN ('same-gpu', 'same-host')))
  WHERE w.rank IS NULL GROUP BY w.unit
), named_by_kin AS (  -- lines nearby that tell what it drags along may name the rank waited for
  SELECT w.unit, min(try_cast(h.captures[s.points_to] AS INTEGER)) AS rank
  FROM winner AS w
  JOIN placed AS h ON h.file_id = w.file_id
    AND h.line_no BETWEEN w.said_at AND w.said_at + 20
  JOIN signatures AS s ON s.signature = h.signature AND s.points_to LIKE '%rank%'
    AND s.points_to NOT LIKE '%local%'
  WHERE w.witness AND w.pointed_rank IS NULL AND h.captures[s.points_to] IS NOT NULL
    AND (h.failure IN (w.failure, w.read_failure) OR EXISTS (FROM precedence AS p
      WHERE p.cause = w.failure AND p.effect = h.failure))
  GROUP BY w.unit HAVING count(DISTINCT h.captures[s.points_to]) = 1
), named_by_proof AS (  -- of several proofs, one that names task and host says more
  SELECT w.unit, min(lower(h.captures['peer_host'])) AS host,
    min(try_cast(h.captures['tasks'] AS INTEGER)) AS rank
  FROM winner AS w
  JOIN placed AS h ON h.file_id = w.file_id AND h.failure = w.failure
    AND h.line_no BETWEEN w.said_at - 20 AND w.said_at + 20
    AND h.role = 'confirmation' AND h.captures['peer_host'] IS NOT NULL
  WHERE w.role = 'confirmation' AND w.captures['peer_host'] IS NULL
  GROUP BY w.unit HAVING count(DISTINCT h.captures['peer_host']) = 1
), beside AS (  -- another signature knows the rank of the same line; a file names the rank it is of
  SELECT w.unit,
    min(h.rank) FILTER (h.line_no = w.said_at) AS line_rank,
    CASE WHEN count(DISTINCT h.rank) FILTER (h.failure = 'world-size') = 1
      THEN min(h.rank) FILTER (h.failure = 'world-size') END AS file_rank
  FROM winner AS w JOIN placed AS h ON h.file_id = w.file_id
  GROUP BY w.unit
), deaths AS (  -- its rows, and where there is one host the agent's lines, whose rank is a local one
  SELECT attempt_id, rank, exit_code, first, {'a': died_at, 'b': t0, 'c': line_no} AS seen
  FROM reaped
  UNION ALL
  SELECT t.attempt_id, try_cast(t.captures['peer_local_rank'] AS INTEGER),
    try_cast(t.captures['exit_code'] AS INTEGER), true, {'a': NULL, 'b': t.t0, 'c': t.line_no}
  FROM told AS t JOIN runs AS a USING (attempt_id)
  WHERE t.captures['exit_code'] IS NOT NULL AND t.captures['peer_local_rank'] IS NOT NULL
    AND a.hosts_seen <= 1 AND coalesce(a.world_size, 1) <= 16
    AND t.attempt_id NOT IN (SELECT attempt_id FROM reaped)
), blamed AS (  -- the rank whose Python raised, where the table names it first, and the one killed
  SELECT attempt_id, arg_min(rank, seen) FILTER (first AND exit_code = 1) AS raised,
    arg_min(rank, seen) FILTER (exit_code = -9) AS killed
  FROM deaths GROUP BY attempt_id
), owners AS (  -- the rank of the process that the kernel names, by the lines it printed itself
  SELECT w.unit, min(h.rank) AS rank
  FROM winner AS w
  JOIN placed AS k ON k.file_id = w.file_id AND k.failure = w.failure
    AND k.line_no BETWEEN w.said_at AND w.said_at + 20
  JOIN placed AS h ON h.attempt_id = w.attempt_id AND h.pid = try_cast(k.captures['pid'] AS BIGINT)
    AND (h.host = w.host OR h.host IS NULL)
  WHERE w.rank IS NULL
  GROUP BY w.unit HAVING min(h.rank) = max(h.rank)
), alone AS (  -- attempts of one process: a launcher that killed one, and no other rank seen
  SELECT a.attempt_id
  FROM runs AS a
  LEFT JOIN (FROM placed WHERE failure = 'process-killed-by-launcher') AS k USING (attempt_id)
  WHERE a.ranks_seen <= 1 AND a.hosts_seen <= 1
  GROUP BY a.attempt_id, a.world_size
  HAVING a.world_size = 1 OR (a.world_size IS NULL AND sum(k.repeats) = 1)
), heard AS (  -- who prints what is read, and who prints anything that follows
  SELECT h.unit, list(DISTINCT h.rank) FILTER (h.failure = w.read_failure) AS readers,
    list(DISTINCT h.rank) FILTER (h.role <> 'teardown') AS ranks
  FROM happened AS h JOIN winner AS w USING (unit)
  WHERE h.role IN ('collateral', 'teardown', 'cause') AND h.rank IS NOT NULL
    AND NOT is_death(h.failure)
  GROUP BY h.unit
), quiet AS (  -- the ranks that do not say they waited
  SELECT unit, CASE WHEN len(silent) = 1 THEN silent
      ELSE list_filter(silent, lambda r: NOT list_contains(ranks, r)) END AS ranks
  FROM (
    SELECT w.unit, coalesce(h.ranks, []) AS ranks,
      list_filter(range(greatest(coalesce(a.world_size, 0), coalesce(list_max(h.ranks), -1) + 1,
          coalesce(a.ranks_seen, 0)))::INTEGER[],
        lambda r: NOT list_contains(coalesce(h.readers, h.ranks, []), r)) AS silent
    FROM winner AS w JOIN runs AS a USING (attempt_id) LEFT JOIN heard AS h USING (unit)
    WHERE (w.witness OR w.from_host) AND coalesce(a.world_size, 0) <= 65536)
), finishers AS (  -- who was done first
  SELECT w.unit, arg_min(m.rank, (m.t1, m.line_no)) AS rank
  FROM winner AS w JOIN marked AS m ON m.attempt_id = w.attempt_id
  LEFT JOIN heard AS h USING (unit)
  WHERE w.phase = 'done' AND m.failure = 'run-completed' AND m.rank IS NOT NULL
    AND NOT coalesce(list_contains(h.readers, m.rank), false)
  GROUP BY w.unit
), named AS (
  SELECT w.*, CASE w.basis WHEN 'line' THEN
        CASE WHEN w.role = 'confirmation' THEN 'confirmation' ELSE 'root_signature' END
      ELSE w.basis END AS evidence,
    w.witness AND w.pointed_rank IS NULL AND k.rank IS NULL AND len(q.ranks) = 1 AS by_silence,
    CASE WHEN w.witness AND w.pointed_rank IS NULL THEN coalesce(k.rank,
        CASE WHEN len(q.ranks) = 1 OR (w.of_main AND q.ranks[1] = 0) THEN q.ranks[1] END, y.rank)
      WHEN coalesce(w.pointed_host <> w.host, w.pointed_host IS NOT NULL)
        AND w.pointed_rank IS NULL THEN NULL
      ELSE coalesce(w.pointed_rank, v.rank, w.rank, b.line_rank, r.tied_rank, rank_of_path(
          CASE WHEN w.from_host THEN NULL ELSE coalesce(w.captures['path'], w.message) END),
        i.rank, e.rank, b.file_rank, o.rank,
        CASE WHEN a.hosts_seen <= 1 THEN local_of_path(w.path) END,
        CASE WHEN w.from_host OR w.role = 'confirmation'
            THEN coalesce(r.host_rank, d.killed) ELSE d.raised END,
        CASE WHEN w.of_main THEN 0 END,
        CASE WHEN w.from_host AND len(q.ranks) = 1 THEN q.ranks[1] END,
        CASE WHEN w.basis = 'reading' THEN d.killed END,
        CASE WHEN l.attempt_id IS NOT NULL THEN 0 END) END::INTEGER AS who,
    CASE WHEN w.witness AND w.pointed_rank IS NULL THEN list_filter([who], lambda x: x IS NOT NULL)
      WHEN w.pointed_rank IS NOT NULL THEN [w.pointed_rank] WHEN who IS NULL THEN []
      WHEN len(coalesce(r.tied_ranks, [])) > 0 THEN r.tied_ranks
      ELSE [who] END AS tied_ranks,
    coalesce(w.pointed_host, v.host, CASE WHEN w.pointed_rank IS NULL AND NOT w.witness
      THEN coalesce(w.host, e.host) END) AS place_host,
    r.tied_hosts, r.contested, r.unordered, r.scattered, r.alike_all,
    w.generic OR (w.rank IS NULL AND w.pointed_rank IS NULL AND w.host IS NULL)
      OR w.basis <> 'line' AS doubtful
  FROM winner AS w
  JOIN rivals AS r USING (unit)
  LEFT JOIN beside AS b USING (unit)
  LEFT JOIN echoes AS e USING (unit)
  LEFT JOIN named_by_kin AS k USING (unit)
  LEFT JOIN named_by_proof AS v USING (unit)
  LEFT JOIN quiet AS q USING (unit)
  LEFT JOIN finishers AS y USING (unit)
  LEFT JOIN runs AS a ON a.attempt_id = w.attempt_id
  LEFT JOIN blamed AS d ON d.attempt_id = w.attempt_id
  LEFT JOIN alone AS l ON l.attempt_id = w.attempt_id
  LEFT JOIN process_ranks AS i ON i.attempt_id = w.attempt_id AND i.pid = w.pid
    AND i.host IS NOT DISTINCT FROM w.host
  LEFT JOIN owners AS o ON o.unit = w.unit
), tasks AS (  -- where srun says that a task of this number ended: its rank where ranks are tasks
  SELECT attempt_id, host, try_cast(split_part(task, '-', 1) AS INTEGER) AS low,
    try_cast(coalesce(nullif(split_part(task, '-', 2), ''), task) AS INTEGER) AS high
  FROM (
    SELECT attempt_id, lower(captures['peer_host']) AS host,
      unnest(string_split(captures['tasks'], ',')) AS task
    FROM placed WHERE captures['tasks'] IS NOT NULL AND captures['peer_host'] IS NOT NULL)
), seats AS (
  SELECT n.unit, min(t.host) AS host
  FROM named AS n JOIN tasks AS t ON t.attempt_id = n.attempt_id AND n.who BETWEEN t.low AND t.high
  GROUP BY n.unit HAVING min(t.host) = max(t.host)
), places AS (  -- the one host that launchers name, where the logs themselves name none
  SELECT attempt_id, min(lower(captures['peer_host'])) AS host
  FROM placed WHERE is_death(failure) AND captures['peer_host'] IS NOT NULL
  GROUP BY attempt_id HAVING count(DISTINCT lower(captures['peer_host'])) = 1
), verdicts AS (
  SELECT n.unit, n.attempt_id, coalesce(g.it.event_id, x.it.event_id, n.event_id) AS event_id, n.file_id,
    n.path, coalesce(g.it.line_no, x.it.line_no, n.said_at) AS said_at, n.failure,
    coalesce(g.it.signature, n.signature) AS signature, n.severity,
    coalesce(g.it.message, x.it.message, n.message) AS message, coalesce(g.it.t0, n.t0) AS t0,
    n.doubtful, n.evidence, CASE WHEN n.alike_all THEN NULL ELSE n.who END AS rank,
    coalesce(n.place_host, h.host, t.host,
      CASE len(a.hosts) WHEN 1 THEN a.hosts[1] WHEN 0 THEN p.host END) AS host,
    n.tied_ranks, n.tied_hosts, n.contested, n.unordered, n.unordered AND n.scattered AS homeless, n.why
  FROM named AS n
  LEFT JOIN runs AS a ON a.attempt_id = n.attempt_id
  LEFT JOIN seats AS t ON t.unit = n.unit
  LEFT JOIN places AS p ON p.attempt_id = n.attempt_id
  LEFT JOIN signs AS g ON g.unit = n.unit
  LEFT JOIN raised AS x ON x.unit = n.unit
  LEFT JOIN homes AS h ON h.attempt_id = n.attempt_id AND h.rank = n.who
), traces AS (  -- failed attempts without a cause: what their launcher and signals say
  SELECT attempt_id AS unit, event_id, file_id, path, line_no, severity, message, t0, rank, host,
    'elastic_first' AS rule, 0 AS weight, died_at
  FROM reaped
  WHERE grain <> 'incident' AND first AND coalesce(exit_code, 1) NOT IN (-15, 143)
  UNION ALL
  SELECT h.unit, event_id, h.file_id, p.path, h.line_no, h.severity, p.message, h.t0,
    coalesce(h.rank, try_cast(p.captures['peer_rank'] AS INTEGER)),
    coalesce(h.host, p.captures['peer_host']),
    CASE WHEN h.killed THEN 'exit_signal' ELSE 'undetermined' END,
    CASE WHEN h.killed THEN 1 WHEN is_noise(h.role, h.severity) THEN 3 ELSE 2 END, NULL
  FROM (
    SELECT *, failure IN ('process-sigkill', 'process-sigbus', 'process-segfault') AS killed
    FROM happened
    WHERE grain <> 'incident' AND role IN ('collateral', 'teardown')
      AND unit NOT IN (SELECT unit FROM verdicts)) AS h
  JOIN placed AS p USING (event_id)
), guesses AS (
  SELECT attempt_id AS unit, attempt_id, t.event_id, t.file_id, t.path, t.line_no AS said_at,
    NULL AS failure, NULL AS signature, t.severity, t.message, t.t0, false AS doubtful,
    coalesce(t.rule, 'undetermined') AS evidence,
    CASE WHEN t.rule <> 'undetermined' THEN t.rank END AS rank,
    CASE WHEN t.rule <> 'undetermined' THEN t.host END AS host,
    CASE WHEN t.rule <> 'undetermined' AND t.rank IS NOT NULL THEN [t.rank] ELSE [] END
      AS tied_ranks,
    1 AS tied_hosts, false AS contested, false AS unordered, false AS homeless,
    NULL AS why
  FROM (SELECT attempt_id FROM runs WHERE outcome = 'failed' AND grain <> 'incident') AS a
  LEFT JOIN (
    SELECT *, unit AS attempt_id FROM traces
    QUALIFY row_number() OVER (
      PARTITION BY unit ORDER BY weight, died_at, t0 NULLS LAST, path, line_no) = 1
  ) AS t USING (attempt_id)
  WHERE attempt_id NOT IN (SELECT unit FROM verdicts)
), found AS (
  FROM verdicts UNION ALL BY NAME FROM guesses
), dragged AS (
  SELECT f.unit, sum(h.repeats)::BIGINT AS collateral_events,
    count(DISTINCT h.rank) FILTER (NOT list_contains(f.tied_ranks, h.rank)) AS collateral_ranks,
    list_sort(list(DISTINCT h.failure)) AS collateral_failures,
    list_sort(list(DISTINCT h.signature)) AS collateral_signatures,
    min(h.t0) FILTER (h.role <> 'cause') AS t_next
  FROM found AS f JOIN happened AS h ON h.unit = f.unit AND h.event_id <> f.event_id
  WHERE (h.role IN ('collateral', 'teardown')
      OR (h.role = 'cause' AND h.failure IS DISTINCT FROM f.failure))
    AND CASE WHEN h.file_id = f.file_id THEN h.line_no > f.said_at
      ELSE coalesce(seconds_between(f.t0, h.t0) >= -skew_s, true) END
  GROUP BY f.unit
), infra AS (
  SELECT a.attempt_id, list_sort(list(DISTINCT e.failure)) AS failures
  FROM runs AS a
  JOIN placed AS e ON e.attempt_id = a.attempt_id AND e.from_host
    AND e.role IN ('cause', 'confirmation')
    AND e.t0 BETWEEN a.last_ts - INTERVAL 10 MINUTE AND a.last_ts + INTERVAL 5 MINUTE
  GROUP BY a.attempt_id
), scoped AS (
  SELECT f.*, a.world_size, CASE
    WHEN len(f.tied_ranks) = 1 THEN 'single_rank'
    WHEN len(f.tied_ranks) >= a.world_size THEN 'all_ranks'
    WHEN len(f.tied_ranks) = a.world_size - 1 THEN 'all_but_one'
    WHEN len(f.tied_ranks) > 1 AND f.tied_hosts = 1 THEN 'single_host'
    WHEN len(f.tied_ranks) > 1 THEN 'multi_rank'
    WHEN f.host IS NOT NULL AND f.failure IS NOT NULL THEN 'single_host'
    ELSE 'unknown' END AS scope
  FROM found AS f LEFT JOIN runs AS a USING (attempt_id)
)
SELECT f.unit, f.attempt_id, a.cluster, a.run, a.job, a.attempt, a.outcome,
  f.failure, f.signature, f.severity, f.event_id,
  CASE WHEN f.scope = 'all_ranks' OR f.unordered THEN NULL ELSE f.rank END AS initiating_rank,
  CASE WHEN f.homeless THEN NULL ELSE f.host END AS initiating_host,
  f.scope, f.tied_ranks, f.t0 AS ts, f.evidence,
  CASE greatest(0, CASE f.evidence
      WHEN 'undetermined' THEN 0 WHEN 'exit_signal' THEN 0 WHEN 'elastic_first' THEN 1
      ELSE CASE WHEN f.scope IN ('single_rank', 'single_host') AND len(f.tied_ranks) <= 1
        AND f.rank IS NOT NULL AND NOT f.contested AND NOT f.unordered AND NOT f.doubtful THEN 2 ELSE 1 END END
    - CASE WHEN a.rank_files > 0 AND a.world_size > a.ranks_seen THEN 1 ELSE 0 END)
    WHEN 2 THEN 'high' WHEN 1 THEN 'medium' ELSE 'low' END AS confidence,
  coalesce(f.why, CASE f.evidence
      WHEN 'root_signature' THEN CASE WHEN len(f.tied_ranks) > 1
        THEN format('the earliest cause; {} ranks print it within {} s', len(f.tied_ranks), skew_s)
        ELSE 'the earliest line that can start the trouble' END
      WHEN 'confirmation' THEN 'it proves what killed the process that died first'
      WHEN 'elastic_first' THEN 'no cause was found; the launcher names this process first'
      WHEN 'exit_signal' THEN 'no cause was found; a process was killed by this signal'
      ELSE 'no cause was found: these lines follow from something that is not in the logs' END)
    AS why,
  f.path AS file, f.said_at AS line, f.message,
  coalesce(d.collateral_events, 0) AS collateral_events,
  coalesce(d.collateral_ranks, 0) AS collateral_ranks,
  coalesce(d.collateral_failures, []) AS collateral_failures,
  coalesce(d.collateral_signatures, []) AS collateral_signatures,
  CASE WHEN f.failure IS NOT NULL THEN seconds_between(f.t0, d.t_next) END AS lead_s,
  a.ranks_seen, a.world_size,
  CASE WHEN a.world_size IS NOT NULL THEN greatest(0, a.world_size - a.ranks_seen) END
    AS silent_ranks,
  list_filter(coalesce(i.failures, []), lambda x: x IS DISTINCT FROM f.failure) AS infra_causes,
  a.first_ts AS attempt_first_ts, a.last_ts AS attempt_last_ts, a.t_about
FROM scoped AS f
LEFT JOIN runs AS a USING (attempt_id)
LEFT JOIN dragged AS d ON d.unit = f.unit
LEFT JOIN infra AS i ON i.attempt_id = f.attempt_id;

-- Those of attempts, and of incidents, as most reports ask for them.
CREATE OR REPLACE VIEW attempt_failures AS FROM first_failures();
CREATE OR REPLACE VIEW incident_failures AS FROM first_failures(grain := 'incident');

-- The same, or (grain := 'run') one row a run: that of its first attempt with a known cause. A cause
-- that stays (every restart meets it again) and with which the run ended wins over one of an
-- earlier attempt, which a restart got over, unless it is a known effect of that. Where attempts
-- end alike, a reading may make of them what none of them shows alone.
CREATE OR REPLACE MACRO verdicts(grain := 'run', skew_s := 2) AS TABLE
WITH found AS MATERIALIZED (
  SELECT f.* REPLACE (coalesce(r.becomes, f.failure) AS failure, coalesce(r.why, f.why) AS why,
      CASE WHEN r.becomes IS NULL THEN f.evidence ELSE 'reading' END AS evidence,
      CASE WHEN r.becomes IS NULL THEN f.confidence ELSE 'medium' END AS confidence)
  FROM (
    SELECT f.*, count(*) OVER (PARTITION BY f.cluster, f.run, f.failure, f.initiating_rank,
      coalesce(e.step::VARCHAR, e.captures['step'])) AS times,
      coalesce(e.step::VARCHAR, e.captures['step']) IS NOT NULL AS stepped
    FROM (
      FROM attempt_failures WHERE skew_s = 2 AND grain <> 'incident'
      UNION ALL
      FROM first_failures(grain := grain, skew_s := skew_s)
      WHERE skew_s <> 2 OR grain = 'incident') AS f
    LEFT JOIN events AS e ON e.event_id = f.event_id) AS f
  LEFT JOIN readings AS r ON grain <> 'incident' AND r.attempts > 1 AND r.event = f.failure
    AND f.stepped AND f.times >= r.attempts
), placed AS (
  SELECT *, row_number() OVER (
    PARTITION BY cluster, run ORDER BY failure IS NULL, attempt NULLS LAST, attempt_first_ts, unit)
      AS place
  FROM found
), ends AS (  -- with what the last attempt of a run ended
  SELECT a.cluster, a.run, f.failure, f.signature, f.initiating_rank
  FROM (
    FROM attempts WHERE run IS NOT NULL
    QUALIFY row_number() OVER (
      PARTITION BY cluster, run ORDER BY attempt DESC NULLS LAST, first_ts DESC) = 1) AS a
  JOIN placed AS f USING (attempt_id)
), stays AS (
  SELECT f.cluster, f.run, l.failure
  FROM placed AS f
  JOIN ends AS l ON l.run = f.run AND l.cluster IS NOT DISTINCT FROM f.cluster
  WHERE f.place = 1 AND CASE WHEN has_trait(l.failure, l.signature, 'stays')
      THEN NOT EXISTS (FROM precedence AS p
        WHERE p.cause = f.failure AND p.effect = l.failure AND p.basis <> 'inference')
      -- what the last attempt shows on the same rank is the known cause of the first one's failure
      ELSE f.initiating_rank = l.initiating_rank AND EXISTS (FROM precedence AS p
        WHERE p.cause = l.failure AND p.effect = f.failure) END
)
SELECT f.* EXCLUDE (place, times, stepped)
FROM placed AS f
LEFT JOIN stays AS s ON s.run = f.run AND s.cluster IS NOT DISTINCT FROM f.cluster
WHERE grain <> 'run' OR s.failure IS NULL OR f.failure = s.failure
QUALIFY grain <> 'run' OR row_number() OVER (PARTITION BY f.cluster, f.run ORDER BY f.place) = 1;

-- The verdicts on attempts and on runs, as most reports ask for them.
CREATE OR REPLACE VIEW attempt_verdicts AS FROM verdicts(grain := 'attempt');
CREATE OR REPLACE VIEW run_verdicts AS FROM verdicts();
