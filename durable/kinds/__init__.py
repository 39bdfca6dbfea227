"""Kinds of things that are kept: what each is called in the store, its record, and how it comes back from that."""
