"""The loop's side of the store: what is gathered, committed, and read back."""
