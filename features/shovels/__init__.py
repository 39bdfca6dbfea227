"""Shovels, which move messages between queues and exchanges of this node and of other brokers, and go on doing so.

    parameter ─> Definition ─> Shovel, a transfer (features/transfers)

`Shovels` has those of a node. Nothing of this is imported in a node without shovels.
"""
