-- Delete the progress of jobs that have ended (primary keys).
DELETE FROM hipq_progress
WHERE id & 65535 = {number} AND NOT EXISTS (SELECT 1 FROM {live} l WHERE l.id = hipq_progress.id) LIMIT :limit
