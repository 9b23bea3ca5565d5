-- Final jobs by their ids (primary key); one such SELECT a queue.
SELECT {columns} FROM {final} l WHERE id {in ids}
