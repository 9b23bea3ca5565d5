-- The queues that have answers kept for jobs which have not waited for them yet (index _early): hardly ever any.
SELECT DISTINCT queue FROM hipq_answers FORCE INDEX (hipq_answers_early) WHERE early_job > 0
