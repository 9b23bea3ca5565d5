-- Answers with the same keys and ids that are still remembered (index _ids, one probe each).
SELECT wanted.position, a.id, a.job, a.attempt FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
  position BIGINT PATH '$.position', twin BIGINT PATH '$.twin', queue BIGINT PATH '$.queue',
  tenant VARCHAR(64) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.tenant',
  job_type VARCHAR(200) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.job_type',
  job_key VARCHAR(500) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.job_key',
  answer_id LONGTEXT CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.answer_id'
)) AS wanted STRAIGHT_JOIN hipq_answers a FORCE INDEX (hipq_answers_ids) ON a.twin = wanted.twin AND a.twin <> 0
WHERE a.job_key = wanted.job_key AND a.answer_id = wanted.answer_id AND a.job_type = wanted.job_type
  AND a.queue = wanted.queue AND a.tenant = wanted.tenant
  AND (a.remember_until > :now OR a.state = {MATCHED} OR a.state = {BUFFERED} AND a.keep_until > :now)
