-- Scheduled rows that are due, earliest first (index _due); not those that have no rank yet. Rows somebody else has locked are
-- left for the next time, so two engines that stage at once do not wait for each other.
SELECT rank, id FROM {live} FORCE INDEX ({live}_due) WHERE phase = {SCHEDULED} AND due <= :now AND rank <> ''
ORDER BY due LIMIT :limit FOR UPDATE SKIP LOCKED
