"""The durable store: commits in SQLite and in segment files, their formats, their check, copy and repair."""
