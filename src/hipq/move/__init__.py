"""`hipq move`: the jobs of a SQLite file go to PostgreSQL while programs use them."""
