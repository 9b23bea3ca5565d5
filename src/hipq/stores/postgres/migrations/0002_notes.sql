-- What programs leave for each other: who listens where and how far they read, with which keys URLs are signed.
CREATE TABLE hipq_notes (
  kind TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);
