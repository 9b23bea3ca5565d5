-- The live jobs that have these keys (index _key, one probe each), locked in the order of their ids as every transaction
-- that writes several does. Spelled so that neither that order nor a join makes reading a whole index look cheap.
WITH wanted (position, of_tenant, of_type, of_key) AS NOT MATERIALIZED (
  SELECT * FROM json_to_recordset(%(rows)s) AS wanted (position INTEGER, tenant TEXT, job_type TEXT, job_key TEXT)
)
SELECT wanted.position, {columns}
FROM wanted JOIN {live} l ON job_key = ANY (ARRAY[of_key]) AND job_type = of_type AND tenant = of_tenant
ORDER BY l.id + 0 FOR UPDATE OF l
