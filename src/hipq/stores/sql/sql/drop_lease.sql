-- End the lease of an engine that leaves (primary key).
DELETE FROM hipq_engines WHERE engine_id = :engine_id
