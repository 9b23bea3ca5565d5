-- Which live jobs have these keys (index _key, one probe each).
SELECT wanted.position, l.id
FROM json_to_recordset(:rows) AS wanted (position INTEGER, tenant TEXT, job_type TEXT, job_key TEXT)
JOIN {live} l ON l.job_key = ANY (ARRAY[wanted.job_key]) AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant
