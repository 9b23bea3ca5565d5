-- A page of jobs by filter from one table, in id order: by the primary key, or by the index that `listing` has chosen.
SELECT {columns} FROM {table} l WHERE {where} ORDER BY {order} LIMIT {limit}
