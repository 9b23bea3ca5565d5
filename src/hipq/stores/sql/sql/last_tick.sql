-- The tick of a schedule that was added last (primary key).
SELECT last FROM hipq_crons WHERE queue = {number} AND name = :name
