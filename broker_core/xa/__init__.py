"""Distributed transactions (X/Open XA): branches, the sessions that work in them, and the prepared ones on disk."""
