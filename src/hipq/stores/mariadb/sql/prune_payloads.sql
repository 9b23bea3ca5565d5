-- Delete payloads of final jobs that go (primary key).
DELETE FROM hipq_payloads WHERE id {in ids}
