-- Engines whose lease is over. The rows they own are found by the anti-join in orphans.sql, with or without this row.
DELETE FROM hipq_engines WHERE lease_until <= :steady OR boot <> :boot
