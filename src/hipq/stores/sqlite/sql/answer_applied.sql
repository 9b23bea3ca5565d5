-- Answers with the same keys and bodies, after which these jobs were to be tried again (index _job).
SELECT json_group_array(json_array(json_extract(wanted.value, '$.position'), a.id)) AS gathered
FROM json_each(:rows) AS wanted CROSS JOIN hipq_answers a INDEXED BY hipq_answers_job
WHERE a.job = json_extract(wanted.value, '$.job') AND a.job <> 0 AND a.state = {APPLIED}
  AND a.hash = json_extract(wanted.value, '$.hash') AND a.job_key = json_extract(wanted.value, '$.job_key')
