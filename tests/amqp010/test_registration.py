"""What a node knows of AMQP 0-10 before anybody speaks it, and whether it is to."""

import subprocess
import sys

import pytest

from leveret.config.config import ConfigError, load, parse

LOADED = """
import sys
import leveret.protocols.amqp010.broker.registration
print([name for name in sys.modules if name.startswith("leveret.protocols.amqp010.")])
"""


def test_the_front_end_is_not_imported_before_it_is_needed() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    ).stdout
    names = ["", ".argument_rows", ".registration"]
    assert printed.strip() == str([f"leveret.protocols.amqp010.broker{name}" for name in names])


def test_it_is_off_until_it_is_switched_on() -> None:
    assert not parse("").protocols.enabled("amqp010")
    assert parse("[protocols.amqp010]\nenabled = true").protocols.enabled("amqp010")


def test_the_environment_switches_it_on() -> None:
    config = load(None, {"LEVERET_PROTOCOLS__AMQP010__ENABLED": "true"}, {})
    assert config.protocols.enabled("amqp010")


def test_a_listener_cannot_serve_it_while_it_is_off() -> None:
    with pytest.raises(ConfigError) as caught:
        parse('[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["amqp010"]')
    assert '"amqp010", which is disabled' in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "frame_max = 4095",
        "frame_max = 65536",
        "session_max = 0",
        "heartbeat_s = 65536",
        "session_timeout_max_s = -1",
        "replay_size_max = 1",
        "mechanisms = []",
    ],
)
def test_what_cannot_be_is_refused(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[protocols.amqp010]\n{line}")
    assert f"protocols.amqp010.{line.split()[0]}" in str(caught.value)
