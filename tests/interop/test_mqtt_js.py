"""MQTT.js, over TCP as programs of Node.js use it and over WebSocket as pages do: mqtt_client.js runs a script."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import TIMEOUT_S, Start, missing, need_command

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
SETTINGS = {
    "mqtt://": 'listeners = [{ address = "127.0.0.1:0", protocols = ["amqp091", "mqtt"] }]',
    "ws://": 'listeners = [{ address = "127.0.0.1:0", protocols = ["mqtt"], websocket = true }]',
}

Script = Callable[..., object]


@pytest.fixture(params=list(SETTINGS))
def script(request: pytest.FixtureRequest, node_with: Start) -> Script:
    """A function that runs one of the scripts and gives what it found."""
    command = need_command("node", "nodejs npm")
    if not (HERE / "node_modules" / "mqtt").is_dir():
        missing("mqtt", "run `make test`, or npm ci --prefix tests/interop")
    node = node_with(SETTINGS[request.param])
    path = "/ws" if request.param == "ws://" else ""

    def run(name: str, version: int = 5) -> object:
        url = f"{request.param}127.0.0.1:{node.port}{path}"
        ran = subprocess.run(
            [command, HERE / "mqtt_client.js", url, name, str(version)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        return json.loads(ran.stdout)

    return run


versions = pytest.mark.parametrize("version", [4, 5])


@versions
def test_each_message_arrives_with_its_quality(script: Script, version: int):
    assert script("publish_and_subscribe", version) is True


@versions
def test_a_large_message_arrives_whole(script: Script, version: int):
    assert script("large", version) is True


@versions
def test_a_session_keeps_what_came_meanwhile(script: Script, version: int):
    assert script("session", version) == [True, "meanwhile"]


@versions
def test_a_wrong_password_is_refused(script: Script, version: int):
    """The return code of 3.1.1, or the reason code of 5."""
    assert script("wrong_password", version) == (4 if version == 4 else 0x86)


def test_properties_arrive_as_they_were_sent(script: Script):
    assert script("properties") == ["text/plain", "answers", "7", {"a": ["1", "2"]}, 7]
