-- Remove schedules that are locked (primary key).
DELETE FROM hipq_crons WHERE queue = {number} AND name {in text names}
