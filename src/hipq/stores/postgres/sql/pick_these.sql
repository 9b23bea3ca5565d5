-- Jobs that were picked by the queue's rules, in that order, locked by primary key; one that somebody else has locked is
-- left out, and so is one that was claimed since.
SELECT l.id FROM unnest(%(picked)s::bigint[]) WITH ORDINALITY AS picked (id, number) JOIN {live} l ON l.id = picked.id
  WHERE l.phase IN ('ready', 'parked')
  ORDER BY picked.number LIMIT %(limit)s - (SELECT count(*) FROM todo) FOR UPDATE OF l SKIP LOCKED
