-- Parked jobs after a place, in order (index _parked). In two parts: for (rank, id) > (:rank, :id) SQLite would use the
-- index by rank only, and read again through all jobs of that rank that come before the place.
SELECT {columns} FROM {live} WHERE id IN (
  SELECT id FROM (
    SELECT id, rank FROM (
      SELECT id, rank FROM {live} INDEXED BY {live}_parked
      WHERE phase = {PARKED} AND rank = :rank AND id > :id ORDER BY id LIMIT :page
    )
    UNION ALL
    SELECT id, rank FROM (
      SELECT id, rank FROM {live} INDEXED BY {live}_parked
      WHERE phase = {PARKED} AND rank > :rank ORDER BY rank, id LIMIT :page
    )
  ) ORDER BY rank, id LIMIT :page
) ORDER BY rank, id
