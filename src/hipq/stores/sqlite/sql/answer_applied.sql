-- Answers with the same keys and bodies, after which these jobs were to be tried again (index _job).
SELECT json_group_array(json_array(json_extract(wanted.value, '$[0]'), a.id))
FROM json_each(:rows) AS wanted CROSS JOIN hipq_answers a INDEXED BY hipq_answers_job
WHERE a.job = json_extract(wanted.value, '$[1]') AND a.job <> 0 AND a.state = 'applied'
  AND a.hash = json_extract(wanted.value, '$[2]') AND a.job_key = json_extract(wanted.value, '$[3]')
