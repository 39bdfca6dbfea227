"""What a node knows of MQTT before anybody speaks it, and how it is told to serve it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leveret.config.config import parse
from leveret.protocols.mqtt.broker.registration import PROTOCOL, addressed
from leveret.server.node.assembly import protocols_of

LOADED = """
import sys
import leveret.protocols.mqtt.broker.registration
print([name for name in sys.modules if name.startswith("leveret.protocols.mqtt.")])
"""

KNOWN = {PROTOCOL.name: PROTOCOL}


def test_the_front_end_is_not_imported_before_it_is_needed() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    ).stdout
    names = ["", ".settings", ".registration"]
    assert printed.strip() == str([f"leveret.protocols.mqtt.broker{name}" for name in names])


def test_only_a_listener_that_names_it_serves_it() -> None:
    config = parse('[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["mqtt"]')
    assert protocols_of(config, config.listeners[0], "listeners[0]", KNOWN) == (PROTOCOL,)
    assert not PROTOCOL.shared


@pytest.mark.parametrize(
    "line",
    [
        "receive_maximum = 0",
        "packet_size_max = 1",
        "topic_alias_max = 65536",
        "subscriptions_max = 0",
        'exchange = ""',
        "mechanisms = []",
        "keep_alive_max_s = -1",
        "nothing = 1",
    ],
)
def test_what_cannot_be_is_refused(line: str) -> None:
    config = parse(f"[protocols.mqtt]\n{line}")
    assert PROTOCOL.settings is not None
    (problem,) = config.protocols.problems("mqtt", PROTOCOL.settings)
    assert str(problem).startswith(f"protocols.mqtt.{line.split()[0]}")


def test_a_topic_stands_for_an_exchange_and_a_key() -> None:
    config = parse({"protocols": {"mqtt": {"exchange": "things"}}})
    assert addressed(config, "devices/7.1/out") == ("things", "devices.7/1.out")
    for topic in ("", "a/+", "a/#", "a" * 256):
        with pytest.raises(ValueError, match="topic"):
            addressed(config, topic)
