-- How many answers wait for their job, and how many nobody has looked at yet, up to :most each (indexes _open and _new);
-- and how many of the latest :most came too late (primary key).
SELECT {BUFFERED} AS state, count(*) FROM (
  SELECT id FROM hipq_answers WHERE state = {BUFFERED} ORDER BY job_key, job_type, queue, tenant, id LIMIT :most
) AS early
UNION ALL SELECT {NEW}, count(*) FROM (
  SELECT id FROM hipq_answers WHERE state = {NEW} ORDER BY queue, id LIMIT :most
) AS unread
UNION ALL SELECT {LATE}, count(*) FROM (
  SELECT state FROM hipq_answers WHERE id > 0 ORDER BY id DESC LIMIT :most
) AS latest WHERE state = {LATE}
