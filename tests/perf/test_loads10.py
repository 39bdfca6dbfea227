"""The same over AMQP 1.0."""

from __future__ import annotations

import pytest

from leveret.perf.errors import UNREACHABLE, PerfError
from tests.interop.conftest import RunningNode
from tests.perf import test_loads
from tests.perf.conftest import Load
from tests.perf.test_loads import VERIFIED

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    "said",
    [
        *test_loads.ORDINARY,
        "--size 100000,20,3000000 --messages 30 --confirms 10",
        "--persistent --confirms 10 --ack-every 10",
        "--queue-name a/%d%% --confirms 10",
    ],
)
def test_all_that_is_sent_arrives_and_is_measured(load: Load, node: RunningNode, said: str):
    each = 30 if "--messages" in said else 300
    test_loads.assert_all_arrives(load, node, f"--protocol 1.0 --messages 300 --verify {said}", each)


def test_a_fan_out_arrives_in_each_queue(load: Load):
    told, code = load(
        "--protocol 1.0 --messages 100 --exchange all --type fanout --queues 3 --consumers 3 --verify"
    )
    assert (told["messages"]["received"], told["verified"], code) == (300, VERIFIED, 0)


def test_several_processes_do_it_together(load: Load):
    told, _ = load("--protocol 1.0 --messages 100 --processes 2 --confirms 50 --verify")
    assert (told["messages"]["received"], told["verified"]) == (100, VERIFIED)


def test_what_is_published_over_one_protocol_is_received_over_the_other(load: Load, node: RunningNode):
    load("--protocol 1.0 --messages 50 --consumers 0 --confirms 10 --keep")
    told, _ = load("--publishers 0 --messages 50 --predeclared --ack-every 10")
    assert (told["messages"]["received"], node.ready("perf-0")) == (50, 0)


def refusal(said: str) -> PerfError:
    return test_loads.refusal(f"--protocol 1.0 --messages 1 --predeclared {said}")


def test_a_wrong_password(node: RunningNode):
    error = refusal(f"--url {node.url_with('wrong')}")
    assert error.code == UNREACHABLE
    assert "wrong user or password" in error.text


def test_a_virtual_host_that_is_not_there(node: RunningNode):
    error = refusal(f"--url {node.url.rpartition('/')[0]}/nowhere")
    assert error.code == UNREACHABLE
    assert "'nowhere'" in error.text


def test_a_queue_that_is_not_there(node: RunningNode):
    assert "amqp:not-found" in refusal(f"--url {node.url}").text
    assert "amqp:not-found" in refusal(f"--url {node.url} --consumers 0").text
