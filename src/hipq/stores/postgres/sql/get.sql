-- One job, live or final, by its primary key.
SELECT {columns} FROM {live} l WHERE id = %(id)s UNION ALL SELECT {columns} FROM {final} l WHERE id = %(id)s
