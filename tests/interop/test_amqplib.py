"""amqplib, the client of Node.js: amqplib_client.js runs a script against the node and prints what it found."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, missing, need_command

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent

Script = Callable[[str], object]


@pytest.fixture
def script(node: RunningNode) -> Script:
    """A function that runs one of the scripts and gives what it found."""
    command = need_command("node", "nodejs npm")
    if not (HERE / "node_modules" / "amqplib").is_dir():
        missing("amqplib", "run `make test`, or npm ci --prefix tests/interop")

    def run(name: str) -> object:
        ran = subprocess.run(
            [command, HERE / "amqplib_client.js", node.url, name],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        found: object = json.loads(ran.stdout)
        return found

    return run


def test_publish_and_consume_with_acks_and_a_nack(script: Script):
    assert script("publish_and_consume") == {
        "keys": 100,
        "redelivered": ["a.0"],
        "messageCount": 0,
        "consumerCount": 1,
    }


def test_confirms_are_acks_and_nacks(script: Script):
    assert script("confirms") == ["ack", "ack", "nack"]


def test_an_alternate_exchange_gets_what_nobody_wants(script: Script):
    assert script("alternate_exchange") == {"content": "stray", "exchange": "main", "returned": []}


def test_returned_messages_are_complete(script: Script):
    assert script("returned_messages") == [[312, "NO_ROUTE", "amq.direct", "nobody", "m-1", "back"]]


def test_field_types_and_properties_come_back(script: Script):
    found = script("field_types")
    assert isinstance(found, dict)
    sent, got = found["sent"], found["got"]
    assert {name: value for name, value in got.items() if value is not None and name != "headers"} == {
        name: value for name, value in sent.items() if name != "headers"
    }
    plain = {
        "float": 0.5,
        "octet": -7,
        "int16": -300,
        "int64": 7,
        "signed": -8,
    }  # amqplib gives these unwrapped
    assert got["headers"] == {**sent["headers"], **plain}


def test_an_expired_message_is_dead_lettered(script: Script):
    assert script("dead_letters") == {"content": "late", "reason": "expired", "queue": "q", "count": 1}


def test_a_consumer_of_a_deleted_queue_is_told_with_null(script: Script):
    assert script("cancelled") is None


def test_exchanges_are_bound_to_exchanges(script: Script):
    assert script("exchange_to_exchange") == ["red", "two"]


def test_errors_name_the_code_and_the_thing(script: Script):
    not_found, refused, inequivalent = script("errors")  # type: ignore[misc]
    assert "404 (NOT-FOUND) with message \"NOT_FOUND - no queue 'missing' in vhost '/'\"" in not_found
    assert "403 (ACCESS-REFUSED)" in refused
    assert "406 (PRECONDITION-FAILED)" in inequivalent
    assert "inequivalent arg 'type' for exchange 'amq.direct'" in inequivalent


def test_bodies_of_any_size_come_back(script: Script):
    assert script("large_bodies") == [True] * 5
