-- title = "T"
-- description = "D"
-- [columns]
-- n = "N"
SELECT 1 AS n
FROM evnts WHERE asked('a', $cluster) AND asked('a', $job) AND asked('a', $failure)
  AND within(now()::TIMESTAMP, $since, $until)
