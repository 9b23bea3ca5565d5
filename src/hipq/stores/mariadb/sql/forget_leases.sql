-- Engines whose lease is over. The rows they own are found by the anti-join in orphans.sql, with or without this row.
DELETE FROM hipq_engines WHERE lease_until <= CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
