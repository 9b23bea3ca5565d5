-- Jobs of one type that wait for user code other than their handler, or for one registered retry strategy (index _todo).
SELECT id FROM {live}
WHERE {TODO} AND job_type = ?
  AND {strategy} = ?
ORDER BY id LIMIT ?
