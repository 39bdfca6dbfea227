"""Keep durable commits in SQLite and in segment files: their formats, verification, backup and salvage."""
