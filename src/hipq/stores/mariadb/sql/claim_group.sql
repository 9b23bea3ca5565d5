-- The next places of a claim group after a given one (index _ready), with the number of the claim group; such SELECTs are
-- joined into one statement.
(
  SELECT :number, rank, id FROM {live} FORCE INDEX ({live}_ready)
  WHERE phase = {READY} AND job_type = :job_type AND lane = :lane AND windowed = {windowed} AND throttle_factor = :factor
    AND (rank > :rank OR rank = :rank AND id > :id) AND scheduled_run_time <= :now
  ORDER BY rank, id LIMIT :count
)
