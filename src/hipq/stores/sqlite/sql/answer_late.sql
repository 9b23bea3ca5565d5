-- Answers that were kept for jobs which ended and never waited for them (index _early) are late.
UPDATE hipq_answers SET state = {LATE} WHERE id IN (
  SELECT a.id FROM hipq_answers a INDEXED BY hipq_answers_early
  WHERE a.state = {BUFFERED} AND a.job <> 0 AND a.queue = {number} AND EXISTS (SELECT 1 FROM {final} f WHERE f.id = a.job)
  LIMIT :limit
)
