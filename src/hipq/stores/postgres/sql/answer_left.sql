-- What was kept for jobs that ended (index _job): too late, or the same as the answer the job ended with, or another. Found
-- by LATERAL and LIMIT, a probe a job: else a plan that was made while there were few answers reads all there are.
WITH kept AS MATERIALIZED (
  SELECT a.id, gone.answer FROM json_to_recordset(:rows) AS gone (job BIGINT, answer BIGINT) CROSS JOIN LATERAL (
    SELECT id FROM hipq_answers a
    WHERE a.job = gone.job AND a.job <> 0 AND a.state IN ({BUFFERED}, {MATCHED}) LIMIT 1000000
  ) AS a
)
UPDATE hipq_answers a SET state = CASE WHEN kept.answer = 0 THEN {LATE}
    WHEN a.hash = (SELECT s.hash FROM hipq_answers s WHERE s.id = kept.answer) THEN {DUPLICATE} ELSE {CONFLICT} END
FROM kept WHERE a.id = ANY (ARRAY[kept.id])
RETURNING a.id, a.state, a.job, a.note
