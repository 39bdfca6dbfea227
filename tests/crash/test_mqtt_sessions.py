"""kill -9 while MQTT clients publish and receive: QoS 2 is exactly once, and retained messages and wills are there."""

from __future__ import annotations

import random
import select
from collections import Counter
from pathlib import Path

import pytest

from leveret.protocols.mqtt.codec.packets import (
    Ack,
    ConnAck,
    Connect,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from leveret.protocols.mqtt.codec.reader import AckRun
from tests.mqtt.over_socket import SocketClient

from .node import Node, damage_in

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROUNDS = 6
WINDOW = 20  # messages on their way
SETTINGS = {"LEVERET_LISTENERS": '[{address="127.0.0.1:0",protocols=["amqp091","mqtt"]}]'}
KEPT = Properties(session_expiry_interval=3600)
PUBLISHED, RELEASED = "published", "released"


class Client:
    """A client with a session that is kept, over one connection after another."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.line: SocketClient | None = None
        self.connections = 0

    def begin(self, node: Node, will: Will | None = None) -> None:
        if self.line is not None:
            self.line.socket.close()
        self.line = line = SocketClient(f"127.0.0.1:{node.port}")
        line.send(Connect(5, self.name, not self.connections, 0, "guest", b"guest", will, KEPT))
        answer = line.next(ConnAck)
        assert isinstance(answer, ConnAck)
        assert (answer.reason_code, answer.session_present) == (0, self.connections > 0)
        self.connections += 1

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
    """Publishes numbers with one QoS, each until it is acknowledged."""

    def __init__(self, name: str, topic: str, qos: int, chance: random.Random) -> None:
        super().__init__(name, chance)
        self.topic = topic
        self.qos = qos
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
                self.send(Publish(self.topic, b"%d" % number, self.qos, False, True, packet_id))

    def act(self) -> None:
        if len(self.unanswered) < WINDOW:
            packet_id = self.following % 60_000 + 1
            self.unanswered[packet_id] = PUBLISHED, self.following
            self.send(Publish(self.topic, b"%d" % self.following, self.qos, False, False, packet_id))
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

    def begin(self, node: Node, will: Will | None = None) -> None:
        super().begin(node, will)
        self.late.clear()
        if self.connections == 1:
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
        while self.late and self.chance.random() < 0.7:
            self.send(self.late.pop(0))


@pytest.mark.parametrize("seed", [3])
def test_qos_2_is_exactly_once_and_qos_1_at_least_once(seed: int, tmp_path: Path) -> None:
    chance, folder = random.Random(seed), tmp_path / "data"
    publishers = [Publisher("p1", "a/1", 1, chance), Publisher("p2", "a/2", 2, chance)]
    subscribers = [Subscriber("s1", "a/1", 1, chance), Subscriber("s2", "a/2", 2, chance)]

    def go_on() -> None:
        select.select([each.line.socket for each in (*publishers, *subscribers) if each.line], [], [], 0.02)
        for each in (*publishers, *subscribers):
            each.work()

    for _ in range(ROUNDS):
        node = Node(folder, settings=SETTINGS)
        try:
            for each in (*subscribers, *publishers):
                each.begin(node)
            until = publishers[1].following + chance.randrange(40, 200)
            while publishers[1].following < until:
                for publisher in publishers:
                    publisher.act()
                go_on()
        finally:
            node.kill()
    node = Node(folder, settings=SETTINGS)
    try:
        for each in (*subscribers, *publishers):
            each.begin(node)
        while any(each.unanswered for each in publishers) or any(
            len(subscriber.got) < publisher.following
            for subscriber, publisher in zip(subscribers, publishers, strict=True)
        ):
            go_on()
        for _ in range(20):
            go_on()
        assert subscribers[1].got == Counter(range(publishers[1].following))
        assert set(subscribers[0].got) == set(range(publishers[0].following))
        assert all(each.again for each in publishers)
        for each in (*publishers, *subscribers):
            assert each.line is not None
            each.line.socket.close()
        node.stop()
    finally:
        node.kill()
    assert damage_in(folder) == []


def test_retained_messages_and_wills_are_there_after_a_kill(tmp_path: Path) -> None:
    folder, chance = tmp_path / "data", random.Random(1)
    will = Will("gone", b"bye", 1, properties=Properties(will_delay_interval=1))
    node = Node(folder, settings=SETTINGS)
    try:
        client = Client("c", chance)
        client.begin(node, will)
        for number in range(3):
            client.send(Publish(f"r/{number}", b"%d" % number, 1, True, False, number + 1))
        client.send(Publish("r/1", b"", 1, True, False, 4))
        assert client.line is not None
        acknowledged: list[int] = []
        while len(acknowledged) < 4:
            found = client.line.next((Ack, AckRun))  # type: ignore[arg-type]
            acknowledged += found.packet_ids if isinstance(found, AckRun) else [found.packet_id]  # type: ignore[attr-defined]
    finally:
        node.kill()
    client.line.socket.close()
    node = Node(folder, settings=SETTINGS)
    try:
        with SocketClient(f"127.0.0.1:{node.port}") as reader:
            reader.connect("reader")
            reader.send(Subscribe(1, (Subscription("r/+", 1), Subscription("gone", 1))))
            found = sorted((reader.message() for _ in range(3)), key=lambda each: each.topic)
            assert [(each.topic, each.payload, each.retain) for each in found] == [
                ("gone", b"bye", False),
                ("r/0", b"0", True),
                ("r/2", b"2", True),
            ]
    finally:
        node.kill()
