-- Take rows that were picked, and locked, in this transaction, if the lease of the engine is alive. `attempt` grows here and
-- nowhere else. A critical job holds nothing. Columns are written from left to right: those that are read come last.
UPDATE {live} SET state = {RUNNING}, owner = :engine_id, token = token + 1,
  held = CASE WHEN job_type {in text critical} THEN 0 ELSE throttle_factor END,
  attempt = attempt + 1, error = {NONE}, deadline = :now + CAST(round(timeout * 1000000) AS SIGNED),
  history = concat(left(history, char_length(history) - 1), CASE history WHEN '[]' THEN '' ELSE ',' END, :entry, ']'),
  update_time = :now, phase = {EXECUTING}
WHERE id {in ids} AND phase IN ({READY}, {PARKED})
  AND EXISTS (SELECT 1 FROM hipq_engines WHERE engine_id = :engine_id AND lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))
