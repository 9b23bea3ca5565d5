-- Delete what was told long ago (primary key): whoever did not hear it has looked since.
DELETE FROM hipq_news WHERE id < :before LIMIT 5000
