-- Which live jobs have these keys (index _key, one probe each).
SELECT wanted.position, l.id
FROM json_to_recordset(%(rows)s) AS wanted (position INTEGER, tenant TEXT, job_type TEXT, job_key TEXT)
JOIN {live} l USING (tenant, job_type, job_key)
