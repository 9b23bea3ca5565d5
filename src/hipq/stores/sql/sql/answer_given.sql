-- The answers that these jobs have to look at (index _job).
SELECT {kept} FROM hipq_answers WHERE job {in jobs} AND job <> 0 AND state = {MATCHED}
