-- Whether an engine may claim (primary key): it is alive, and nobody is moving the jobs elsewhere.
SELECT 1 FROM hipq_engines WHERE engine_id = :engine_id AND lease_until > :steady AND boot = :boot
  AND NOT EXISTS (SELECT 1 FROM hipq_engines WHERE serves = :moving AND lease_until > :steady AND boot = :boot)
