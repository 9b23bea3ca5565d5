-- Which live jobs have these keys (index _key, one probe each). As they are now, also in a user's transaction that sees what
-- was there when it began.
SELECT STRAIGHT_JOIN wanted.position, l.id FROM {key_rows} AS wanted JOIN {live} l FORCE INDEX ({live}_key)
  ON l.job_key = wanted.job_key AND l.job_type = wanted.job_type AND l.tenant = wanted.tenant
LOCK IN SHARE MODE
