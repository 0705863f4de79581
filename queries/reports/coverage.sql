-- title = "Coverage"
-- order = 1
-- description = """
-- What was read, what could not be read, and how much of it names a time and a rank. Read it first:
-- a failure in a file that is missing here is in no other report.
-- """
-- brief = ["cluster", "files_found", "files_scanned", "files_skipped", "lines", "ts_share",
--   "rank_share", "attempts", "failed_attempts", "failed_unknown"]
-- note = """
-- SELECT 'outcomes come from: '
--   || string_agg(format('{} {} of {}', state_source, n, total), ', '
--     ORDER BY n DESC, state_source)
-- FROM (
--   SELECT state_source, count(*) AS n, sum(count(*)) OVER ()::BIGINT AS total
--   FROM attempts
--   WHERE asked(cluster, $cluster) AND asked(coalesce(job, run), $job)
--     AND within(t_about, $since, $until)
--   GROUP BY state_source)
-- """
-- [columns]
-- cluster = "Cluster the path or --cluster named"
-- files_found = "Files met, whatever became of them"
-- files_scanned = "Files read to their end or to where they break off"
-- files_skipped = "Files not read"
-- files_truncated = "Files that break off"
-- files_copied = "Files that are copies of another one of the same rank and host"
-- skip_reasons = "Why files were not read or break off, at most five"
-- size_bytes = "Bytes on disk of all files found"
-- size_skipped = "Of them bytes of files not read; the others are those of files scanned"
-- bytes = "Decompressed bytes read"
-- lines = "Lines read"
-- ts_share = "Share of lines with a time of their own"
-- rank_share = "Share of lines with a rank or NCCL tag"
-- match_share = "Matches per line read, at most 1"
-- cut_lines = "Lines longer than the limit, scanned in pieces"
-- replaced_bytes = "Bytes of stored text that were not UTF-8"
-- masked = "Secrets masked"
-- attempts = "Attempts with logs"
-- attempts_all_ranks = "Attempts of which every rank was seen"
-- failed_attempts = "Attempts that failed"
-- failed_unknown = "Failed attempts without a known cause"
-- unknown_share = "failed_unknown / failed_attempts"
-- max_gap_s = "Longest silence between two events of one attempt, seconds"
WITH read AS (
  SELECT f.*, l.file_id IS NOT NULL AS live
  FROM files AS f LEFT JOIN (SELECT file_id FROM live_files) AS l USING (file_id)
  WHERE asked(f.cluster, $cluster) AND asked(coalesce(f.job, f.run), $job)
    AND ($since IS NULL OR coalesce(f.last_ts, f.mtime) >= $since)
    AND ($until IS NULL OR coalesce(f.first_ts, f.mtime) < $until)
    AND ($failure IS NULL
      OR f.file_id IN (SELECT e.file_id FROM events AS e WHERE e.failure = $failure))
), by_cluster AS (
  SELECT cluster,
    count(*) AS files_found,
    count(*) FILTER (status IN ('ok', 'truncated')) AS files_scanned,
    count(*) FILTER (status NOT IN ('ok', 'truncated')) AS files_skipped,
    count(*) FILTER (status = 'truncated') AS files_truncated,
    count(*) FILTER (status IN ('ok', 'truncated') AND NOT live) AS files_copied,
    list_sort(list(DISTINCT coalesce(error, status)) FILTER (status <> 'ok'))[1:5] AS skip_reasons,
    sum(size_bytes)::BIGINT AS size_bytes,
    coalesce(sum(size_bytes) FILTER (status NOT IN ('ok', 'truncated')), 0)::BIGINT AS size_skipped,
    sum(raw_bytes)::BIGINT AS bytes,
    sum(lines)::BIGINT AS lines, sum(ts_lines) AS ts_lines, sum(rank_lines) AS rank_lines,
    sum(events) AS events, sum(cut_lines)::BIGINT AS cut_lines,
    sum(replaced_bytes)::BIGINT AS replaced_bytes, sum(masked)::BIGINT AS masked
  FROM read GROUP BY cluster
), judged AS (
  SELECT a.cluster, a.attempt_id, a.ranks_seen, a.world_size,
    f.attempt_id IS NOT NULL AS failed, f.attempt_id IS NOT NULL AND f.failure IS NULL AS unknown
  FROM attempt_spans AS a
  LEFT JOIN (SELECT attempt_id, failure FROM attempt_failures WHERE outcome = 'failed') AS f
    USING (attempt_id)
  WHERE a.files > 0
    AND a.attempt_id IN (SELECT hash(r.cluster, r.run, r.attempt) FROM read AS r)
), gaps AS (
  SELECT cluster, seconds_between(max(ts_last) OVER (PARTITION BY attempt_id
    ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), ts) AS gap
  FROM (
    SELECT cluster, attempt_id, ts, coalesce(ts_last, ts) AS ts_last
    FROM placed_events
    WHERE ts IS NOT NULL AND attempt_id IN (SELECT attempt_id FROM judged))
)
SELECT c.cluster, files_found, files_scanned, files_skipped, files_truncated, files_copied,
  coalesce(skip_reasons, []) AS skip_reasons, size_bytes, size_skipped, bytes, lines,
  ts_lines / nullif(lines, 0) AS ts_share,
  rank_lines / nullif(lines, 0) AS rank_share,
  least(1.0, events / nullif(lines, 0)) AS match_share,
  cut_lines, replaced_bytes, masked,
  coalesce(attempts, 0) AS attempts,
  coalesce(attempts_all_ranks, 0) AS attempts_all_ranks,
  coalesce(failed_attempts, 0) AS failed_attempts,
  coalesce(failed_unknown, 0) AS failed_unknown,
  failed_unknown / nullif(failed_attempts, 0) AS unknown_share,
  max_gap_s
FROM by_cluster AS c
LEFT JOIN (
  SELECT cluster, count(*) AS attempts,
    count(*) FILTER (ranks_seen >= world_size) AS attempts_all_ranks,
    count(*) FILTER (failed) AS failed_attempts, count(*) FILTER (unknown) AS failed_unknown
  FROM judged GROUP BY cluster
) AS j ON j.cluster IS NOT DISTINCT FROM c.cluster
LEFT JOIN (
  SELECT cluster, max(CASE WHEN gap < 0 THEN 0 ELSE gap END) AS max_gap_s FROM gaps GROUP BY cluster
) AS g ON g.cluster IS NOT DISTINCT FROM c.cluster
ORDER BY c.cluster NULLS LAST
