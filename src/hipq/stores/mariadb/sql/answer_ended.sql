-- The last jobs that had these keys, as their own or for their waits, if they ended after a moment (indexes _key and
-- _waited of the final table, from their ends); whether each has had the same answer, and whether it ended with one (index
-- _job).
SELECT position, job, coalesce((
    SELECT min(a.id) FROM hipq_answers a FORCE INDEX (hipq_answers_job)
    WHERE a.job = found.job AND a.job <> 0 AND a.state IN ({SETTLED}, {APPLIED}) AND a.hash = found.hash
      AND a.job_key = found.of_key
  ), 0),
  EXISTS (
    SELECT 1 FROM hipq_answers a FORCE INDEX (hipq_answers_job) WHERE a.job = found.job AND a.job <> 0 AND a.state = {SETTLED}
  )
FROM (
  SELECT position, since, hash, of_key, CASE
    WHEN waited.update_time IS NULL OR own.update_time > waited.update_time THEN own.id ELSE waited.id END AS job
  FROM (
    SELECT wanted.position, wanted.since, wanted.hash, wanted.job_key AS of_key, (
        SELECT f.id FROM {final} f FORCE INDEX ({final}_key)
        WHERE f.job_key = wanted.job_key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant
        ORDER BY f.update_time DESC LIMIT 1
      ) AS own_id, (
        SELECT f.id FROM {final} f FORCE INDEX ({final}_waited)
        WHERE f.waited = wanted.job_key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant
        ORDER BY f.update_time DESC LIMIT 1
      ) AS waited_id
    FROM {since_rows} AS wanted
  ) AS ids
  LEFT JOIN {final} own FORCE INDEX (PRIMARY) ON own.id = own_id
  LEFT JOIN {final} waited FORCE INDEX (PRIMARY) ON waited.id = waited_id
  WHERE greatest(coalesce(own.update_time, 0), coalesce(waited.update_time, 0)) >= since
    AND (own.id IS NOT NULL OR waited.id IS NOT NULL)
) AS found
