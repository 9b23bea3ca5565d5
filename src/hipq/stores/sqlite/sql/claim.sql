-- Take rows that were picked in this transaction (the write lock is held, so nobody else has them).
-- `attempt` grows here and nowhere else. A critical job holds nothing.
UPDATE {live} SET state = {RUNNING}, phase = {EXECUTING}, owner = :engine_id, token = token + 1,
  held = CASE WHEN job_type IN (SELECT value FROM json_each(:critical)) THEN 0 ELSE throttle_factor END,
  attempt = attempt + 1, error = {NONE}, deadline = :now + CAST(round(timeout * 1000000) AS INTEGER),
  history = substr(history, 1, length(history) - 1) || CASE history WHEN '[]' THEN '' ELSE ',' END || :entry || ']',
  update_time = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND phase IN ({READY}, {PARKED})
