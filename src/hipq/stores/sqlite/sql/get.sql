-- One job, live or final, by its primary key.
SELECT {columns} FROM {live} WHERE id = :id UNION ALL SELECT {columns} FROM {final} WHERE id = :id
