"""The loop's side of the store: what changes is gathered and committed, and comes back at a start."""
