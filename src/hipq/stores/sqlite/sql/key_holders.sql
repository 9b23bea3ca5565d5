-- The live jobs that have these keys (indexes _key and _waited, a probe or two each), as their own or, where no job has,
-- for their waits; 0 = none.
SELECT json_group_array(json_array(json_extract(wanted.value, '$.position'), coalesce((
  SELECT l.id FROM {live} l INDEXED BY {live}_key
  WHERE l.job_key = json_extract(wanted.value, '$.job_key') AND l.job_type = json_extract(wanted.value, '$.job_type')
    AND l.tenant = json_extract(wanted.value, '$.tenant')
), (
  SELECT l.id FROM {live} l INDEXED BY {live}_waited
  WHERE l.wait_key = json_extract(wanted.value, '$.job_key') AND l.job_type = json_extract(wanted.value, '$.job_type')
    AND l.tenant = json_extract(wanted.value, '$.tenant') AND l.wait_key <> ''
), 0))) AS gathered
FROM json_each(:rows) AS wanted
