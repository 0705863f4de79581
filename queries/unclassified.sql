-- What no entry of the catalogue explains: what the report `unclassified` makes templates of.

-- A line without what differs from one time to the next: numbers, addresses, times, ids, paths, and
-- the host that it speaks of. Lines that are alike beyond that are left to the report.
CREATE OR REPLACE MACRO line_shape(message, host) AS trim(
  regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
  regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    coalesce(CASE WHEN regexp_matches(host, '^..+[0-9-]')
        THEN replace(left(message, 512), host, '<host>') ELSE left(message, 512) END, ''),
    '\x1b\[[0-9;]*m', '', 'g'),
    '\b[a-z][a-z0-9+.-]*://[^\s''"<>,;()\[\]]+', '<url>', 'g'),
    '\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b', '<id>', 'g'),
    '(?:\b\d{4}-\d\d-\d\d[ T_])?\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?Z?\b', '<time>', 'g'),
    '\b(?:(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?|(?:[0-9a-fA-F]{1,4}::?){2,}[0-9a-fA-F:.]*[0-9a-fA-F])\b',
    '<addr>', 'g'),
    '(^|[\s''"()\[\]{}=:,<>|])(?:(?:~|\.{1,2})?/\w[\w.@%+=~/-]*|(?:[\w.@-]+/)+[\w@-]+\.[a-z]\w{0,9})',
    '\1<path>', 'g'),
    '(?:<host>|\b[\w-]+)(?:\.[\w-]+)*\.(?:local|internal|lan|svc|com|net|org|edu)\b', '<host>', 'g'),
    '\b(?:0x[0-9a-fA-F]+|(?:\d+[a-f]|[a-f]+\d)[0-9a-f]{3,})\b', '<hex>', 'g'),
    '[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?', '<num>', 'g'),
    '<num>(?:(?:, ?|x)<num>)+', '<num>', 'g'),
    '\s+', ' ', 'g'));

-- Lines that no entry of the catalogue explains: those that only a fallback signature knows, and of
-- a failed attempt without any cause or such a line the one that first_failures falls back on.
-- `state` is that of the attempt: `settled` where it completed or was ended from outside,
-- `explained` where a signature that is no fallback names a cause that ended it, else `open`; so are
-- lines of no attempt. A failed attempt that is open and has no line is a row without an event.
-- `place` ranks shapes by the runs that they leave open, over the whole database.
CREATE OR REPLACE MACRO unclassified_lines() AS TABLE
WITH general AS MATERIALIZED (
  SELECT signature FROM signatures WHERE fallback
), explained AS (
  SELECT DISTINCT attempt_id FROM marks
  WHERE trouble AND NOT recovered AND NOT stopped AND role IN ('cause', 'confirmation')
    AND signature NOT IN (FROM general)
), judged AS MATERIALIZED (
  SELECT a.attempt_id, a.cluster, a.run, a.job, a.outcome, a.t_about,
    CASE WHEN outcome IN ('completed', 'cancelled', 'timeout', 'preempted') THEN 'settled'
      WHEN x.attempt_id IS NOT NULL THEN 'explained' ELSE 'open' END AS state
  FROM attempts AS a LEFT JOIN explained AS x USING (attempt_id)
), chosen AS (
  SELECT event_id, 'fallback' AS evidence FROM events WHERE signature IN (FROM general)
  UNION ALL
  SELECT event_id, evidence FROM attempt_failures
  WHERE failure IS NULL AND event_id NOT IN (
    SELECT event_id FROM events WHERE signature IN (FROM general))
), placed AS (
  SELECT e.event_id, e.attempt_id, e.cluster, e.run, e.job, e.host, e.rank, e.signature, e.failure,
    e.repeats, e.t0, e.t1, e.t_about, e.path, e.line_no, e.message, c.evidence,
    line_shape(e.message, coalesce(e.captures['peer_host'], e.host)) AS shape
  FROM placed_events AS e JOIN chosen AS c USING (event_id)
  QUALIFY c.evidence = 'fallback'
    OR NOT bool_or(c.evidence = 'fallback') OVER (PARTITION BY e.attempt_id)
), lines AS MATERIALIZED (
  SELECT p.* REPLACE (coalesce(p.attempt_id, j.attempt_id) AS attempt_id,
      coalesce(p.cluster, j.cluster) AS cluster, coalesce(p.run, j.run) AS run,
      coalesce(p.job, j.job) AS job, coalesce(p.t_about, j.t_about) AS t_about),
    j.outcome, coalesce(j.state, 'open') AS state
  FROM placed AS p FULL JOIN judged AS j ON j.attempt_id = p.attempt_id
  WHERE p.event_id IS NOT NULL OR (j.state = 'open' AND j.outcome = 'failed')
), ranked AS (
  SELECT signature, shape, row_number() OVER (
    ORDER BY count(DISTINCT hash(cluster, run)) FILTER (state = 'open') DESC,
      sum(repeats) DESC, signature, shape) AS place
  FROM lines WHERE event_id IS NOT NULL GROUP BY signature, shape
)
SELECT l.*, r.place FROM lines AS l
LEFT JOIN ranked AS r ON r.signature = l.signature AND r.shape = l.shape;
