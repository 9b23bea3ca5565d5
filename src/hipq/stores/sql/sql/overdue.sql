-- Waiting jobs whose deadline has passed, earliest first (index _wait).
SELECT {columns} FROM {live} l WHERE phase = {WAITING} AND deadline <= :now ORDER BY deadline LIMIT :limit
