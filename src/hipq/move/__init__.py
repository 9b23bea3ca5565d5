"""`hipq move`: the jobs of a SQLite file go to PostgreSQL or MariaDB while programs use them."""
