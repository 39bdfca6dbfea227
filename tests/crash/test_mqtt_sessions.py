"""kill -9 while MQTT clients publish and receive: QoS 2 is exactly once, and retained messages and wills are there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from leveret.protocols.mqtt.codec.packets import Ack, Publish, Subscribe, Subscription, Will
from leveret.protocols.mqtt.codec.properties import Properties
from leveret.protocols.mqtt.codec.reader import AckRun
from tests.harness.seldom import elsewhere
from tests.mqtt.over_socket import SocketClient

from .mqtt_clients import Client
from .mqtt_rounds import SETTINGS, MqttRounds
from .node import Node

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROUNDS = 6
SOME_ROUNDS = 3


@pytest.mark.parametrize(("seed", "count"), [(3, SOME_ROUNDS), pytest.param(3, ROUNDS, marks=elsewhere)])
def test_qos_2_is_exactly_once_and_qos_1_at_least_once(seed: int, count: int, tmp_path: Path) -> None:
    rounds = MqttRounds(tmp_path / "data", seed)
    for _ in range(count):
        rounds.run()
    rounds.last_look()
    assert rounds.again


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
