-- Which live jobs have these keys (index _key, one probe each).
SELECT json_extract(wanted.value, '$.position'), l.id
FROM json_each(:rows) AS wanted CROSS JOIN {live} l INDEXED BY {live}_key
WHERE l.job_key = json_extract(wanted.value, '$.job_key') AND l.job_type = json_extract(wanted.value, '$.job_type')
  AND l.tenant = json_extract(wanted.value, '$.tenant')
