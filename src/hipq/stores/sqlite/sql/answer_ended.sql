-- The last jobs that had these keys, as their own or for their waits, if they ended after a moment (indexes _key and
-- _waited of the final table, from their ends); whether each has had the same answer, and whether it ended with one
-- (index _job).
SELECT json_group_array(json_array(json_extract(wanted.value, '$.position'), f.id,
  coalesce((
    SELECT min(a.id) FROM hipq_answers a INDEXED BY hipq_answers_job WHERE a.job = f.id AND a.job <> 0
      AND a.state IN ({SETTLED}, {APPLIED}) AND a.hash = json_extract(wanted.value, '$.hash')
      AND a.job_key = json_extract(wanted.value, '$.job_key')
  ), 0),
  EXISTS (SELECT 1 FROM hipq_answers a INDEXED BY hipq_answers_job WHERE a.job = f.id AND a.job <> 0 AND a.state = {SETTLED})
)) AS gathered
FROM json_each(:rows) AS wanted CROSS JOIN {final} f
WHERE f.id = (
    SELECT id FROM (
      SELECT * FROM (
        SELECT id, update_time FROM {final} INDEXED BY {final}_key
        WHERE job_key = json_extract(wanted.value, '$.job_key') AND job_type = json_extract(wanted.value, '$.job_type')
          AND tenant = json_extract(wanted.value, '$.tenant')
        ORDER BY update_time DESC LIMIT 1
      )
      UNION ALL
      SELECT * FROM (
        SELECT id, update_time FROM {final} INDEXED BY {final}_waited
        WHERE wait_key = json_extract(wanted.value, '$.job_key') AND job_type = json_extract(wanted.value, '$.job_type')
          AND tenant = json_extract(wanted.value, '$.tenant') AND wait_key <> ''
        ORDER BY update_time DESC LIMIT 1
      )
    ) ORDER BY update_time DESC LIMIT 1
  ) AND f.update_time >= json_extract(wanted.value, '$.since')
