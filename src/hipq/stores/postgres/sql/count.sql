-- How many jobs of one table a filter finds, up to a limit (as find.sql).
SELECT id FROM {table} l WHERE {where} LIMIT %(limit)s
