-- Hand the ticket in, if it is still held (primary key).
UPDATE hipq_tickets SET engine_id = 0, note = ''
WHERE queue = %(queue)s AND number = %(ticket)s AND engine_id = %(engine_id)s AND until > clock_timestamp() RETURNING queue
