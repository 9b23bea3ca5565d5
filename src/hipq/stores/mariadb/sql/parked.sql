-- Parked jobs after a place, in order (index _parked).
SELECT {columns} FROM {live} l FORCE INDEX ({live}_parked)
WHERE parked > :rank OR parked = :rank AND id > :id ORDER BY parked, id LIMIT :page
