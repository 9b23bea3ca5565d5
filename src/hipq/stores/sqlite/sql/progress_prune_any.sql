-- Whether the progress of jobs is stored that have ended (primary keys).
SELECT 1 FROM hipq_progress p WHERE p.id & 65535 = {number} AND NOT EXISTS (SELECT 1 FROM {live} l WHERE l.id = p.id) LIMIT 1
