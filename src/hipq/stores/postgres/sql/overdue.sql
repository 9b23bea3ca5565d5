-- Waiting jobs whose deadline has passed, earliest first. Index _wait.
SELECT {columns} FROM {live} l WHERE phase = 'waiting' AND deadline <= %(now)s ORDER BY deadline LIMIT %(limit)s
