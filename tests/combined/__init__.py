"""Queues with any of their arguments together, used by clients of all protocols and by operators at once."""
