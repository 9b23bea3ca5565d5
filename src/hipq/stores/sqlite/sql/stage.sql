-- Scheduled rows that are due become ready, earliest first (index _stage); not those that have no rank yet.
UPDATE {live} SET phase = {READY}, token = token + 1
WHERE id IN (
  SELECT id FROM {live} WHERE phase = {SCHEDULED} AND scheduled_run_time <= :now AND rank <> ''
  ORDER BY scheduled_run_time LIMIT :limit
)
