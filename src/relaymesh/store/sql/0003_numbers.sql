-- 0 to 999, to write a run of messages as one row of values: see `runs.py`.
CREATE TABLE numbers (
    n INTEGER PRIMARY KEY
) STRICT;

INSERT INTO numbers
WITH RECURSIVE counted (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM counted WHERE n < 999)
SELECT n FROM counted;
