-- The tick of a schedule that was added last (primary key).
SELECT last FROM hipq_crons WHERE queue = %(queue)s AND name = %(name)s
