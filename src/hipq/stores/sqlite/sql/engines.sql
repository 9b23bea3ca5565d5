-- The engines whose lease is alive.
SELECT engine_id, label, serves, (lease_until - :steady) / 1e6, version, since
FROM hipq_engines WHERE lease_until > :steady AND boot = :boot ORDER BY engine_id
