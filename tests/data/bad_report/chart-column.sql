-- title = "T"
-- description = "D"
-- chart = { kind = "line", x = "n", y = "n", limit = "n / m", where = { n = "1" } }
-- [columns]
-- n = "N"
SELECT 1 AS n
WHERE asked('a', $cluster) AND asked('a', $job) AND asked('a', $failure)
  AND within(now()::TIMESTAMP, $since, $until)
