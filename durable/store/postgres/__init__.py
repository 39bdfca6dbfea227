"""The store in PostgreSQL: the database has the log and the state of record, and a local copy serves the reads."""
