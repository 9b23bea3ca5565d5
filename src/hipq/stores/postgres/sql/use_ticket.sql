-- Hand the ticket in, if it is still held (primary key).
UPDATE hipq_tickets SET sysid = 0, note = ''
WHERE queue = %(queue)s AND number = %(ticket)s AND sysid = %(sysid)s AND until > clock_timestamp() RETURNING queue
