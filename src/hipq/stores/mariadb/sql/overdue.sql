-- Waiting jobs whose deadline has passed, earliest first (index _due).
SELECT {columns} FROM {live} l FORCE INDEX ({live}_due) WHERE phase = {WAITING} AND due <= :now ORDER BY due LIMIT :limit
