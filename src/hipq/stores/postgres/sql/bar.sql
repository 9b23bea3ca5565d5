-- Wait for all who claim from this queue without its admission lock; who comes to do so waits for us (see hipq_version).
SELECT pg_advisory_xact_lock(1751740529, {number})
