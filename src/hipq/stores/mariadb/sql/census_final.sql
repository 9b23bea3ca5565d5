-- How many jobs of a tenant are in which state, of so many that come behind an id (index _tenant).
SELECT job_type, state, phase, count(*), max(id) FROM (
  SELECT id, job_type, state, phase FROM {final} FORCE INDEX ({final}_tenant)
  WHERE tenant = :tenant AND tenant <> '' AND id > :after ORDER BY id LIMIT :rows
) AS found GROUP BY job_type, state, phase
