-- An engine that leaves (primary key).
DELETE FROM hipq_engines WHERE engine_id = %(engine_id)s RETURNING engine_id
