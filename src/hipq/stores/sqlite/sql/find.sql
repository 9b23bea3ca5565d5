-- A page of jobs by filter from one table, in id order (primary key; _key, or _named, where a key is given; _tenant).
SELECT {columns} FROM {table} WHERE {where} ORDER BY id LIMIT :limit
