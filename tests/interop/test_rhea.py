"""rhea, the AMQP 1.0 client of Node.js: rhea_client.js runs a script against the node and prints what it found."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, missing, need_command, wait_until

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent

Script = Callable[[str], object]


@pytest.fixture
def script(node: RunningNode) -> Script:
    """A function that runs one of the scripts and gives what it found."""
    command = need_command("node", "nodejs npm")
    if not (HERE / "node_modules" / "rhea").is_dir():
        missing("rhea", "run `make test`, or npm ci --prefix tests/interop")
    node.declare("q")

    def run(name: str) -> object:
        ran = subprocess.run(
            [command, HERE / "rhea_client.js", str(node.port), name],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        found: object = json.loads(ran.stdout)
        return found

    return run


def test_the_broker_introduces_itself(script: Script):
    assert script("introduction") == ["Leveret", "string", "string"]


def test_publish_and_consume_with_a_release(script: Script):
    found = script("publish_and_consume")
    assert isinstance(found, dict)
    assert found["bodies"] == ["0", *map(str, range(100))]
    assert found["first"] == [True, False, True]


def test_outcomes_tell_what_became_of_a_message(node: RunningNode, script: Script):
    node.declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert script("outcomes") == [
        ["accepted"],
        ["rejected", "amqp:resource-limit-exceeded", "queue 'full' exceeded maximum length"],
        ["released"],
        ["accepted"],
        ["rejected", "amqp:precondition-failed", "anonymous terminus requires 'to' address to be set"],
    ]
    assert node.ready("q") == 1


def test_a_message_of_another_format_is_rejected_and_the_link_goes_on(node: RunningNode, script: Script):
    refused = ["amqp:not-implemented", "message-format 0x80013700 is not supported"]
    assert script("batch") == [refused, ["accepted"], "amqp:not-implemented"]
    assert node.ready("q") == 1


def test_refusals_name_the_condition_and_the_thing(script: Script):
    assert script("errors") == [
        ["amqp:not-found", "no queue 'missing' in vhost '/'"],
        ["amqp:not-found", "no queue 'missing' in vhost '/'"],
        ["amqp:not-found", "no exchange 'missing' in vhost '/'"],
        ["amqp:invalid-field", "Attach refused: bad_address_string '/queues/not/encoded'"],
    ]


def test_a_message_keeps_everything_it_says(script: Script):
    found = script("everything")
    assert isinstance(found, dict)
    annotations = found.pop("message_annotations")
    assert annotations == {"x-note": ["a", 1], "x-exchange": "", "x-routing-key": "q"}
    assert 0 < found.pop("ttl") <= 60_000
    assert found == {
        "durable": True,
        "priority": 7,
        "message_id": 9,
        "subject": "subject",
        "reply_to": "/queues/q",
        "correlation_id": "correlation",
        "content_type": "text/plain",
        "group_id": "group",
        "group_sequence": 4,
        "application_properties": {
            "text": "✋",
            "flag": True,
            "byte": -3,
            "ushort": 65535,
            "float": 0.5,
            "double": 2.25,
            "at": "1970-01-01T00:00:01.000Z",
            "symbol": "symbol",
        },
        "body": {"list": [1, "two", None], "deep": {"map": {"octets": "x"}}},
    }


def test_a_drained_receiver_has_no_credit_left(node: RunningNode, script: Script):
    assert script("drain") == {"found": [], "credit": 0}


def test_a_request_is_answered_through_a_queue_of_the_moment(node: RunningNode, script: Script):
    node.declare("questions")
    assert script("request_and_response") == [True, "one", "HELLO"]


def test_browsing_takes_nothing_and_selecting_what_it_wants(script: Script):
    assert script("browse_and_select") == [["red", "blue", "red"], ["red", "red"], ["blue"]]


def test_bodies_of_any_size_come_back(script: Script):
    assert script("large_bodies") == [True] * 5


def test_what_is_settled_needs_no_answer(script: Script):
    assert script("presettled") == ",".join(map(str, range(50)))


def test_links_come_back_under_their_names(script: Script):
    assert script("detach_and_come_back") == ["first", "second"]


def test_sessions_come_and_go(node: RunningNode, script: Script):
    assert script("sessions") == [["accepted"], ["accepted"]]
    assert node.ready("q") == 2


def test_a_receiver_whose_connection_is_cut_resumes_what_it_has_not_settled(
    node: RunningNode, script: Script
) -> None:
    """Each delivery: which one of before it is (-1: a new one), its body, and whether it is settled already."""
    found = script("recovery")
    assert isinstance(found, dict)
    assert found["timeout"] == 60
    told = found["told"]
    assert told[:3] == [[1, "1", False], [2, "2", False], [3, "3", False]]
    assert told[3:] == [[-1, "0", False], [-1, "4", False]]
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (0, 0), "all are settled")
