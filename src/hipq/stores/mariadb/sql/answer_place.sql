-- Where answers go from here (primary key): their state, their job, why.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
  id BIGINT PATH '$.id', state VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.state', job BIGINT PATH '$.job',
  note LONGTEXT CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.note'
)) AS placed STRAIGHT_JOIN hipq_answers a FORCE INDEX (PRIMARY) ON a.id = placed.id
SET a.state = placed.state, a.note = placed.note, a.job = CASE placed.job WHEN 0 THEN a.job ELSE placed.job END
