-- In the transaction that has read it.
INSERT OR REPLACE INTO hipq_notes VALUES (:kind, :name, :value)
