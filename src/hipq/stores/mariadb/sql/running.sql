-- Jobs in state running: in an engine's hands, or waiting for an answer, or for somebody to take it (_owner, _due, _todo).
SELECT {columns} FROM {live} l FORCE INDEX (PRIMARY) WHERE state = {RUNNING} AND id IN (
  SELECT id FROM (
    SELECT id FROM {live} FORCE INDEX ({live}_owner) WHERE owner > 0
    UNION SELECT id FROM {live} FORCE INDEX ({live}_due) WHERE phase = {WAITING}
    UNION SELECT id FROM {live} FORCE INDEX ({live}_todo) WHERE todo IS NOT NULL
  ) AS some
)
