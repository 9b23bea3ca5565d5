-- What was kept for jobs that ended (index _job): too late, or the same as the answer the job ended with, or another.
WITH gone (job, answer) AS (SELECT json_extract(value, '$.job'), json_extract(value, '$.answer') FROM json_each(:rows))
UPDATE hipq_answers SET state = CASE WHEN gone.answer = 0 THEN {LATE}
    WHEN hash = (SELECT s.hash FROM hipq_answers s WHERE s.id = gone.answer) THEN {DUPLICATE} ELSE {CONFLICT} END
FROM gone WHERE hipq_answers.job = gone.job AND hipq_answers.job <> 0 AND hipq_answers.state IN ({BUFFERED}, {MATCHED})
RETURNING id, state, job, note
