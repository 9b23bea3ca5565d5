-- Answers that were kept for jobs which ended and never waited for them (index _early) are late. No job can be given them
-- any more, so their keys need not be locked. The state is compared again so that no index but the primary key fits.
WITH old AS MATERIALIZED (
  SELECT a.id FROM hipq_answers a
  WHERE a.state = {BUFFERED} AND a.job <> 0 AND a.queue = {number} AND (SELECT true FROM {final} f WHERE f.id = a.job)
  ORDER BY a.job LIMIT :limit
)
UPDATE hipq_answers SET state = {LATE} WHERE id = ANY (ARRAY(SELECT id FROM old)) AND state || '' = {BUFFERED}
