-- Jobs that wait for user code other than their handler, of these types and registered retry strategies (index _todo), locked
-- as they are read.
SELECT id FROM {live} FORCE INDEX ({live}_todo) WHERE todo {in text strategies} AND job_type {in text types}
LIMIT :limit FOR UPDATE SKIP LOCKED
