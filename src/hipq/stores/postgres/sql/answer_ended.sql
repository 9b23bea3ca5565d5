-- The last jobs that had these keys, as their own or for their waits, if they ended after a moment (indexes _key and
-- _waited of the final table, from their ends); whether each has had the same answer, and whether it ended with one (index
-- _job; not the primary key, in whose order the first would be found).
SELECT wanted.position, f.id,
  coalesce((
    SELECT min(a.id + 0) FROM hipq_answers a
    WHERE a.job = f.id AND a.job <> 0 AND a.state IN ({SETTLED}, {APPLIED}) AND a.hash = wanted.hash
      AND a.job_key = wanted.job_key
  ), 0),
  (SELECT true FROM hipq_answers a WHERE a.job = f.id AND a.job <> 0 AND a.state = {SETTLED} LIMIT 1) IS NOT NULL
FROM json_to_recordset(:rows) AS wanted (
  position INTEGER, tenant TEXT, job_type TEXT, job_key TEXT, since BIGINT, hash TEXT
) CROSS JOIN LATERAL (
  SELECT id, update_time FROM (
    (
      SELECT id, update_time FROM {final} f
      WHERE f.job_key = wanted.job_key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant
      ORDER BY f.job_key DESC, f.job_type DESC, f.update_time DESC LIMIT 1
    ) UNION ALL (
      SELECT id, update_time FROM {final} f
      WHERE f.wait_key = wanted.job_key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant AND f.wait_key <> ''
      ORDER BY f.wait_key DESC, f.job_type DESC, f.tenant DESC, f.update_time DESC LIMIT 1
    )
  ) AS f ORDER BY update_time DESC LIMIT 1
) AS f WHERE f.update_time >= wanted.since
