-- A tick, unless another engine has added it (primary key).
UPDATE hipq_crons SET last = %(tick)s WHERE queue = %(queue)s AND name = %(name)s AND last = %(last)s
