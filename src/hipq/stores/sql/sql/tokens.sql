-- The tokens of live jobs (primary key); one such SELECT a queue.
SELECT id, token FROM {live} WHERE id {in ids}
