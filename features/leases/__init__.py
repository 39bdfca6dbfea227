"""Leases: messages of a work queue that are set aside for one reader until it settles them."""
