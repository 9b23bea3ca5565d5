-- Parked jobs are ready again, in order (index _parked). Rows somebody else has locked are left for the next time.
WITH first AS MATERIALIZED (
  SELECT id FROM {live} WHERE phase = {PARKED} ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE {live} SET phase = {READY}, token = token + 1 WHERE id = ANY (ARRAY(SELECT id FROM first)) RETURNING rank, id
