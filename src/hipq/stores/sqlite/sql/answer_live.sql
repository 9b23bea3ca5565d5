-- The live jobs that have these keys (index _key, one probe each).
SELECT json_group_array(json_array(json_extract(wanted.value, '$[0]'), l.id))
FROM json_each(:rows) AS wanted CROSS JOIN {live} l INDEXED BY {live}_key
WHERE l.job_key = json_extract(wanted.value, '$[1]') AND l.job_type = json_extract(wanted.value, '$[2]')
  AND l.tenant = json_extract(wanted.value, '$[3]')
