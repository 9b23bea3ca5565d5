-- Rows one engine owns (index _owner); one such SELECT a queue, in one statement.
SELECT {columns} FROM {live} l WHERE owner = %(engine_id)s AND owner <> 0 LIMIT %(limit)s
