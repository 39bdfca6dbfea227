"""Deduplication: a message whose id was taken before, by an exchange or a queue, is confirmed and not delivered."""
