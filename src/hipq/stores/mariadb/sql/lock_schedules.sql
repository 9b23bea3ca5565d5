-- What schedules are before they are written, locked in an order that all share (primary key).
SELECT name, version, next FROM hipq_crons WHERE queue = {number} AND name {in text names} ORDER BY name FOR UPDATE
