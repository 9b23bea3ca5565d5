-- Delete answers that need not be kept any longer (index _time). Rows another prune has locked are left to it.
WITH old AS MATERIALIZED (
  SELECT id FROM hipq_answers WHERE keep_until < :now AND state <> {MATCHED}
  ORDER BY keep_until LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM hipq_answers WHERE id = ANY (ARRAY(SELECT id FROM old))
