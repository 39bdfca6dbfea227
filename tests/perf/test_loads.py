"""Loads on a node, over real sockets: every message counted, nothing timed."""

from __future__ import annotations

import pytest

from leveret.perf.churn import churn
from leveret.perf.command import measure, perf, plan_of
from leveret.perf.errors import UNREACHABLE, PerfError
from leveret.perf.report import text
from tests.interop.conftest import RunningNode
from tests.perf.conftest import Load, options

pytestmark = pytest.mark.interop

VERIFIED = {"lost": 0, "duplicated": 0, "reordered": 0}


ORDINARY = (  # over either protocol
    "",
    "--confirms 100 --ack-every 50",
    "--confirms 1 --prefetch 1 --ack-every 1",
    "--size 20-700 --confirms 100 --ack-every 7",
    "--publishers 3 --consumers 2 --queues 5 --confirms 10 --ack-every 10",
    "--publishers 4 --consumers 4 --per-connection 3 --queues 2 --confirms 10",
    "--rate 3000 --confirms 100",
    "--real --confirms 100 --ack-every 10",
    "--real --size 20-700 --single-writes --single-acks --confirms 100 --ack-every 1",
    "--think 0.0001 --prefetch 10 --ack-every 1",
)


def assert_all_arrives(load: Load, node: RunningNode, said: str, each: int) -> None:
    """What every publisher sends is received and measured, and nothing is left."""
    assert_received(load, said, each)
    assert node.queue_names() == []


def assert_received(load: Load, said: str, each: int) -> None:
    """What every publisher sends, `each` messages, is received and measured."""
    told, code = load(said)
    sent = each * told["plan"]["publishers"]
    assert (told["messages"]["sent"], told["messages"]["received"]) == (sent, sent)
    assert told["messages"]["confirmed"] == (sent if "--confirms" in said else 0)
    assert told["delivery_us"]["count"] == sent
    assert (told["verified"], code) == (VERIFIED, 0)


@pytest.mark.parametrize(
    "said",
    [
        *ORDINARY,
        "--size 100000,20,300000 --confirms 10",
        "--persistent --queue-type quorum --confirms 10 --ack-every 10",
    ],
)
def test_all_that_is_sent_arrives_and_is_measured(load: Load, node: RunningNode, said: str):
    assert_all_arrives(load, node, f"--messages 300 --verify {said}", each=300)


def test_a_fan_out_arrives_in_each_queue(load: Load):
    told, code = load("--messages 200 --exchange all --type fanout --queues 3 --consumers 3 --verify")
    assert (told["messages"]["received"], told["verified"], code) == (600, VERIFIED, 0)


def test_topics_arrive_where_they_are_bound(load: Load):
    told, _ = load(
        "--messages 100 --exchange t --type topic --keys k.%d --key-count 4 --bind k.1 --drain 0.2"
    )
    assert told["messages"]["received"] == 25


def test_what_no_queue_takes_is_returned_and_counted(load: Load):
    told, _ = load(
        "--messages 50 --exchange t --bind other --keys k --consumers 0 --mandatory --confirms 10 --verify"
    )
    assert told["messages"]["returned"] == 50


def test_without_consumers_messages_stay_in_a_queue_that_is_kept(load: Load, node: RunningNode):
    told, _ = load("--messages 70 --consumers 0 --confirms 10 --keep")
    assert told["messages"]["confirmed"] == 70
    assert node.ready("perf-0") == 70
    told, _ = load("--publishers 0 --messages 70 --predeclared --ack-every 7 --drain 0.2")
    assert told["messages"]["received"] == 70
    assert (node.ready("perf-0"), node.unsettled("perf-0")) == (0, 0)


def test_several_processes_do_it_together(load: Load):
    told, code = load("--messages 200 --publishers 2 --consumers 2 --processes 2 --confirms 50 --verify")
    assert (told["messages"]["received"], told["verified"], code) == (400, VERIFIED, 0)


def test_time_ends_it(load: Load):
    told, _ = load("--time 0.2 --warm-up 0.1 --rate 200 --confirms 10")
    assert 0 < told["messages"]["sent"] <= 70
    assert told["messages"]["received"] == told["messages"]["sent"]


def refusal(said: str) -> PerfError:
    with pytest.raises(PerfError) as caught:
        measure(plan_of(options(said)))
    return caught.value


def test_a_wrong_password(node: RunningNode):
    error = refusal(f"--url {node.url_with('wrong')}")
    assert error.code == UNREACHABLE
    assert "does not let us in" in error.text
    assert "ACCESS_REFUSED" in error.text


def test_a_virtual_host_that_is_not_there(node: RunningNode):
    error = refusal(f"--url {node.url.rpartition('/')[0]}/nowhere")
    assert error.code == UNREACHABLE
    assert "'nowhere'" in error.text


def test_nobody_listens(capsys: pytest.CaptureFixture[str]):
    assert perf(options("--url amqp://127.0.0.1:1")) == UNREACHABLE
    assert "cannot be reached: Connection refused" in capsys.readouterr().err


def test_a_queue_with_other_arguments(node: RunningNode):
    node.declare("perf-0", durable=True)
    error = refusal(f"--url {node.url} --messages 1")
    assert "PRECONDITION_FAILED" in error.text
    assert "--predeclared" in error.text
    assert "--delete" in error.text
    assert node.queue_names() == ["perf-0"]
    told, _ = measure(plan_of(options(f"--url {node.url} --messages 1 --predeclared")))
    assert told["messages"]["received"] == 1
    measure(plan_of(options(f"--url {node.url} --messages 1 --delete")))
    assert node.queue_names() == []


def test_a_predeclared_queue_that_is_not_there(node: RunningNode):
    assert "NOT_FOUND" in refusal(f"--url {node.url} --messages 1 --predeclared").text


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("--verify --size 19", "20 octets"),
        ("--ack-every 300", "--prefetch 200"),
        ("--think 1", "--ack-every"),
        ("--single-acks", "--ack-every"),
        ("--queues 2 --queue-name same", "%d"),
        ("--rate 1 --total-rate 1", "--total-rate"),
        ("--publishers 0 --consumers 0", "neither"),
        ("--processes 3", "processes"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_done(said: str, reason: str):
    assert reason in refusal(f"--url amqp://127.0.0.1:1 {said}").text


@pytest.mark.parametrize("what", ["connections", "channels", "queues"])
def test_churn_opens_and_closes_so_many(node: RunningNode, what: str):
    told, code = churn(plan_of(options(f"--url {node.url} --messages 5 --publishers 2 --rate 500")), what)
    assert (told["count"], code) == (10, 0)
    assert told["open_us"]["count"] == told["close_us"]["count"] == 10
    assert what in text(told)
    assert node.queue_names() == []


def test_churn_with_a_wrong_password_fails(node: RunningNode):
    with pytest.raises(PerfError, match="does not let us in"):
        churn(plan_of(options(f"--url {node.url_with('wrong')} --messages 1")), "connections")
