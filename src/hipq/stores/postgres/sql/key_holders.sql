-- Which live jobs have the keys under which these jobs want to wait (indexes _key and _waited, a probe or two each), as
-- their own keys or for their waits. Not locked: whoever wants to wait under such a key has its lock.
SELECT wanted.position, coalesce((
  SELECT l.id FROM {live} l
  WHERE l.job_key = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant
), (
  SELECT l.id FROM {live} l
  WHERE l.wait_key = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant AND l.wait_key <> ''
), 0)
FROM json_to_recordset(:rows) AS wanted (position BIGINT, tenant TEXT, job_type TEXT, job_key TEXT)
