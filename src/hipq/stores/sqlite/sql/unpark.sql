-- Parked jobs are ready again, in order (index _parked).
UPDATE {live} SET phase = {READY}, token = token + 1
WHERE id IN (SELECT id FROM {live} WHERE phase = {PARKED} ORDER BY rank, id LIMIT :limit)
