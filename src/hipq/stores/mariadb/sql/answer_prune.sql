-- Delete answers that need not be kept any longer (index _time).
DELETE FROM hipq_answers WHERE keep_until < :now AND state <> {MATCHED} ORDER BY keep_until LIMIT :limit
