-- Parked jobs after a place, in order (index _parked).
SELECT {columns} FROM {live} l WHERE phase = 'parked' AND (rank, id) > (%(rank)s, %(id)s) ORDER BY rank, id LIMIT %(page)s
