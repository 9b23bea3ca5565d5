-- What is kept for jobs that take answers: what belongs to each (index _early), and what came under its keys at most so long
-- before it was added and after the end of the last job that had that key (index _open). Some for each, in the order it
-- came.
SELECT json_group_array(json_array(
  json_extract(wanted.value, '$.job'), a.id, a.job, a.attempt, json(iif(a.answer_id = '' AND (a.hash, a.job_key) = (
    SELECT had.hash, had.job_key FROM hipq_answers had WHERE had.id = json_extract(wanted.value, '$.applied')
  ), 'true', 'false'))
)) AS gathered
FROM json_each(:rows) AS wanted CROSS JOIN hipq_answers a
WHERE a.id IN (
  SELECT id FROM (
    SELECT b.id FROM hipq_answers b INDEXED BY hipq_answers_early
    WHERE b.queue = {number} AND b.job = json_extract(wanted.value, '$.job') AND b.job <> 0 AND b.state = {BUFFERED}
      AND b.keep_until > :now AND b.id > :after
    ORDER BY b.id LIMIT :looked_at
  )
  UNION ALL
  SELECT id FROM (
    SELECT b.id
    FROM json_each(json_extract(wanted.value, '$.keys')) AS name CROSS JOIN hipq_answers b INDEXED BY hipq_answers_open
    WHERE b.job_key = name.value AND b.job_type = json_extract(wanted.value, '$.job_type') AND b.queue = {number}
      AND b.tenant = json_extract(wanted.value, '$.tenant') AND b.state = {BUFFERED} AND b.keep_until > :now AND b.id > :after
      AND b.job = 0 AND b.early_until >= json_extract(wanted.value, '$.create_time') AND b.arrived > max(coalesce((
        SELECT f.update_time FROM {final} f INDEXED BY {final}_key
        WHERE f.job_key = name.value AND f.job_type = json_extract(wanted.value, '$.job_type')
          AND f.tenant = json_extract(wanted.value, '$.tenant')
        ORDER BY f.update_time DESC LIMIT 1
      ), 0), coalesce((
        SELECT f.update_time FROM {final} f INDEXED BY {final}_waited
        WHERE f.wait_key = name.value AND f.job_type = json_extract(wanted.value, '$.job_type')
          AND f.tenant = json_extract(wanted.value, '$.tenant') AND f.wait_key <> ''
        ORDER BY f.update_time DESC LIMIT 1
      ), 0))
    ORDER BY b.id LIMIT :looked_at
  )
)
