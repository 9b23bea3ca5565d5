-- The engines whose lease is alive.
SELECT engine_id, label, serves, extract(epoch FROM lease_until - clock_timestamp())::float8, version, since
FROM hipq_engines WHERE lease_until > clock_timestamp() ORDER BY engine_id
