-- title = "T"
-- description = "D"
-- [parameters.w]
-- type = "INT"
-- description = "W"
-- [columns]
-- n = "N"
SELECT 1 AS n
WHERE asked('a', $cluster) AND asked('a', $job) AND asked('a', $failure)
  AND within(now()::TIMESTAMP, $since, $until)
