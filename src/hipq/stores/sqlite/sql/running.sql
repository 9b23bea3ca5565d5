-- Jobs in state running: in an engine's hands, or waiting for an answer, or for somebody to take it (_owner, _wait, _todo).
-- No more of each than are wanted: there may be a hundred thousand that wait.
SELECT {columns} FROM {live} WHERE state = 'running' AND id IN (
  SELECT * FROM (
    SELECT id FROM {live} INDEXED BY {live}_owner WHERE owner <> 0 AND owner > 0 AND state = 'running' LIMIT :limit
  )
  UNION SELECT * FROM (SELECT id FROM {live} INDEXED BY {live}_wait WHERE phase = 'waiting' LIMIT :limit)
  UNION SELECT * FROM (
    SELECT id FROM {live} INDEXED BY {live}_todo
    WHERE phase IN ('judging', 'answered', 'calling off') AND owner = 0 AND state = 'running' LIMIT :limit
  )
) LIMIT :limit
