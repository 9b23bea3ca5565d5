-- Answers with the same keys and ids that are still remembered (index _ids, one probe each).
SELECT json_group_array(json_array(json_extract(wanted.value, '$.position'), a.id, a.job, a.attempt)) AS gathered
FROM json_each(:rows) AS wanted CROSS JOIN hipq_answers a INDEXED BY hipq_answers_ids
WHERE a.twin = json_extract(wanted.value, '$.twin') AND a.twin <> 0
  AND a.job_key = json_extract(wanted.value, '$.job_key') AND a.answer_id = json_extract(wanted.value, '$.answer_id')
  AND a.job_type = json_extract(wanted.value, '$.job_type') AND a.queue = json_extract(wanted.value, '$.queue')
  AND a.tenant = json_extract(wanted.value, '$.tenant')
  AND (a.remember_until > :now OR a.state = {MATCHED} OR a.state = {BUFFERED} AND a.keep_until > :now)
