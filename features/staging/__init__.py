"""Staged publishing: rows in batches that are published as a whole, exactly once."""
