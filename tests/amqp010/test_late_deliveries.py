"""A transfer that is not accepted in time goes back to its queue (X028), and may be renewed until then."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.values import Table
from tests.harness.bench import ClientBench

from .client import ClientSession, ids
from .peer import session_of

LATE: Table = {"x-consumer-timeout": 60000}


def filled(arguments: Table = LATE, count: int = 2, toml: str = "") -> tuple[ClientBench, ClientSession]:
    bench = ClientBench(toml)
    session = session_of(bench)
    session.declare("q", dict(arguments))
    for number in range(count):
        session.publish("q", b"%d" % number)
    session.sync()
    return bench, session


def state(bench: ClientBench) -> tuple[int, int, int]:
    queue = bench.queue("q")
    return queue.ready, queue.unsettled, queue.accepted


def test_x028_what_is_not_accepted_in_time_goes_back_and_the_session_stays() -> None:
    bench, session = filled()
    inbox = session.subscribe("q", messages=2)
    assert inbox.bodies() == [b"0", b"1"]
    bench.advance(59)
    assert state(bench) == (0, 2, 0)
    bench.advance(1)
    assert state(bench) == (2, 0, 0)
    session.accept(inbox.taken)  # too late
    assert state(bench) == (2, 0, 0)
    session.complete()
    again = inbox.all()
    assert [each.body for each in again] == [b"0", b"1"]
    assert all(each.delivery.redelivered for each in again)
    session.accept([each.id for each in again])
    assert state(bench) == (0, 0, 2)


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_s083_x028_a_single_active_subscription_that_hangs_is_replaced(type_: str) -> None:
    bench = ClientBench()
    arguments = {**LATE, "x-single-active-consumer": True, "x-queue-type": type_}
    bench.host.declare_queue("q", durable=True, arguments=arguments)
    session, other = session_of(bench), session_of(bench, "other")
    session.publish("q", b"0")
    hangs, waits = session.subscribe("q", messages=1), other.subscribe("q", messages=1)
    assert (hangs.bodies(), waits.bodies()) == ([b"0"], [])
    bench.advance(60)
    assert (hangs.bodies(), waits.bodies()) == ([], [b"0"])


def test_x028_an_exclusive_subscription_that_hangs_ends_its_session() -> None:
    bench, session = filled()
    hangs = session.subscribe("q", messages=1, exclusive=True)
    assert hangs.bodies() == [b"0"]
    bench.advance(60)
    assert session_of(bench, "other").subscribe("q", messages=2, exclusive=True).bodies() == [b"0", b"1"]


def test_x028_acquire_renews_what_the_session_holds_and_says_what_that_is() -> None:
    bench, session = filled()
    inbox = session.subscribe("q", messages=2)
    inbox.all()
    for _ in range(5):
        bench.advance(40)
        found = session.acquire(inbox.taken[1])
    assert found == [inbox.taken[1]]
    assert state(bench) == (1, 1, 0)
    assert session.acquire(*inbox.taken) == [inbox.taken[1]]
    session.accept(inbox.taken[1])
    assert state(bench) == (1, 0, 1)


def test_x028_a_set_of_many_ids_renews_what_there_is() -> None:
    bench, session = filled(count=5)
    inbox = session.subscribe("q", messages=5)
    inbox.all()
    bench.advance(40)
    result = session.call(c.MessageAcquire(ids((0, (1 << 31) - 1))))
    assert isinstance(result, c.Acquired)
    assert [*(result.transfers or ())] == inbox.taken
    bench.advance(40)
    assert state(bench) == (0, 5, 0)


@pytest.mark.parametrize("allowed_ms", [5000, 0])
def test_x028_a_subscription_may_have_a_limit_of_its_own(allowed_ms: int) -> None:
    bench, session = filled()
    session.call(c.MessageSubscribe("q", "own", arguments={"x-consumer-timeout": allowed_ms}))
    session.flow("own", 2)
    session.client.read()
    assert state(bench) == (0, 2, 0)
    bench.advance(5)
    assert state(bench)[1] == (0 if allowed_ms else 2)
    bench.advance(3600)
    assert state(bench)[1] == (0 if allowed_ms else 2)


@pytest.mark.parametrize("allowed", ["soon", -1, True])
def test_x028_a_limit_that_is_no_number_is_refused(allowed: object) -> None:
    _, session = filled()
    session.send(c.MessageSubscribe("q", "own", arguments={"x-consumer-timeout": allowed}))
    assert session.ended().code == c.ERROR_CODE_INVALID_ARGUMENT


def test_x028_a_row_of_compat_ends_the_session() -> None:
    bench, session = filled(toml='[compat]\nconsumer_timeout_response = "close-channel"')
    session.subscribe("q", messages=2).all()
    bench.advance(60)
    ended = session.ended()
    assert ended.code == c.ERROR_CODE_PRECONDITION_FAILED
    assert "Timeout value used: 60000 ms" in str(ended.exception)
    assert state(bench) == (2, 0, 0)


def test_x028_what_needs_no_accept_is_never_late() -> None:
    bench, session = filled()
    session.subscribe("q", messages=2, accept_mode=c.ACCEPT_MODE_NONE).all()
    bench.advance(3600)
    assert state(bench) == (0, 0, 2)


def test_x028_what_a_transaction_has_accepted_is_late_only_after_a_rollback() -> None:
    bench, session = filled()
    session.call(c.TxSelect())
    inbox = session.subscribe("q", messages=2)
    inbox.all()
    session.accept(inbox.taken)
    bench.advance(600)
    assert state(bench) == (0, 2, 0)
    session.call(c.TxRollback())
    bench.advance(2)
    assert state(bench) == (2, 0, 0)


def test_x028_nothing_is_watched_after_the_session() -> None:
    bench, session = filled()
    session.subscribe("q", messages=2).all()
    assert bench.broker.timers.next_at() is not None
    session.detach()
    assert state(bench) == (2, 0, 0)


def test_x028_the_default_of_the_node_does_not_concern_0_10() -> None:
    bench, session = filled({})
    session.subscribe("q", messages=2).all()
    assert bench.queue("q").limits.consumer_timeout_ms == 1_800_000
    bench.advance(100_000)
    assert state(bench) == (0, 2, 0)


def test_x028_a_policy_does() -> None:
    bench, session = filled({})
    bench.policy("^q$", {"consumer-timeout": 5000})
    session.subscribe("q", messages=2).all()
    bench.advance(5)
    assert state(bench) == (2, 0, 0)


def test_a_session_whose_subscription_is_too_slow_is_ended() -> None:
    slow = {
        "x-slow-consumer-threshold": 60,
        "x-slow-consumer-check-period": 10_000,
        "x-slow-consumer-policy": "close",
    }
    bench, session = filled(slow, count=3)
    inbox = session.subscribe("q", messages=1)
    assert inbox.bodies() == [b"0"]
    bench.advance(10)
    bench.advance(10)
    ended = session.ended()
    assert ended.exception is not None
    assert ended.exception.error_code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert state(bench)[0] == 3
