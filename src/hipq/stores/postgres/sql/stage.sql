-- Scheduled rows that are due become ready, earliest first (index _stage); not those that have no rank yet. Rows somebody else has locked are left for
-- the next time, so two engines that stage at once do not wait for each other.
WITH due AS MATERIALIZED (
  SELECT id FROM {live} WHERE phase = {SCHEDULED} AND scheduled_run_time <= :now AND rank <> ''
  ORDER BY scheduled_run_time LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE {live} SET phase = {READY}, token = token + 1 WHERE id = ANY (ARRAY(SELECT id FROM due)) RETURNING rank, id
