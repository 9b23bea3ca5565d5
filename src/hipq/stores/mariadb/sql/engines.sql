-- The engines whose lease is alive.
SELECT engine_id, label, serves, CAST((lease_until - CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)) / 1e6 AS DOUBLE), version, since
FROM hipq_engines WHERE lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) ORDER BY engine_id
