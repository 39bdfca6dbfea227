"""What a client of MQTT finds at the node that takes over: its session, what waits for it, and retained messages."""

from __future__ import annotations

from operator import itemgetter

import pytest

from tests.ha.scene import HaScene, wait_until
from tests.interop.conftest import need_module

need_module("paho.mqtt.client")

from tests.harness.paho import Paho  # noqa: E402

pytestmark = [
    pytest.mark.system,
    # clients whose connections are lost leave sockets to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
EXPIRY_S = 3600


@pytest.mark.parametrize("is_killed", [True, False])
def test_sessions_and_retained_messages_are_there_after_a_takeover(scene: HaScene, is_killed: bool) -> None:
    owner = scene.wait_for_owner()
    device = Paho(owner.amqp, f"device-{is_killed}", "5").start(expiry=EXPIRY_S)
    device.subscribe("room/+/set", 2)
    device.stop()
    sender = Paho(owner.amqp, f"sender-{is_killed}", "5").start()
    sender.publish("room/1/state", b"on", retain=True)
    for number in range(4):
        sender.publish("room/1/set", b"%d" % number, qos=1 + number % 2)
    sender.stop()
    if is_killed:
        owner.kill()
    else:
        heir = scene.other(owner)
        wait_until(lambda: heir.name in owner.standing_by(), "sight of the heir")
        assert owner.ask("/api/cluster/failover", "POST", f'{{"to": "{heir.name}"}}') is not None
    successor = scene.wait_for_owner(other_than=owner.name)
    device = Paho(successor.amqp, f"device-{is_killed}", "5").start(clean=False, expiry=EXPIRY_S)
    assert device.flags.session_present
    found = device.take_all(4)  # in order for each QoS (section 4.6)
    assert sorted(found, key=itemgetter(2)) == [("room/1/set", b"%d" % n, 1 + n % 2) for n in (0, 2, 1, 3)]
    device.subscribe("room/+/state")
    state = device.take()
    assert (state.topic, state.payload, state.retain) == ("room/1/state", b"on", True)
    device.stop()
    scene.start()  # for the next round
