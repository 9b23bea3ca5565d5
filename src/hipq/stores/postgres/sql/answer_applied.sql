-- Answers with the same keys and bodies, after which these jobs were to be tried again (index _job). A statement of its
-- own, after the jobs are locked: it must see what was committed while that waited.
SELECT wanted.position, a.id
FROM json_to_recordset(:rows) AS wanted (position INTEGER, job BIGINT, hash TEXT, job_key TEXT) CROSS JOIN LATERAL (
  SELECT id FROM hipq_answers a WHERE a.job = wanted.job AND a.job <> 0 AND a.state = {APPLIED} AND a.hash = wanted.hash
    AND a.job_key = wanted.job_key LIMIT 1
) AS a
