-- End the leases that are over. The rows of their engines are found by the anti-join in orphans.sql.
DELETE FROM hipq_engines WHERE lease_until <= CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
