-- What programs leave for each other: who listens where and how far they read, with which keys URLs are signed.
CREATE TABLE hipq_notes (
  kind VARCHAR(100) NOT NULL,
  name VARCHAR(660) NOT NULL,
  value LONGTEXT NOT NULL,
  PRIMARY KEY (kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
