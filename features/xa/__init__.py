"""Distributed transactions (X/Open XA): branches, the sessions that work in them, and prepared branches on disk."""
