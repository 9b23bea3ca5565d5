-- Give the ticket back unused (primary key).
UPDATE hipq_tickets SET engine_id = 0, note = %(note)s WHERE queue = %(queue)s AND number = %(ticket)s RETURNING queue
