-- Jobs that were picked by the queue's rules, in that order, locked by primary key; one that somebody else has locked is
-- left out, and so is one that was claimed since. None if there are other rules by now, unless they cannot change.
SELECT l.id FROM unnest(:picked::bigint[]) WITH ORDINALITY AS picked (id, number) JOIN {live} l
    ON l.id = ANY (ARRAY[picked.id])
  WHERE l.phase IN ({READY}, {PARKED}) AND (:version::bigint = -1 OR (SELECT hipq_version({number})) = :version)
  ORDER BY picked.number LIMIT :limit - (SELECT count(*) FROM todo) FOR UPDATE OF l SKIP LOCKED
