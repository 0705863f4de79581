-- title = "T"
-- description = "D"
-- [columns]
-- n = "N"
SELEKT 1
