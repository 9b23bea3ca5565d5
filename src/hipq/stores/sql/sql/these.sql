-- Live jobs by their ids, in order (primary key).
SELECT {columns} FROM {live} l WHERE id {in ids} ORDER BY rank, id
