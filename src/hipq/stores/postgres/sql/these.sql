-- Live jobs by id, in order (primary key).
SELECT {columns} FROM {live} l WHERE id = ANY (%(ids)s::bigint[]) ORDER BY rank, id
