-- Answers with the same keys and bodies, after which these jobs were to be tried again (index _job).
SELECT wanted.position, min(a.id)
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
  position BIGINT PATH '$.position', job BIGINT PATH '$.job',
  hash VARCHAR(200) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.hash',
  job_key VARCHAR(500) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.job_key'
)) AS wanted STRAIGHT_JOIN hipq_answers a FORCE INDEX (hipq_answers_job)
  ON a.job = wanted.job AND a.job <> 0 AND a.state = {APPLIED} AND a.hash = wanted.hash
WHERE a.job_key = wanted.job_key GROUP BY wanted.position
