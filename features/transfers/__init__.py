"""Transfers, which take messages from one end to another until they are ended: what shovels and federation share.

    Transfer: SourceEnd ──messages──> DestinationEnd
                        <──confirms──

The ends on this node are in `local.py`; a protocol brings those on other brokers (`ends.py`).
"""
