-- The row of a note, to be locked by the next statement: else two who find none would both write one.
INSERT INTO hipq_notes VALUES (:kind, :name, '') ON CONFLICT DO NOTHING
