-- A page of jobs by filter from one table, in id order (primary key, or the index _key where a key is given).
SELECT {columns} FROM {table} l WHERE {where} ORDER BY id LIMIT %(limit)s
