-- How many answers to jobs of one queue are in a state, up to :most (index hipq_answers_unused); such SELECTs are joined into
-- one statement.
(
  SELECT :state, count(*) FROM (
    SELECT 1 FROM hipq_answers FORCE INDEX (hipq_answers_unused) WHERE queue = :queue AND state = :state LIMIT :most
  ) AS few
)
