-- What rates are made of: how long attempts ran on how many GPUs, which of them failed, and sizes.
--
-- Pure SQL over the views of views.sql and diagnosis.sql.

-- The bucket of a size: how many bounds (ascending) it exceeds, and its name: 9-64, >4096.
CREATE OR REPLACE MACRO scale_no(gpus, bounds) AS
  len(list_filter(bounds, lambda bound: bound < gpus));
CREATE OR REPLACE MACRO scale_name(number, bounds) AS CASE
  WHEN number IS NULL THEN 'unknown'
  WHEN number >= len(bounds) THEN '>' || coalesce(bounds[number]::BIGINT, 0)
  WHEN coalesce(bounds[number], 0) + 1 = bounds[number + 1] THEN bounds[number + 1]::BIGINT::VARCHAR
  ELSE (coalesce(bounds[number], 0)::BIGINT + 1) || '-' || bounds[number + 1]::BIGINT END;
CREATE OR REPLACE MACRO scale_bucket(gpus, bounds) AS
  scale_name(CASE WHEN gpus IS NOT NULL THEN scale_no(gpus, bounds) END, bounds);

-- Attempts as exposure: from start_ts to end_ts, healthy and censored ones too, jobs without logs
-- too; a running one goes on to the last time that the database knows. `exposure_source` is jobs,
-- log, or none where its time or size is not known. `state` is the scheduler's own word.
CREATE OR REPLACE VIEW exposures AS
WITH launched AS MATERIALIZED (
  FROM attempts
), scheduled AS (
  SELECT coalesce(cluster, '') AS cluster_key, job AS job_key, attempt AS attempt_key,
    upper(state) AS state, source, start_ts, end_ts
  FROM jobs
), known AS (
  SELECT a.*, coalesce(j.state, k.state) AS state,
    coalesce(j.source, k.source, 'log') <> 'log' AS told,
    coalesce(j.start_ts, k.start_ts) AS job_start_ts, coalesce(j.end_ts, k.end_ts) AS job_end_ts
  FROM launched AS a
  LEFT JOIN scheduled AS j ON j.cluster_key = coalesce(a.cluster, '') AND j.job_key = a.job
    AND j.attempt_key = a.attempt
  LEFT JOIN (FROM scheduled WHERE attempt_key IS NULL) AS k
    ON k.cluster_key = coalesce(a.cluster, '') AND k.job_key = a.job
), timed AS (
  SELECT *, coalesce(regexp_matches(state, '^(RUNNING|R)\b'), false) AS running,
    CASE WHEN running AND job_end_ts IS NULL
      THEN greatest(last_ts, first_ts, (SELECT max(last_ts) FROM launched)) ELSE last_ts END
      AS ended_ts
  FROM known
)
SELECT attempt_id, cluster, run, job, attempt, files, hosts, gpus, nodes, outcome, state,
  state_source, running, t_about,
  CASE WHEN ended_ts >= first_ts THEN first_ts END AS start_ts,
  CASE WHEN ended_ts >= first_ts THEN ended_ts END AS end_ts,
  CASE WHEN NOT coalesce(ended_ts >= first_ts, false) OR gpus IS NULL THEN 'none'
    WHEN told AND job_start_ts IS NOT NULL AND (job_end_ts IS NOT NULL OR running) THEN 'jobs'
    ELSE 'log' END AS exposure_source
FROM timed;

-- Categories of failures that a user, not the fleet, has to mend.
CREATE OR REPLACE MACRO is_users(category) AS category IN ('config', 'data', 'numerics');

-- The same with what ended those that failed. `infra_failed` (Kokolis et al., HPCA'25): the node
-- failed, or the cause lies in hardware, network, storage or scheduler, or it is systemic (all ranks
-- but one, or all, fail alike) and not the user's. Without causes it is a great deal faster.
CREATE OR REPLACE MACRO exposed_failures(causes := true) AS TABLE
WITH found AS MATERIALIZED (
  SELECT v.attempt_id, v.failure, v.scope, v.ts AS failed_ts,
    coalesce(f.category, e.category) AS category
  FROM attempt_verdicts AS v
  LEFT JOIN failures AS f ON f.failure = v.failure
  LEFT JOIN events AS e ON e.event_id = v.event_id
  WHERE causes AND v.failure IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY v.attempt_id ORDER BY v.ts) = 1
)
SELECT x.*, x.outcome = 'failed' AS failed,
  CASE WHEN failed THEN v.failure END AS failure, v.category, v.failed_ts,
  failed AND coalesce(regexp_matches(x.state, '^(NODE_FAIL|NF|BOOT_FAIL|BF)\b'), false)
    OR failed AND coalesce(
      v.category IN ('hardware', 'straggler', 'network', 'storage', 'scheduler')
        OR (v.scope IN ('all_but_one', 'all_ranks') AND NOT is_users(v.category)), false)
    AS infra_failed
FROM exposures AS x LEFT JOIN found AS v USING (attempt_id);

-- Events that reports pair: seen as cause, confirmation or context that is no mere fact; roles
-- 'all' adds collateral. role_no: 1 cause to 4 collateral.
CREATE OR REPLACE MACRO pairable_events(roles) AS TABLE
SELECT event_id, attempt_id, cluster, run, job, attempt, host, rank, failure, t0, file_id, line_no,
  CASE role WHEN 'cause' THEN 1 WHEN 'confirmation' THEN 2 WHEN 'context' THEN 3 ELSE 4 END
    AS role_no
FROM placed_events
WHERE (role IN ('cause', 'confirmation', 'context') OR (roles = 'all' AND role = 'collateral'))
  AND category IS DISTINCT FROM 'progress'
  AND NOT (role = 'context' AND severity IS NOT DISTINCT FROM 'info');
