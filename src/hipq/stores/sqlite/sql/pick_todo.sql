-- Jobs of one type that wait for user code other than their handler, or for one registered retry strategy (index _todo).
SELECT id FROM {live}
WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0 AND job_type = ?
  AND coalesce(CASE WHEN phase = 'deciding' THEN json_extract(meta, '$.retry.registered') END, '') = ?
ORDER BY id LIMIT ?
