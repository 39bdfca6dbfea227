"""Durability: the broker's side of the store, which gathers changes, commits them, and reads messages back."""
