-- title = "Incidents"
-- order = 4
-- description = """
-- How many separate things went wrong, when, and how big was each. Repeats and echoes on other
-- ranks are merged first, then events closer than the window are one incident. The choice of window
-- alone moves the count: the note gives it for five of them.
-- """
-- brief = ["t_first", "run_id", "first_failure", "first_rank", "n_ranks", "n_raw_events",
--   "duration_s", "ended_attempt", "warning_only", "cluster"]
-- note = """
-- SELECT format(
--   'incidents by window: {} at 5 s, {} at 60 s, {} at 300 s, {} at 720 s, {} at 1800 s',
--   count(DISTINCT id) FILTER (w = 5), count(DISTINCT id) FILTER (w = 60),
--   count(DISTINCT id) FILTER (w = 300), count(DISTINCT id) FILTER (w = 720),
--   count(DISTINCT id) FILTER (w = 1800))
-- FROM (
--   SELECT 5 AS w, incident_id AS id, * FROM incident_events(window_s := 5,
--     dup_s := $dup_s, spatial_s := $spatial_s, max_h := $max_h, scope := $scope)
--   UNION ALL BY NAME SELECT 60 AS w, incident_id AS id, * FROM incident_events(window_s := 60,
--     dup_s := $dup_s, spatial_s := $spatial_s, max_h := $max_h, scope := $scope)
--   UNION ALL BY NAME SELECT 300 AS w, incident_id AS id, * FROM incident_events(window_s := 300,
--     dup_s := $dup_s, spatial_s := $spatial_s, max_h := $max_h, scope := $scope)
--   UNION ALL BY NAME SELECT 720 AS w, incident_id AS id, * FROM incident_events(window_s := 720,
--     dup_s := $dup_s, spatial_s := $spatial_s, max_h := $max_h, scope := $scope)
--   UNION ALL BY NAME SELECT 1800 AS w, incident_id AS id, * FROM incident_events(window_s := 1800,
--     dup_s := $dup_s, spatial_s := $spatial_s, max_h := $max_h, scope := $scope))
-- WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
--   AND asked(failure, $failure) AND within(t_about, $since, $until) AND ($warnings OR NOT warning)
-- """
-- [parameters.window_s]
-- type = "DOUBLE"
-- default = 300
-- minimum = 0
-- description = "Longest silence inside one incident, seconds"
-- [parameters.dup_s]
-- type = "DOUBLE"
-- default = 5
-- minimum = 0
-- description = "The same hit of a rank this soon after is a repeat, seconds; 0 merges none"
-- [parameters.spatial_s]
-- type = "DOUBLE"
-- default = 60
-- minimum = 0
-- description = "The same signature on other ranks within this is an echo, seconds; 0 merges none"
-- [parameters.max_h]
-- type = "DOUBLE"
-- default = 6
-- minimum = 0
-- description = "Incidents longer than this are cut and flagged, hours; 0 cuts none"
-- [parameters.scope]
-- type = "VARCHAR"
-- default = "run"
-- choices = ["run", "host", "cluster"]
-- description = "What an incident stays inside: an attempt (else its host), a host, a cluster"
-- [parameters.warnings]
-- type = "BOOLEAN"
-- default = true
-- description = "List incidents that consist of warnings only"
-- [columns]
-- cluster = "Cluster"
-- run_id = "Run, where it is one"
-- job = "Job, where it is one"
-- attempt = "Attempt of the job"
-- t_first = "When it began, UTC: printed time less how long the line says it hung"
-- t_last = "When it was last printed, UTC"
-- duration_s = "Seconds between the two"
-- n_events = "Events without repeats and echoes"
-- n_raw_events = "Lines matched"
-- n_ranks = "Ranks that printed"
-- n_hosts = "Hosts that printed"
-- gpus_affected = "All of the attempt where it ended it, else the ranks that printed"
-- first_failure = "Failure of the first event"
-- first_signature = "Signature of the first event"
-- first_rank = "Rank of the first event"
-- first_host = "Host of the first event"
-- first_file = "File of the first event"
-- first_line = "Line of the first event"
-- failures = "All failures in it"
-- signatures = "All signatures in it"
-- ts_quality = "own: each line has its time; bounds: some have a neighbour's; order_only: none"
-- capped = "Longer than max_h, cut"
-- warning_only = "Nothing but warnings: left out of rates"
-- ended_attempt = "The attempt failed with it"
-- incident_id = "Number of the incident: that of its first event"
SELECT cluster, run AS run_id, job, attempt, t_first, t_last, duration_s, n_events, n_raw_events,
  n_ranks, n_hosts, gpus_affected, first_failure, first_signature, first_rank, first_host,
  first_file, first_line, failures, signatures, ts_quality, capped, warning_only, ended_attempt,
  incident_id
FROM incident_rows(window_s := $window_s, dup_s := $dup_s, spatial_s := $spatial_s,
  max_h := $max_h, scope := $scope)
WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
  AND ($failure IS NULL OR list_contains(failures, $failure))
  AND within(t_about, $since, $until) AND ($warnings OR NOT warning_only)
ORDER BY t_first NULLS LAST, cluster, run, attempt, first_file, first_line
