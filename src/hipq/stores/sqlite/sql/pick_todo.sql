-- Jobs of one type that wait for user code other than their handler (index _todo).
SELECT id FROM {live}
WHERE phase IN ('judging', 'answered', 'calling off') AND owner = 0 AND job_type = ? ORDER BY id LIMIT ?
