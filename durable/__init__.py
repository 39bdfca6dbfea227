"""Durability gathers changes, commits them to a store, and reads them back; it knows the core, and no features."""
