-- Whether there are answers that need not be kept any longer (index _time).
SELECT 1 FROM hipq_answers WHERE keep_until < :now AND state <> {MATCHED} LIMIT 1
