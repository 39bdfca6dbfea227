"""Federation: exchanges get what is published upstream, queues get messages of upstream queues when they want them.

    upstreams, sets ─┐
    policies ────────┴> Federation ──one per upstream──> FederationLink: feed ──messages──> exchange or queue here
    bindings, demand ──────────────────────────────────────────────────> feed

`Federation` has the upstreams of a node, and the links of the exchanges and queues whose policies ask for them. A link
is a transfer as shovels are (`transfers/transfer.py`); its source is a feed, on this node (`local.py`) or on another
broker (a protocol brings it). Nothing of this is imported in a node without upstreams.

Source: RabbitMQ's documentation of federated exchanges and queues, and the names and headers that its plug-in uses.
"""
