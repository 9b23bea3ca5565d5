-- A page of jobs by filter from one table: in the order and by the index that the store's `_page` has chosen.
SELECT {selected} FROM {table} l{by} WHERE {where} ORDER BY {order} LIMIT {limit}
