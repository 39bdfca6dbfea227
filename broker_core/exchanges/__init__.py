"""Exchanges: the contract of exchange types, the standard types, and routing from an exchange to queues."""
