-- Fails at once if somebody has locked a queue's table against writers, or waits to.
SELECT id FROM {live} WHERE id = 0 FOR UPDATE NOWAIT
