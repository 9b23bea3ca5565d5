-- The live jobs that these keys find (indexes _key and _waited, a probe or two each): by their own key first, else by that
-- of their wait. Locked in the order of their ids as every transaction that writes several does, and compared again, since
-- a row may have changed before it was locked. Spelled so that neither that order nor a join makes reading a whole index
-- look cheap.
WITH wanted AS MATERIALIZED (
  SELECT position, job_key AS of_key, coalesce((
    SELECT l.id FROM {live} l
    WHERE l.job_key = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant
  ), (
    SELECT l.id FROM {live} l
    WHERE l.wait_key = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant AND l.wait_key <> ''
  )) AS found
  FROM json_to_recordset(:rows) AS wanted (position INTEGER, tenant TEXT, job_type TEXT, job_key TEXT)
)
SELECT wanted.position, {columns}
FROM wanted JOIN {live} l ON l.id = ANY (ARRAY[found]) AND of_key IN (job_key, wait_key)
ORDER BY l.id + 0 FOR UPDATE OF l
