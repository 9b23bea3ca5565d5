-- What was told since (primary key), in one column: an engine that sleeps asks often, and each column costs it more.
SELECT concat_ws(':', id, queue, job, rank) FROM hipq_news WHERE id > :floor AND writer <> :writer
