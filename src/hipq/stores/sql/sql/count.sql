-- The jobs of one table that a filter finds, up to a limit (as find.sql).
SELECT id FROM {table} l{by} WHERE {where} LIMIT :limit
