-- What there is to do in one queue; one such SELECT a queue, in one statement. Each part is one index probe (_ready, _todo,
-- _due, _owner, _parked, hipq_answers_unused).
SELECT {number},
  EXISTS (SELECT 1 FROM {live} FORCE INDEX ({live}_ready) WHERE phase = {READY} AND job_type {in text types})
    OR EXISTS (SELECT 1 FROM {live} FORCE INDEX ({live}_todo) WHERE todo {in text strategies} AND job_type {in text types})
    OR :any AND (
      EXISTS (SELECT 1 FROM {live} FORCE INDEX ({live}_ready) WHERE phase = {READY})
      OR EXISTS (SELECT 1 FROM {live} FORCE INDEX ({live}_todo) WHERE todo IS NOT NULL)
    ),
  coalesce((SELECT min(due) FROM {live} FORCE INDEX ({live}_due) WHERE phase = {SCHEDULED}), 0),
  coalesce((SELECT min(due) FROM {live} FORCE INDEX ({live}_due) WHERE phase = {WAITING}), 0),
  EXISTS (SELECT 1 FROM {live} FORCE INDEX ({live}_owner) WHERE owner > 0),
  EXISTS (SELECT 1 FROM {live} FORCE INDEX ({live}_parked) WHERE parked IS NOT NULL),
  EXISTS (SELECT 1 FROM hipq_answers FORCE INDEX (hipq_answers_unused) WHERE queue = {number} AND state = {NEW}),
  (SELECT crons FROM hipq_queues WHERE number = {number}),
  CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
