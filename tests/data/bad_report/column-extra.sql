-- title = "T"
-- description = "D"
-- [columns]
-- n = "N"
SELECT 1 AS n, 2 AS m
WHERE asked('a', $cluster) AND asked('a', $job) AND asked('a', $failure)
  AND within(now()::TIMESTAMP, $since, $until)
