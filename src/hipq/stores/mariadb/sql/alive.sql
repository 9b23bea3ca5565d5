-- Whether an engine may claim (primary key).
SELECT 1 FROM hipq_engines WHERE engine_id = :engine_id AND lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
