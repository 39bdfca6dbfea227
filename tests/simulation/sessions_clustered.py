"""The world of sessions on a cluster: another node takes over from one that is killed, or that lives and does not know.

The database is that of the world `cluster`, without its leases: what counts here is that a node that was succeeded
promises its devices nothing any more, and that its successor has what was promised before.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from leveret.protocols.mqtt.codec.packets import Ack, Disconnect, Publish
from leveret.protocols.mqtt.codec.properties import PUBACK
from leveret.protocols.mqtt.codec.reason_codes import NO_MATCHING_SUBSCRIBERS

from .clustered import Database, LeasedDisk
from .held import Disk, Reached
from .sessions import HonestConnection, Sessions

LATE_ID = 60_000  # a packet identifier that no device uses otherwise


class ClusteredSessions(Sessions):
    """Devices with sessions on a cluster of two nodes."""

    weights: Mapping[str, int] = {**Sessions.weights, "succeed": 5}

    def __init__(self) -> None:
        self.database = Database()
        super().__init__()

    def _disk(self) -> Disk:
        """Return the database for the node that claims it now."""
        epoch = self.database.claim(self.database.row.epoch, "a node")
        assert epoch is not None
        return LeasedDisk(self.database, epoch)

    def _disk_again(self) -> Disk:
        return self._disk()

    def step_succeed(self, random: Random) -> None:
        """Another node takes over, and the one that served goes on with its devices until its commit is refused."""
        flying = self.node.disk.flying
        if flying is not None and random.random() < 0.5:
            self.say(f"the answer to commit {flying.number} is lost")
            self.database.commit(self.database.row.epoch, flying)
        self.say("another node takes over")
        before = self.node
        left = [each.connection for each in self.devices if each.is_in and each.connection is not None]
        self._start_again(Reached.whole(self.database.row.number))
        for connection in left:
            connection.peer.send(Publish("a", b"too late", 1, False, False, LATE_ID))
        before.advance(random.choice((0.1, 1.0)))
        while before.disk.flying is not None and not before.failed:
            before.disk.land()
            before.settle()
        for connection in left:
            promises_nothing(connection)


def promises_nothing(connection: HonestConnection) -> None:
    """Assert that a node that was succeeded has sent nothing but what may come again, or is about nothing."""
    peer = connection.peer
    peer.read()
    for packet in peer.heard:
        match packet:
            case Disconnect() | Publish(qos=0 | 1):
                continue
            case Ack(kind=kind, reason_code=code) if (kind, code) == (PUBACK, NO_MATCHING_SUBSCRIBERS):
                continue
        raise AssertionError(f"a node that was succeeded says {packet}")
