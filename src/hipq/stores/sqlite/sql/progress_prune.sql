-- Delete the progress of jobs that have ended (primary keys).
DELETE FROM hipq_progress WHERE id IN (
  SELECT p.id FROM hipq_progress p
  WHERE p.id & 65535 = {number} AND NOT EXISTS (SELECT 1 FROM {live} l WHERE l.id = p.id) LIMIT :limit
)
