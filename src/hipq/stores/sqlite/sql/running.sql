-- Jobs in state running: in an engine's hands, or waiting for an answer, or for somebody to take it (_owner, _wait, _todo).
SELECT {columns} FROM {live} WHERE state = {RUNNING} AND id IN (
  SELECT id FROM {live} INDEXED BY {live}_owner WHERE owner <> 0 AND owner > 0
  UNION SELECT id FROM {live} INDEXED BY {live}_wait WHERE phase = {WAITING}
  UNION SELECT id FROM {live} INDEXED BY {live}_todo
    WHERE {TODO}
)
