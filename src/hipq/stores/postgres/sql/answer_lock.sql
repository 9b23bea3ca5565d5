-- The locks of keys, in an order all share. A statement of its own: the next one reads what was committed while this waited.
SELECT count(pg_advisory_xact_lock(number)) FROM unnest(:numbers::bigint[]) AS number
