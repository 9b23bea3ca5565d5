-- Parked jobs after a place, in order (index _parked).
SELECT {columns} FROM {live} l WHERE phase = {PARKED} AND (rank, id) > (:rank, :id) ORDER BY rank, id LIMIT :page
