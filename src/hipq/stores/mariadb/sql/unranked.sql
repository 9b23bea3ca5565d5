-- Due scheduled jobs that were added in plain SQL and have no rank yet, earliest first (index _due).
SELECT {columns} FROM {live} l FORCE INDEX ({live}_due) WHERE phase = {SCHEDULED} AND due <= :now AND rank = ''
ORDER BY due LIMIT :limit
