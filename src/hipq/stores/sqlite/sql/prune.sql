-- The oldest final rows (index _time), to be deleted with their payloads in the same transaction.
SELECT id FROM {final} WHERE update_time < :before ORDER BY update_time LIMIT :limit
