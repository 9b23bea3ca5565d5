-- The live jobs that have these keys (index _key, one probe each), locked in the order of their ids as every transaction
-- that writes several does.
SELECT wanted.position, {columns}
FROM json_to_recordset(%(rows)s) AS wanted (position INTEGER, tenant TEXT, job_type TEXT, job_key TEXT)
JOIN {live} l USING (tenant, job_type, job_key)
ORDER BY l.id FOR UPDATE OF l
