"""Bodies of messages as typed columns: schemas, where they come from, and what cannot be decoded."""
