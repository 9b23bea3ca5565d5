-- Waiting jobs whose deadline has passed, earliest first. Index _wait.
SELECT {columns} FROM {live} WHERE phase = 'waiting' AND deadline <= :now ORDER BY deadline LIMIT :limit
