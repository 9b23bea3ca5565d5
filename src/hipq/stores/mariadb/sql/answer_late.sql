-- Answers that were kept for jobs which ended and never waited for them (index _early) are late. No job can be given them
-- any more, so their keys need not be locked.
UPDATE hipq_answers FORCE INDEX (hipq_answers_early) SET state = {LATE}
WHERE early_job > 0 AND queue = {number} AND EXISTS (SELECT 1 FROM {final} f WHERE f.id = early_job) LIMIT :limit
