-- In the transaction that has locked its row.
UPDATE hipq_notes SET value = :value WHERE kind = :kind AND name = :name
