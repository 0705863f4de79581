-- title = "T"
-- description = "D"
-- [columns]
-- n = "N"
DELETE FROM events
