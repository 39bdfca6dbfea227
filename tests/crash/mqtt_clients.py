"""Clients of MQTT whose node is killed again and again: each knows what it is owed, over all its connections.

A publisher sends what is not acknowledged once more when it is back; a subscriber knows the identifiers of QoS 2. So in
the end there is one truth: each number has come, with QoS 2 once.
"""

from __future__ import annotations

import random
import select
from collections import Counter
from typing import Final

from leveret.protocols.mqtt.codec.packets import (
    Ack,
    ConnAck,
    Connect,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from leveret.protocols.mqtt.codec.reader import AckRun
from tests.mqtt.over_socket import SocketClient

from .node import Node

WINDOW: Final = 20  # messages on their way
KEPT: Final = Properties(session_expiry_interval=3600)
PUBLISHED, RELEASED = "published", "released"


class Client:
    """A client with a session that is kept, over one connection after another."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.line: SocketClient | None = None
        self.connections = 0

    def begin(self, node: Node, will: Will | None = None) -> None:
        self.end()
        self.line = line = SocketClient(f"127.0.0.1:{node.port}")
        line.send(Connect(5, self.name, not self.connections, 0, "guest", b"guest", will, KEPT))
        answer = line.next(ConnAck)
        assert isinstance(answer, ConnAck)
        assert (answer.reason_code, answer.session_present) == (0, self.connections > 0)
        self.connections += 1

    def end(self) -> None:
        if self.line is not None:
            self.line.socket.close()

    def send(self, packet: object) -> None:
        assert self.line is not None
        self.line.send(packet)

    def hear(self) -> list[object]:
        """What has come by now."""
        line = self.line
        assert line is not None
        while select.select([line.socket], [], [], 0)[0]:
            line.hear()
        heard, line.heard = line.heard, []
        packets: list[object] = []
        for each in heard:
            packets += (
                [Ack(each.kind, one) for one in each.packet_ids] if isinstance(each, AckRun) else [each]
            )
        return packets


class Publisher(Client):
    """Publishes numbers with one QoS, each until it is acknowledged; the last one may be retained."""

    def __init__(
        self, name: str, topic: str, qos: int, chance: random.Random, is_retaining: bool = False
    ) -> None:
        super().__init__(name, chance)
        self.topic = topic
        self.qos = qos
        self.is_retaining = is_retaining
        self.following = 0
        self.unanswered: dict[int, tuple[str, int]] = {}  # state and number, by packet identifier
        self.again = 0

    def begin(self, node: Node, will: Will | None = None) -> None:
        super().begin(node, will)
        for packet_id, (state, number) in self.unanswered.items():
            self.again += 1
            if state == RELEASED:
                self.send(Ack(PUBREL, packet_id))
            else:
                self._publish(number, packet_id, dup=True)

    def _publish(self, number: int, packet_id: int, dup: bool) -> None:
        self.send(Publish(self.topic, b"%d" % number, self.qos, self.is_retaining, dup, packet_id))

    def act(self) -> None:
        if len(self.unanswered) < WINDOW:
            packet_id = self.following % 60_000 + 1
            self.unanswered[packet_id] = PUBLISHED, self.following
            self._publish(self.following, packet_id, dup=False)
            self.following += 1

    def work(self) -> None:
        for each in self.hear():
            assert isinstance(each, Ack)
            if each.kind == PUBREC:
                assert each.reason_code < 0x80
                self.unanswered[each.packet_id] = RELEASED, self.unanswered[each.packet_id][1]
                self.send(Ack(PUBREL, each.packet_id))
            else:
                assert each.kind == (PUBACK if self.qos == 1 else PUBCOMP)
                del self.unanswered[each.packet_id]


class Subscriber(Client):
    """Counts what it gets; its answers may be late."""

    def __init__(self, name: str, topic: str, qos: int, chance: random.Random) -> None:
        super().__init__(name, chance)
        self.topic = topic
        self.qos = qos
        self.got: Counter[int] = Counter()
        self.open: set[int] = set()  # packet identifiers of QoS 2
        self.late: list[Ack] = []
        self.is_subscribed = False

    def begin(self, node: Node, will: Will | None = None) -> None:
        super().begin(node, will)
        self.late.clear()
        if not self.is_subscribed:
            self.send(Subscribe(1, (Subscription(self.topic, self.qos),)))

    def work(self) -> None:
        for each in self.hear():
            if isinstance(each, Publish):
                if each.packet_id not in self.open:
                    self.got[int(each.payload)] += 1
                if each.qos == 2:
                    self.open.add(each.packet_id)
                self.late.append(Ack(PUBREC if each.qos == 2 else PUBACK, each.packet_id))
            elif isinstance(each, Ack):
                self.open.discard(each.packet_id)
                self.late.append(Ack(PUBCOMP, each.packet_id))
            elif isinstance(each, SubAck):
                self.is_subscribed = True
        while self.late and self.chance.random() < 0.7:
            self.send(self.late.pop(0))


class Watched(Client):
    """Breaks off with its node, with a will that tells which of its connections that was."""

    def __init__(self, name: str, topic: str, chance: random.Random) -> None:
        super().__init__(name, chance)
        self.topic = topic

    def begin(self, node: Node, will: Will | None = None) -> None:
        super().begin(node, Will(self.topic, b"%d" % self.connections, 2))
