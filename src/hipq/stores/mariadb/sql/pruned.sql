-- Delete final rows with their payloads (primary keys); what another prune has locked is left to it.
SELECT id FROM {final} FORCE INDEX (PRIMARY) WHERE id {in ids} FOR UPDATE SKIP LOCKED
