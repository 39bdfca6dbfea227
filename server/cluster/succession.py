"""Tell the node that has served before that another does, until it has heard: it may be cut off from the database.

Its clients wait for confirms that cannot come, and new ones for an answer. Told, it closes their connections at once,
and passes those that come from then on to its successor.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

import trio

from leveret.server.cluster.introduction import NAME_SIZE, Announcement, Serials, Succession, notice
from leveret.server.cluster.relay import connected

log: Final = logging.getLogger("leveret.cluster")

# A predecessor that cannot be reached for longer has closed its clients' connections.
TOLD_FOR_S: Final = 300.0
AGAIN_S: Final = 0.5
CONNECT_S: Final = 2.0
HEARD_S: Final = 30.0  # it may be paused, and goes on later


async def tell(predecessor: Announcement, news: Succession) -> None:
    """Tell a node of the takeover, again and again for some time."""
    serials = Serials(os.urandom(NAME_SIZE))
    with trio.move_on_after(TOLD_FOR_S):
        has_heard = False
        while not has_heard:
            has_heard = await _has_heard(predecessor, notice(news, predecessor.key, serials.next()))
            await trio.sleep(AGAIN_S)
        log.info("the node at %s has heard of the takeover, unless it has ended", predecessor.address)


async def _has_heard(predecessor: Announcement, octets: bytes) -> bool:
    """Send the news, and wait until the other end has hung up, as it does when it has read them."""
    server: socket.socket | None = None
    with trio.move_on_after(CONNECT_S):
        try:
            server = await connected(predecessor.address)
        except OSError:
            return False
    if server is None:
        return False
    with server, trio.move_on_after(HEARD_S):
        try:
            server.sendall(octets)  # a few hundred bytes, for which a new connection has room
            await trio.lowlevel.wait_readable(server)
            return not server.recv(1)
        except OSError:
            return False
    return False
