-- How many jobs of a tenant run, by type: only what engines have is read (index _owner).
SELECT job_type, count(*) FROM (
  SELECT job_type FROM {live} INDEXED BY {live}_owner
  WHERE owner > 0 AND owner <> 0 AND tenant = :tenant AND phase = 'executing' LIMIT :most
) GROUP BY job_type
