-- How far jobs have come; of those that have moved on meanwhile nothing is written (primary keys). Of two attempts at a job
-- the later one counts, whichever is written last. The columns are written from left to right: the attempt last.
INSERT INTO hipq_progress (id, attempt, fraction, message, at)
SELECT STRAIGHT_JOIN said.id, said.attempt, said.fraction, said.message, :now
FROM {report_rows} AS said JOIN {live} l FORCE INDEX (PRIMARY) ON l.id = said.id AND l.token = said.token ORDER BY said.id
ON DUPLICATE KEY UPDATE
  fraction = IF(hipq_progress.attempt <= VALUES(attempt), VALUES(fraction), hipq_progress.fraction),
  message = IF(hipq_progress.attempt <= VALUES(attempt), VALUES(message), hipq_progress.message),
  at = IF(hipq_progress.attempt <= VALUES(attempt), VALUES(at), hipq_progress.at),
  attempt = greatest(hipq_progress.attempt, VALUES(attempt));
SELECT STRAIGHT_JOIN p.id FROM {report_rows} AS said JOIN {live} l FORCE INDEX (PRIMARY) ON l.id = said.id AND l.token = said.token
  JOIN hipq_progress p FORCE INDEX (PRIMARY) ON p.id = said.id AND p.attempt = said.attempt
