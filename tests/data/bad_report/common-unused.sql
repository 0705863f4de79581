-- title = "T"
-- description = "D"
-- [columns]
-- n = "N"
SELECT 1 AS n
WHERE asked('a', $cluster) AND asked('a', $failure)
  AND within(now()::TIMESTAMP, $since, $until)
