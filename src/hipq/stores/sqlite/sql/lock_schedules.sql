-- What schedules are before they are written (primary key): nobody else writes before the transaction ends.
SELECT name, version, next FROM hipq_crons WHERE queue = {number} AND name IN (SELECT value FROM json_each(:names))
