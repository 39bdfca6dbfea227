"""AMQP over WebSockets with clients for browsers, on npm's `ws`: @cloudamqp/amqp-client for 0-9-1, rhea for 1.0."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, missing, need_command

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
ALONE = '[{ address = "127.0.0.1:0", websocket = true }]'
BESIDE_HTTP = '[{ address = "127.0.0.1:0", protocols = ["http"], websocket = true }]'


@pytest.fixture(params=[ALONE, BESIDE_HTTP], ids=["alone", "beside HTTP"])
def there(request: pytest.FixtureRequest, node_with: Start) -> RunningNode:
    node = node_with(f"listeners = {request.param}")
    node.declare("q")
    return node


def told(script: str, *arguments: str) -> dict[str, object]:
    command = need_command("node", "nodejs npm")
    for package in ("ws", "rhea", "@cloudamqp/amqp-client"):
        if not (HERE / "node_modules" / package).is_dir():
            missing(package, "run `make test`, or npm ci --prefix tests/interop")
    ran = subprocess.run(
        [command, HERE / script, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def test_amqp_client_publishes_consumes_and_ends_cleanly(there: RunningNode):
    found = told("websocket_client.js", f"ws://127.0.0.1:{there.port}/ws")
    assert found == {"same": True, "unclean": None}
    assert there.ready("q") == there.unsettled("q") == 0


def test_rhea_publishes_and_consumes_with_a_release(there: RunningNode):
    found = told("rhea_client.js", f"ws://127.0.0.1:{there.port}/ws", "publish_and_consume")
    assert found["bodies"] == ["0", *map(str, range(100))]
