"""Observation of a broker by operators and tools: events, counts, their history, and traced messages."""
