-- The live jobs that these keys find (indexes _key and _waited, a probe or two each): by their own key first, else by that
-- of their wait. Who asks locks them, and compares again.
SELECT wanted.position, coalesce((
  SELECT l.id FROM {live} l FORCE INDEX ({live}_key)
  WHERE l.job_key = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant
), (
  SELECT l.id FROM {live} l FORCE INDEX ({live}_waited)
  WHERE l.waited = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant
), 0)
FROM {key_rows} AS wanted
