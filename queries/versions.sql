-- Versions of software as the logs state them, and how to compare them.
--
-- Pure SQL over the views of views.sql. A signature named <component>-version captures a version.

-- A version as numbers that compare: 0.9.2 < 0.13.0rc1 < 0.13.0 = 0.13; what stands behind + does
-- not count. NULL where the text does not begin with a number.
CREATE OR REPLACE MACRO version_key(text) AS CASE WHEN regexp_matches(text, '^[vV]?[0-9]') THEN
  list_append(
    list_resize(list_transform(
      regexp_extract_all(regexp_extract(text, '^[vV]?[0-9]+(?:\.[0-9]+)*'), '[0-9]+'),
      lambda part: coalesce(try_cast(part AS BIGINT), 0)), 6, 0),
    CASE WHEN regexp_matches(text, '^[vV]?[0-9]+(?:\.[0-9]+)*[-_.]?(?:a|b|c|rc|alpha|beta|dev|pre)')
      THEN -1 ELSE 0 END) END;

-- How two versions compare under an operator; `=` and `==` are the same.
CREATE OR REPLACE MACRO version_is(text, operator, wanted) AS CASE operator
  WHEN '>=' THEN version_key(text) >= version_key(wanted)
  WHEN '>' THEN version_key(text) > version_key(wanted)
  WHEN '<=' THEN version_key(text) <= version_key(wanted)
  WHEN '<' THEN version_key(text) < version_key(wanted)
  WHEN '!=' THEN version_key(text) <> version_key(wanted)
  ELSE version_key(text) = version_key(wanted) END;

-- The first version of each component that an attempt states; `framework` is that of the outermost
-- one among them.
CREATE OR REPLACE VIEW run_versions AS
WITH told AS (
  SELECT attempt_id, regexp_replace(signature, '-version$', '') AS component,
    arg_min(captures['version'], {'t': coalesce(t0, 'infinity'::TIMESTAMP), 'line': line_no})
      AS version
  FROM placed_events
  WHERE attempt_id IS NOT NULL AND suffix(signature, '-version') AND captures['version'] IS NOT NULL
  GROUP BY ALL
)
SELECT attempt_id, component, version FROM told
UNION ALL
SELECT attempt_id, 'framework', arg_min(version, outermost)
FROM (
  SELECT *, list_position(['deepspeed', 'megatron', 'nemo', 'torchtitan', 'lightning', 'transformers',
    'torch'], component) AS outermost
  FROM told)
WHERE outermost IS NOT NULL GROUP BY attempt_id;
