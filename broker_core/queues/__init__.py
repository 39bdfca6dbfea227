"""Queues: the contract of a queue, its kinds (work queues, streams and others), and the parts that they are made of."""
