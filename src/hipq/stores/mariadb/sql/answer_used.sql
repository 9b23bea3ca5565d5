-- Answers that jobs have looked at (primary key): from now on only their ids need be known, as long as their queue says. The
-- columns are written from left to right, each with what those before it have become.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
  id BIGINT PATH '$.id', state VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {bin} PATH '$.state'
)) AS used STRAIGHT_JOIN hipq_answers a FORCE INDEX (PRIMARY) ON a.id = used.id
SET a.state = used.state, a.keep_until = greatest(a.remember_until, :now + a.remember_until - a.arrived),
  a.remember_until = greatest(a.remember_until, :now + a.remember_until - a.arrived)
