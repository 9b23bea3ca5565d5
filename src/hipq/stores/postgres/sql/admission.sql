-- A queue's rules and what its limits remember (primary key); with FOR UPDATE, the queue's admission lock. A statement
-- of its own: what the next one reads is as of after the wait, and of two claims the second sees what the first took.
-- Also whether jobs wait for user code other than their handler (index _todo): they are taken first. And the version as
-- it is now, which may be a later one than that of these rules. And whether there are other engines.
SELECT rules, admission, version, EXISTS (
  SELECT FROM {live}
  WHERE {TODO} AND job_type = ANY (:types::text[])
    AND {strategy} = ANY (:strategies::text[])
), {current}, (SELECT count(*) > 1 FROM hipq_engines) FROM hipq_queues WHERE number = {number} {lock}
