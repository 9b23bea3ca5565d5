-- What was kept for jobs that ended (index _job): too late, or the same as the answer the job ended with, or another. It is
-- locked as it is read, and then written.
SELECT a.id, CASE WHEN gone.answer = 0 THEN {LATE}
    WHEN a.hash = (SELECT s.hash FROM hipq_answers s WHERE s.id = gone.answer) THEN {DUPLICATE} ELSE {CONFLICT} END AS state,
  a.job, a.note
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (job BIGINT PATH '$.job', answer BIGINT PATH '$.answer')) AS gone
STRAIGHT_JOIN hipq_answers a FORCE INDEX (hipq_answers_job)
  ON a.job = gone.job AND a.job <> 0 AND a.state IN ({BUFFERED}, {MATCHED})
FOR UPDATE
