-- The queues that have answers kept for jobs which have not waited for them yet (index _early): hardly ever any.
SELECT DISTINCT queue FROM hipq_answers{by_early} WHERE state = {BUFFERED} AND job <> 0
