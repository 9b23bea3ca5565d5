-- How many answers to jobs of these queues no job has used, by their state: up to :most of each queue and state (index
-- hipq_answers_unused; the registry's primary key).
SELECT state, CAST(sum(found) AS BIGINT) FROM (
  SELECT words.state AS state, (
    SELECT count(*) FROM (
      SELECT 1 AS each_one FROM hipq_answers a
      WHERE a.queue = queues.number AND a.state = words.state AND a.{UNUSED} LIMIT :most
    ) AS few
  ) AS found
  FROM hipq_queues AS queues, (
    SELECT {NEW} AS state UNION ALL SELECT {BUFFERED} UNION ALL SELECT {CONFLICT} UNION ALL SELECT {LATE}
    UNION ALL SELECT {UNREADABLE} UNION ALL SELECT {DUPLICATE}
  ) AS words
  WHERE queues.number {in queues}
) AS counted GROUP BY state
