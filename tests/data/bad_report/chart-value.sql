-- title = "T"
-- description = "D"
-- chart = { kind = "heatmap", x = "n", y = "n" }
-- [columns]
-- n = "N"
SELECT 1 AS n
WHERE asked('a', $cluster) AND asked('a', $job) AND asked('a', $failure)
  AND within(now()::TIMESTAMP, $since, $until)
