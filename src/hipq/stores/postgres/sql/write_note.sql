-- In the transaction that has locked its row.
UPDATE hipq_notes SET value = %(value)s WHERE kind = %(kind)s AND name = %(name)s
