-- A new engine.
INSERT INTO hipq_engines (lease_until, label, serves, version, since)
VALUES (CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + CAST(round(:seconds * 1000000) AS SIGNED), :label, :serves, :version, :since);
SELECT LAST_INSERT_ID()
