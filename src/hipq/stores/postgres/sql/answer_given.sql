-- The answers that these jobs have to look at (index _job).
SELECT {kept} FROM hipq_answers a WHERE a.job = ANY (%(jobs)s::bigint[]) AND a.job <> 0 AND a.state = 'matched'
