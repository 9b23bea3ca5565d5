-- Jobs in state running: in an engine's hands, or waiting for an answer, or for somebody to take it (_owner, _wait, _todo).
SELECT {columns} FROM {live} l WHERE state = {RUNNING} AND id = ANY (ARRAY(
  (SELECT id FROM {live} WHERE owner > 0)
  UNION (SELECT id FROM {live} WHERE phase = {WAITING} ORDER BY deadline)
  UNION (SELECT id FROM {live} WHERE {TODO})
))
