"""Refuse a client that this node does not pass on, in the client's own protocol, as a node does that shuts down.

The front-end of the protocol says it, on a broker without anything in it: no client gets as far as to log in. What is
inside TLS, WebSockets or a PROXY header cannot be answered before it is unpacked, which only a node that serves does:
such a connection is closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leveret.broker import Broker
from leveret.config.config import Config
from leveret.errors import MISTAKES
from leveret.outbox import Outbox
from leveret.server.node.listener import ListenerRules

if TYPE_CHECKING:
    from leveret.front_end import Peer


def refused(config: Config, entrance: ListenerRules, peer: Peer, first: bytes, why: str) -> bytes:
    """Return what a client of an AMQP listener is told; `first` is what it has sent. Empty if it is not known yet."""
    if not entrance.is_plain or not first or entrance.undecided(first):
        return b""
    outbox = Outbox([])
    try:
        front = entrance.protocol_of(first).factory(Broker(), config, outbox, peer, time.monotonic())
        front.receive(first, time.monotonic())
        front.shut_down(why)
    except MISTAKES:  # a plug-in's front-end, perhaps, that needs a broker with something in it
        return b""
    return b"".join(outbox.take())
