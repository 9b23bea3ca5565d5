-- One job, live or final, by its primary key.
SELECT {columns} FROM {live} l WHERE id = :id UNION ALL SELECT {columns} FROM {final} l WHERE id = :id
