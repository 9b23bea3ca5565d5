-- What programs leave for each other: who listens where and how far they read, with which keys URLs are signed.
CREATE TABLE hipq_notes (
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
