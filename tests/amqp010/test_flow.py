"""Credit: by the message and by the octet, spent or coming back, flushed and stopped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench

from .client import FOREVER, ClientSession, Inbox
from .peer import Peer, session_of

CREDIT, WINDOW = c.FLOW_MODE_CREDIT, c.FLOW_MODE_WINDOW
MESSAGE, BYTE = c.CREDIT_UNIT_MESSAGE, c.CREDIT_UNIT_BYTE
SIZE = 19  # octets of a message with a body of 8 and the routing key "q": qpid's own tests count on it


def fill(session: ClientSession, count: int, size: int = 8) -> None:
    for number in range(count):
        session.publish("q", b"%0*d" % (size, number))
    session.sync()


def numbers(inbox: Inbox) -> list[int]:
    return [int(body) for body in inbox.bodies()]


# Both units.


def test_a_subscription_begins_without_credit(session: ClientSession) -> None:
    fill(session, 1)
    inbox = session.subscribe("q", messages=None)
    assert numbers(inbox) == []


@pytest.mark.parametrize("unit", [MESSAGE, BYTE])
def test_credit_of_one_unit_is_not_enough(session: ClientSession, unit: int) -> None:
    fill(session, 1)
    inbox = session.subscribe("q", messages=None)
    session.call(c.MessageFlow("q", unit, FOREVER))
    assert numbers(inbox) == []
    session.call(c.MessageFlow("q", 1 - unit, FOREVER))
    assert numbers(inbox) == [0]


def test_a_subscription_begins_in_window_mode(session: ClientSession) -> None:
    fill(session, 4)
    session.inboxes["d"] = inbox = Inbox(session, "d")
    session.call(c.MessageSubscribe("q", "d"))
    session.flow("d", 2)
    assert numbers(inbox) == [0, 1]
    session.complete()
    assert numbers(inbox) == [2, 3]


def test_credit_without_a_limit_stays_so(session: ClientSession) -> None:
    inbox = session.subscribe("q", messages=FOREVER, flow_mode=CREDIT)
    session.call(c.MessageFlow("q", MESSAGE, 5))
    fill(session, 30)
    assert numbers(inbox) == list(range(30))


# Messages.


def test_credit_mode_spends_its_messages(session: ClientSession) -> None:
    fill(session, 10)
    inbox = session.subscribe("q", messages=3, flow_mode=CREDIT)
    assert numbers(inbox) == [0, 1, 2]
    session.complete()
    session.accept(inbox.taken)
    assert numbers(inbox) == []
    session.call(c.MessageFlow("q", MESSAGE, 2))
    session.call(c.MessageFlow("q", MESSAGE, 2))
    assert numbers(inbox) == [3, 4, 5, 6]


def test_window_mode_has_them_back_when_transfers_are_completed_and_not_when_they_are_accepted(
    session: ClientSession,
) -> None:
    fill(session, 10)
    inbox = session.subscribe("q", messages=3)
    first = inbox.all()
    session.accept(inbox.taken)
    assert numbers(inbox) == []
    session.complete(first[1].id)
    assert numbers(inbox) == [3]
    session.complete(first[1].id)
    assert numbers(inbox) == []
    session.complete()
    assert numbers(inbox) == [4, 5, 6]


def test_each_subscription_has_its_own_window(session: ClientSession) -> None:
    session.declare("r")
    fill(session, 4)
    one, other = session.subscribe("q", "one", messages=1), session.subscribe("q", "other", messages=1)
    (first,), (second,) = one.all(), other.all()
    session.complete(second.id)
    assert (len(one.all()), len(other.all())) == (0, 1)
    session.complete(first.id)
    assert (len(one.all()), len(other.all())) == (1, 0)


def test_a_window_works_for_who_need_not_accept(session: ClientSession) -> None:
    fill(session, 5)
    inbox = session.subscribe("q", messages=2, accept_mode=c.ACCEPT_MODE_NONE)
    assert numbers(inbox) == [0, 1]
    session.complete()
    assert numbers(inbox) == [2, 3]


def test_a_client_that_completes_nothing_is_sent_away(session: ClientSession) -> None:
    """Each transfer of a window is remembered until it is complete."""
    owner = session.client.front.wire.sessions[session.channel].owner  # type: ignore[attr-defined]
    owner.windowed_max = 5
    session.subscribe("q", messages=100, accept_mode=c.ACCEPT_MODE_NONE)
    for _ in range(3):
        fill(session, 5)
        session.client.read()
        session.complete()
    fill(session, 5)
    session.publish("q")
    assert session.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED


# Resetting.


@pytest.mark.parametrize("mode", [CREDIT, WINDOW])
def test_setting_the_mode_takes_all_credit_away(session: ClientSession, mode: int) -> None:
    inbox = session.subscribe("q", messages=5)
    session.call(c.MessageSetFlowMode("q", mode))
    fill(session, 1)
    assert numbers(inbox) == []
    session.call(c.MessageFlow("q", MESSAGE, 1))
    assert numbers(inbox) == []
    session.call(c.MessageFlow("q", BYTE, 100))
    assert numbers(inbox) == [0]


@pytest.mark.parametrize(
    "reset",
    [c.MessageSetFlowMode("q", WINDOW), c.MessageStop("q"), c.MessageFlush("q")],
    ids=lambda x: x.NAME,
)
def test_what_was_sent_before_a_reset_gives_nothing_back(session: ClientSession, reset: c.Command) -> None:
    fill(session, 9)
    inbox = session.subscribe("q", messages=3)
    assert len(inbox.all()) == 3
    session.call(reset)
    session.flow("q", 1)
    assert len(inbox.all()) == 1
    session.complete(*inbox.taken[:3])
    assert len(inbox.all()) == 0
    session.complete()
    assert len(inbox.all()) == 1


def test_no_transfer_comes_after_a_stop_is_complete(session: ClientSession) -> None:
    inbox = session.subscribe("q")
    session.call(c.MessageStop("q"))
    fill(session, 3)
    assert numbers(inbox) == []
    session.flow("q", 2)
    assert numbers(inbox) == [0, 1]


# Flushing.


def test_a_flush_delivers_what_there_is_and_then_is_complete(session: ClientSession) -> None:
    """The way to fetch: credit for one, flush, and either it has come or there is none."""
    fill(session, 1)
    inbox = session.subscribe("q", messages=None)
    for expected in ([0], []):
        session.flow("q", 1)
        session.taken()
        id = session.send(c.MessageFlush("q"), sync=True)
        heard = session.taken()
        assert [type(what) for what in heard[-1:]] == [c.SessionCompleted]
        assert id in session.completed
        assert numbers(inbox) == expected


def test_a_flush_delivers_no_more_than_there_is_credit(session: ClientSession) -> None:
    fill(session, 5)
    inbox = session.subscribe("q", messages=None)
    session.call(c.MessageFlow("q", BYTE, FOREVER))
    session.call(c.MessageFlush("q"))
    assert numbers(inbox) == []
    session.flow("q", 3)
    session.call(c.MessageFlush("q"))
    assert numbers(inbox) == [0, 1, 2]


def test_after_a_flush_no_credit_is_left(session: ClientSession) -> None:
    inbox = session.subscribe("q", messages=5)
    session.call(c.MessageFlush("q"))
    fill(session, 1)
    assert numbers(inbox) == []


def test_credit_given_right_behind_a_flush_is_not_lost(bench: ClientBench, session: ClientSession) -> None:
    """C++ clients send flush, set-flow-mode, and flow in one go."""
    inbox = session.subscribe("q", messages=5)
    peer = session.client
    sent: list[bytes] = []
    send_bytes, peer.send_bytes = peer.send_bytes, sent.append  # type: ignore[method-assign, assignment]
    session.send(c.MessageFlush("q"))
    session.send(c.MessageSetFlowMode("q", WINDOW))
    session.send(c.MessageFlow("q", MESSAGE, 2))
    last = session.send(c.MessageFlow("q", BYTE, FOREVER), sync=True)
    peer.send_bytes = send_bytes  # type: ignore[method-assign]
    peer.send_bytes(b"".join(sent))
    session.wait(last)
    fill(session, 3)
    assert numbers(inbox) == [0, 1]


def test_a_flush_waits_for_a_selector_that_is_still_looking(
    bench: ClientBench, session: ClientSession
) -> None:
    """The queue tests no more than a portion of its messages at a time."""
    fill(session, 2000)
    session.publish("q", b"7", properties=c.MessageProperties(application_headers={"wanted": True}))
    session.sync()
    inbox = session.subscribe("q", messages=None, arguments={"x-apache-selector": "wanted = TRUE"})
    session.flow("q", 1)
    id = session.send(c.MessageFlush("q"), sync=True)
    assert numbers(inbox) == []
    assert id not in session.completed
    bench.advance(1)
    for _ in range(10):
        bench.advance(1)
    assert numbers(inbox) == [7]
    assert id in session.completed


def test_a_flush_is_over_when_the_session_is_detached() -> None:
    bench = ClientBench("[limits]\noutbox_size_max = 65536")
    session = Peer(bench).open().attach("kept")
    session.control(c.SessionRequestTimeout(60))
    session.declare("q")
    fill(session, 30, 10_000)
    session.subscribe("q", messages=None)
    session.flow("q", 30)
    id = session.send(c.MessageFlush("q"), sync=True)
    session.client.drop()  # type: ignore[attr-defined]
    again = Peer(bench).open().attach("kept")
    again.control(c.SessionFlush(completed=True))
    again.client.read()
    assert id in again.completed


# Octets.


def test_the_octets_of_a_message_are_those_of_its_header_and_body(session: ClientSession) -> None:
    fill(session, 10)
    inbox = session.subscribe("q", messages=FOREVER, octets=SIZE * 5, flow_mode=CREDIT)
    assert numbers(inbox) == [0, 1, 2, 3, 4]
    for expected in (5, 6):
        session.call(c.MessageFlow("q", BYTE, SIZE))
        assert numbers(inbox) == [expected]
    session.call(c.MessageFlow("q", BYTE, SIZE - 1))
    assert numbers(inbox) == []
    session.call(c.MessageFlow("q", BYTE, 1))
    assert numbers(inbox) == [7]


def test_a_window_of_octets_comes_back_with_each_message(session: ClientSession) -> None:
    fill(session, 10)
    inbox = session.subscribe("q", messages=FOREVER, octets=SIZE * 5)
    assert numbers(inbox) == [0, 1, 2, 3, 4]
    session.complete(inbox.taken[2])
    assert numbers(inbox) == [5]
    session.complete()
    assert numbers(inbox) == [6, 7, 8, 9]


def test_a_message_with_more_octets_than_are_left_waits(bench: ClientBench, session: ClientSession) -> None:
    fill(session, 1)
    fill(session, 1, 50)
    fill(session, 1)
    inbox = session.subscribe("q", messages=FOREVER, octets=SIZE * 3, flow_mode=CREDIT)
    assert len(inbox.all()) == 1
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (2, 1)
    session.call(c.MessageFlow("q", BYTE, SIZE * 3))
    assert [len(message.body) for message in inbox.all()] == [50, 8]


def test_what_waits_for_octets_of_one_is_for_others(bench: ClientBench, session: ClientSession) -> None:
    fill(session, 1)
    fill(session, 1, 50)
    session.subscribe("q", messages=FOREVER, octets=SIZE * 2, flow_mode=CREDIT)
    other = session_of(bench, "other").subscribe("q")
    (message,) = other.all()
    assert len(message.body) == 50
    assert not message.delivery.redelivered
    fill(session, 1)
    bench.advance(2)
    assert len(session.inboxes["q"].all()) + len(other.all()) == 2


def test_what_others_took_does_not_stand_in_the_way(bench: ClientBench, session: ClientSession) -> None:
    fill(session, 1)
    fill(session, 1, 50)
    inbox = session.subscribe("q", messages=FOREVER, octets=SIZE * 2, flow_mode=CREDIT)
    assert len(inbox.all()) == 1
    session_of(bench, "other").subscribe("q", messages=1).get()
    fill(session, 1)
    bench.advance(2)
    assert len(inbox.all()) == 1


@pytest.mark.parametrize("mode", [CREDIT, WINDOW])
def test_a_message_larger_than_all_of_the_credit_comes_if_nothing_of_it_is_used(
    session: ClientSession, mode: int
) -> None:
    fill(session, 2, 500)
    inbox = session.subscribe("q", messages=FOREVER, octets=100, flow_mode=mode)
    assert len(inbox.all()) == 1
    session.complete()
    assert len(inbox.all()) == (1 if mode == WINDOW else 0)


def test_who_need_not_accept_has_taken_only_what_he_was_sent(
    bench: ClientBench, session: ClientSession
) -> None:
    fill(session, 1)
    fill(session, 1, 50)
    session.subscribe(
        "q", messages=FOREVER, octets=SIZE * 2, flow_mode=CREDIT, accept_mode=c.ACCEPT_MODE_NONE
    )
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 0)
    session.detach()
    bench.settle()
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 0)


@pytest.mark.parametrize("kind", ["browse", "stream"])
def test_what_is_too_large_for_a_reader_comes_when_he_has_more_octets(
    session: ClientSession, kind: str
) -> None:
    arguments = {}
    if kind == "stream":
        session.declare("s", {"x-queue-type": "stream"}, durable=True)
        session.bind("s", "amq.fanout")
        arguments = {"x-stream-offset": "first"}
    for size in (8, 50, 8):
        session.publish("q", bytes(size), "amq.fanout" if kind == "stream" else "")
    session.sync()
    inbox = session.subscribe(
        "s" if kind == "stream" else "q",
        "d",
        messages=2,
        octets=90,
        flow_mode=CREDIT,
        acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED,
        arguments=arguments,
    )
    first = [len(message.body) for message in inbox.all()]
    session.call(c.MessageStop("d"))
    session.flow("d", 3, 10_000)
    assert first + [len(message.body) for message in inbox.all()] == [8, 50, 8]
    assert len(first) < 3


# A model of it all.


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([CREDIT, WINDOW]),
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(0, 60)),
            st.tuples(st.just("messages"), st.integers(0, 4)),
            st.tuples(st.just("octets"), st.integers(0, 90)),
            st.tuples(st.just("complete"), st.integers(0, 5)),
            st.tuples(st.just("stop"), st.just(0)),
        ),
        max_size=25,
    ),
)
def test_no_more_is_sent_than_there_is_credit_for_and_no_less(
    mode: int, steps: list[tuple[str, int]]
) -> None:
    session = session_of(ClientBench())
    session.declare("q")
    inbox = session.subscribe("q", messages=None, flow_mode=mode)
    queued: list[int] = []
    messages = octets = used = 0
    counted: list[tuple[int, int]] = []  # ids and octets that come back
    for what, number in steps:
        if what == "publish":
            session.publish("q", bytes(number))
            queued.append(number + SIZE - 8)
        elif what == "messages":
            session.call(c.MessageFlow("q", MESSAGE, number))
            messages += number
        elif what == "octets":
            session.call(c.MessageFlow("q", BYTE, number))
            octets += number
        elif what == "stop":
            session.call(c.MessageStop("q"))
            messages = octets = used = 0
            counted.clear()
        elif counted:
            done, counted = counted[:number], counted[number:]
            session.complete([id for id, _ in done])
            if mode == WINDOW:
                messages += len(done)
                octets += sum(size for _, size in done)
                used -= sum(size for _, size in done)
        expected = []
        while queued and messages and octets and (queued[0] <= octets or not used):
            size = queued.pop(0)
            charge = min(size, octets)
            messages, used, octets = messages - 1, used + charge, octets - charge
            expected.append((size, charge))
        got = inbox.all()
        assert [len(message.body) + SIZE - 8 for message in got] == [size for size, _ in expected]
        counted += [(message.id, charge) for message, (_, charge) in zip(got, expected, strict=True)]
