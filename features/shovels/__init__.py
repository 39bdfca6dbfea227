"""Shovels, which move messages between queues and exchanges of this node and of other brokers, and go on doing so.

    parameter ─> Definition ─> Shovel: SourceEnd ──messages──> Destination
                                         <──confirms──

`Shovels` has those of a node. The ends on this node are in `local.py`; a protocol brings those on other brokers
(`ends.py`). Nothing of this is imported in a node without shovels.
"""
