-- The last of so many rows of a tenant in one table (index _tenant; _key, or _named, where a key is given).
SELECT id FROM {table} WHERE {where} ORDER BY id LIMIT 1 OFFSET :rows - 1
