"""Publishing from the client's side, §13 of the acceptance list: outcomes, and what is refused of a message."""

from __future__ import annotations

import pytest

from leveret.broker import WORK_MAX
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .client import SETTLED, Sender
from .parts import annotations, application_properties, data, frame, message, told
from .peer import SECOND, Peer, bind, declare, session_of, waiting

HELLO = data(b"hello")


@pytest.fixture
def sender(bench: ClientBench) -> Sender:
    return session_of(bench).sender("/queues/q")


def full(bench: ClientBench, name: str = "full", overflow: str = "reject-publish", length: int = 1) -> str:
    """A queue that refuses what is too much."""
    arguments = {"x-max-length": length, "x-overflow": overflow}
    return declare(bench, name, arguments=arguments)


# Outcomes.


def test_s226_what_a_queue_has_is_accepted(bench: ClientBench, sender: Sender) -> None:
    number = sender.send(HELLO)
    assert sender.outcome(number) == p.Accepted()
    assert number in sender.session.settled
    assert waiting(bench, "q") == [HELLO]


def test_s226_what_nobody_gets_is_released(bench: ClientBench) -> None:
    assert session_of(bench).sender("/exchanges/amq.direct/nowhere").publish(HELLO) == p.Released()
    assert bench.host.exchange("amq.direct").unroutable == 1


def test_s226_what_any_queue_refuses_is_rejected(bench: ClientBench) -> None:
    bind(bench, "amq.fanout", "q")
    bind(bench, "amq.fanout", full(bench))
    sender = session_of(bench).sender("/exchanges/amq.fanout")
    assert sender.publish(HELLO) == p.Accepted()
    assert isinstance(sender.publish(HELLO), p.Rejected)
    assert bench.queue("q").ready == 2


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_x066_a_full_queue_says_which_it_is(bench: ClientBench, overflow: str) -> None:
    sender = session_of(bench).sender(f"/queues/{full(bench, 'the one', overflow).replace(' ', '%20')}")
    assert sender.publish(HELLO) == p.Accepted()
    outcome = sender.publish(HELLO)
    assert isinstance(outcome, p.Rejected)
    assert told(outcome.error) == "amqp:resource-limit-exceeded queue 'the one' exceeded maximum length"
    assert outcome.error.info == {"queue": "the one", "reason": "maxlen"}
    assert isinstance(outcome.error.info["reason"], Symbol)


def test_x066_each_refusal_names_its_own_queue(bench: ClientBench) -> None:
    sender = session_of(bench).sender(None)
    for name in ("one", "two"):
        full(bench, name, length=0)
    ids = {
        sender.send(p.Properties(to=f"/queues/{name}"), HELLO, settle=False): name for name in ("one", "two")
    }
    bench.settle()
    for number, name in ids.items():
        assert sender.outcome(number).error.info["queue"] == name


def test_s082_a_queue_that_drops_its_oldest_accepts(bench: ClientBench) -> None:
    sender = session_of(bench).sender(f"/queues/{full(bench, overflow='drop-head')}")
    assert [sender.publish(data(b"%d" % number)) for number in range(3)] == [p.Accepted()] * 3
    assert waiting(bench, "full") == [data(b"2")]


def test_s226_the_outcomes_of_one_batch_are_each_their_own(bench: ClientBench) -> None:
    """Accepted, released and rejected mixed, all in one read, as few dispositions as their order allows."""
    full(bench, length=0)
    sender = session_of(bench).sender(None)
    kinds = {"/queues/q": p.Accepted, "/queues/nowhere": p.Released, "/queues/full": p.Rejected}
    addresses = [
        *["/queues/q"] * 50,
        *["/queues/nowhere", "/queues/full", "/queues/q"] * 20,
        *["/queues/q"] * 40,
    ]
    sender.peer.taken()
    ids = [sender.send(p.Properties(to=address), HELLO, settle=False) for address in addresses]
    assert sender.session.outcomes == {}
    bench.settle()
    dispositions = sender.peer.taken(p.Disposition)
    assert {number: type(state) for number, state in sender.session.outcomes.items()} == {
        number: kinds[address] for number, address in zip(ids, addresses, strict=True)
    }
    assert len(dispositions) <= 63
    assert all(each.settled for each in dispositions)


def test_s226_accepted_messages_are_told_in_ranges(bench: ClientBench, sender: Sender) -> None:
    sender.peer.taken()
    for _ in range(100):
        sender.send(HELLO, settle=False)
    bench.settle()
    [disposition] = sender.peer.taken(p.Disposition)
    assert (disposition.first, disposition.last, disposition.state) == (0, 99, p.Accepted())


def test_s226_nothing_is_answered_before_the_broker_has_settled(bench: ClientBench, sender: Sender) -> None:
    number = sender.send(HELLO, settle=False)
    assert b"".join(sender.peer.outbox.pieces) == b""
    bench.settle()
    assert sender.outcome(number) == p.Accepted()


def test_x067_a_settled_message_is_not_answered(bench: ClientBench) -> None:
    full(bench, length=0)
    session = session_of(bench)
    for address in ("/queues/q", "/queues/full", "/exchanges/amq.direct/nowhere"):
        sender = session.sender(address, snd_settle_mode=SETTLED)
        assert sender.publish(HELLO) is None
    assert session.outcomes == {}
    assert bench.queue("q").ready == 1


@pytest.mark.parametrize(
    "target", ["/queues/q", None, p.Target(dynamic=True, capabilities=["temporary-queue"])]
)
def test_s174_a_target_that_asks_for_nothing_to_keep_settles_first(
    bench: ClientBench, target: p.Target | str | None
) -> None:
    """Azure's client for Python asks for mode second, and waits for an answer that settles."""
    sender = session_of(bench).sender(target, rcv_settle_mode=SECOND)
    assert sender.attached.rcv_settle_mode == 0
    for _ in range(2):
        assert sender.publish(p.Properties(to="/queues/q"), HELLO) == p.Accepted()


@pytest.mark.parametrize(
    "asks",
    [{"durable": 1}, {"timeout": 1}, {"expiry_policy": "never"}, {"expiry_policy": "connection-close"}],
)
def test_s174_s226_a_receiver_that_settles_second_does_so(
    bench: ClientBench, asks: dict[str, object]
) -> None:
    """rcv-settle-mode second: the outcome is told unsettled, and settled once the sender has settled (2.6.12)."""
    sender = session_of(bench).sender(p.Target(address="/queues/q", **asks), rcv_settle_mode=SECOND)
    assert sender.attached.rcv_settle_mode == SECOND
    number = sender.send(HELLO)
    assert sender.outcome(number) == p.Accepted()
    assert number not in sender.session.settled
    sender.session.dispose(None, number, role=False)
    sender.peer.read()
    assert bench.queue("q").ready == 1


def test_s150_a_message_that_an_alternate_exchange_takes_is_accepted(bench: ClientBench) -> None:
    """S150: and one that the whole chain cannot route is released."""
    bench.host.declare_exchange("a", "direct", arguments={"alternate-exchange": "b"})
    bench.host.declare_exchange("b", "direct", arguments={"alternate-exchange": "c"})
    bench.host.declare_exchange("c", "direct")
    bind(bench, "c", "q", "known")
    session = session_of(bench)
    assert session.sender("/exchanges/a/known").publish(HELLO) == p.Accepted()
    assert session.sender("/exchanges/a/unknown").publish(HELLO) == p.Released()
    anonymous = session.sender(None)
    assert anonymous.publish(p.Properties(to="/exchanges/a/known"), HELLO) == p.Accepted()
    assert anonymous.publish(p.Properties(to="/exchanges/a/unknown"), HELLO) == p.Released()
    assert bench.queue("q").ready == 2


# What a message holds.


def test_s229_the_queue_has_the_sections_as_they_were(bench: ClientBench, sender: Sender) -> None:
    sections = (
        p.Header(durable=True, priority=4),
        annotations({"x-mine": 1}),
        p.Properties(message_id="1", subject="s"),
        application_properties({"a": 1}),
        HELLO,
    )
    assert sender.publish(*sections) == p.Accepted()
    [delivery] = bench.queue("q").waiting()
    found = delivery.message
    assert found.properties + found.body == message(*sections)
    assert found.facts.durable
    assert found.facts.priority == 4


def test_a_message_in_many_frames_is_one_message(bench: ClientBench, sender: Sender) -> None:
    body = data(bytes(range(256)) * 4000)
    assert sender.publish(body, frames=50) == p.Accepted()
    assert waiting(bench, "q") == [body]
    assert sender.publish(HELLO) == p.Accepted()


def test_an_aborted_message_was_never_sent(bench: ClientBench, sender: Sender) -> None:
    session = sender.session
    session.send(
        p.Transfer(handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, more=True), HELLO[:3]
    )
    session.send(p.Transfer(handle=0, aborted=True))
    session.next_delivery += 1
    sender.sent += 1
    assert sender.publish(HELLO) == p.Accepted()
    assert waiting(bench, "q") == [HELLO]


@pytest.mark.parametrize(
    "sections", [(), (p.Header(),), (p.Properties(message_id="1"),), (application_properties({"a": 1}),)]
)
def test_x060_a_message_without_a_body_ends_the_link(
    bench: ClientBench, sender: Sender, sections: tuple
) -> None:
    sender.send(*sections)
    assert sender.refusal().startswith("amqp:decode-error ")
    assert bench.queue("q").ready == 0


@pytest.mark.parametrize(
    "octets", [b"hello", b"\x00", b"\x00\x53", b"\x00\x53\x75\xa0\x05he", HELLO + b"\x00\x53\x73"]
)
def test_x060_what_is_no_message_ends_the_link_and_nothing_else(bench: ClientBench, octets: bytes) -> None:
    session = session_of(bench)
    sender, other = session.sender("/queues/q"), session.sender("/queues/q")
    sender.send(octets)
    assert sender.refusal().startswith("amqp:decode-error ")
    assert other.publish(HELLO) == p.Accepted()


def test_x061_the_user_id_is_the_users_own(bench: ClientBench) -> None:
    bench.user("ann")
    bench.user("eve", tags=["impersonator"])
    good = p.Properties(user_id=b"ann")
    assert session_of(bench, "ann").sender("/queues/q").publish(good, HELLO) == p.Accepted()
    assert session_of(bench, "eve").sender("/queues/q").publish(good, HELLO) == p.Accepted()
    session = session_of(bench)
    for target, more in (("/queues/q", {}), (None, {"to": "/queues/q"})):
        sender = session.sender(target)
        sender.send(p.Properties(user_id=b"ann", **more), HELLO)
        why = "user_id property set to 'ann' but authenticated user was 'guest'"
        assert sender.refusal() == f"amqp:unauthorized-access {why}"
    assert session.ended is None
    assert bench.queue("q").ready == 2


def test_x061_what_came_before_is_accepted(bench: ClientBench, sender: Sender) -> None:
    before = sender.send(HELLO, settle=False)
    sender.send(p.Properties(user_id=b"ann"), HELLO, settle=False)
    bench.settle()
    assert sender.outcome(before) == p.Accepted()
    assert sender.refusal().startswith("amqp:unauthorized-access user_id")


# Links that go.


def test_a_sender_that_detaches_in_the_same_read_has_published(bench: ClientBench, sender: Sender) -> None:
    sender.send(HELLO, settle=False)
    sender.detach()
    assert bench.queue("q").ready == 1
    assert sender.session.sender("/queues/q", handle=sender.handle).publish(HELLO) == p.Accepted()


def test_a_session_that_ends_in_the_same_read_has_published(bench: ClientBench, sender: Sender) -> None:
    sender.send(HELLO, settle=False)
    sender.session.end()
    assert bench.queue("q").ready == 1
    assert sender.peer.begin().sender("/queues/q").publish(HELLO) == p.Accepted()


def test_a_connection_that_is_lost_has_published(bench: ClientBench, sender: Sender) -> None:
    sender.send(HELLO, settle=False)
    sender.peer.drop()
    assert bench.queue("q").ready == 1


def test_a_publisher_to_many_queues_lets_others_have_a_turn_before_it_goes_on() -> None:
    """All that one link may send in one read, to so many queues that it takes too long."""
    bench, times, queues = ClientBench(), 170, 20
    bench.host.declare_exchange("x", "fanout")
    for number in range(queues):
        bind(bench, "x", declare(bench, f"q{number}"))
    sender = session_of(bench).sender("/exchanges/x")
    assert sender.credit == times
    channel, handle, front = sender.session.channel, sender.handle, sender.peer.front
    front.receive(
        b"".join(
            frame(channel, p.Transfer(handle=handle, delivery_id=number, delivery_tag=b""), HELLO)
            for number in range(times)
        ),
        bench.broker.tick(),
    )
    assert front.halted
    assert WORK_MAX < bench.broker.work <= WORK_MAX + queues
    front.receive(b"", bench.broker.tick())
    assert not front.halted
    assert bench.queue("q0").ready == bench.queue(f"q{queues - 1}").ready == times


# The other protocol.


def test_what_is_published_in_1_0_is_consumed_in_0_9_1(bench: ClientBench, sender: Sender) -> None:
    sender.publish(p.Header(durable=True), p.Properties(message_id="1", content_type="text/plain"), HELLO)
    content = channel_of(bench).get("q")
    assert content.body == b"hello"
    assert content.properties.message_id == "1"
    assert content.properties.content_type == "text/plain"
    assert content.properties.delivery_mode == 2


def test_what_is_published_in_0_9_1_is_consumed_in_1_0(bench: ClientBench) -> None:
    channel_of(bench).publish("", "q", b"hello")
    delivery = Peer(bench).open().begin().receiver("/queues/q", credit=1).get()
    assert delivery.body == b"hello"


def test_s210_an_address_to_reply_to_is_percent_encoded(bench: ClientBench, sender: Sender) -> None:
    """In 1.0 it is an address, in 0-9-1 the queue's name."""
    channel = channel_of(bench)
    sender.publish(p.Properties(reply_to="/queues/a%2Fb%25"), HELLO)
    assert channel.get("q").properties.reply_to == "a/b%"
    channel.publish("", "q", b"", BasicProperties(reply_to="a/b%"))
    delivery = sender.session.receiver("/queues/q", credit=1).get()
    assert delivery.properties.reply_to == "/queues/a%2Fb%25"


# For later.


def delayed(bench: ClientBench) -> tuple[int, int]:
    queue = bench.queue("q")
    return queue.ready, queue.delayed


def test_a_delay_counts_from_the_arrival_of_each_message(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    for _ in range(2):
        assert sender.publish(annotations({"x-opt-delivery-delay": 2000}), HELLO) == p.Accepted()
        bench.advance(0.5)
    assert delayed(bench) == (0, 2)
    bench.advance(1)
    assert delayed(bench) == (1, 1)
    bench.advance(0.5)
    assert delayed(bench) == (2, 0)


def test_messages_in_one_read_are_delayed_each(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    numbers = [
        sender.send(annotations({"x-opt-delivery-delay": 2000}), HELLO, settle=False) for _ in range(5)
    ]
    bench.settle()
    assert [sender.outcome(number) for number in numbers] == [p.Accepted()] * 5
    assert delayed(bench) == (0, 5)


def test_a_time_wins_over_a_delay(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    due_ms = int(bench.clock.wall() * 1000) + 3000
    said = annotations({"x-opt-delivery-delay": 1000, "x-opt-delivery-time": due_ms})
    assert sender.publish(said, HELLO) == p.Accepted()
    bench.advance(2)
    assert delayed(bench) == (0, 1)
    bench.advance(1)
    assert delayed(bench) == (1, 0)


@pytest.mark.parametrize("name", ["x-opt-delivery-delay", "x-opt-delivery-time"])
def test_a_time_that_is_no_number_ends_the_link(bench: ClientBench, name: str) -> None:
    sender = session_of(bench).sender("/queues/q")
    sender.send(annotations({name: "soon"}), HELLO)
    assert sender.refusal().startswith(f"amqp:invalid-field bad value for '{name}'")
    assert delayed(bench) == (0, 0)


def test_a_link_offers_delivery_times_to_those_who_ask(bench: ClientBench) -> None:
    session = session_of(bench)
    asking = session.sender("/queues/q", desired_capabilities=[Symbol("DELAYED_DELIVERY"), Symbol("MORE")])
    assert asking.attached.offered_capabilities == ["DELAYED_DELIVERY"]
    assert session.sender("/queues/q").attached.offered_capabilities == []


# Formats.

BATCH = 0x80013700  # as Azure's clients send several messages


@pytest.mark.parametrize("target", ["/queues/q", None])
@pytest.mark.parametrize("asks", [{}, {"timeout": 5}])
def test_a_message_in_another_format_is_rejected_and_the_link_goes_on(
    bench: ClientBench, target: str | None, asks: dict[str, int]
) -> None:
    mode = {"rcv_settle_mode": SECOND} if asks else {}
    sender = session_of(bench).sender(p.Target(address=target, **asks), **mode)
    session, to = sender.session, p.Properties(to="/queues/q")
    for frames in (1, 2):
        number = sender.send(to, HELLO, frames=frames, message_format=BATCH)
        outcome = sender.outcome(number)
        assert told(outcome.error) == "amqp:not-implemented message-format 0x80013700 is not supported"
    number = sender.send(to, HELLO)
    assert sender.outcome(number) == p.Accepted()
    assert (session.ended, bench.queue("q").ready) == (None, 1)


def test_a_settled_message_in_another_format_ends_the_link(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    sender.send(HELLO, settled=True, message_format=BATCH)
    assert sender.refusal().startswith("amqp:not-implemented message-format")
    assert bench.queue("q").ready == 0


def test_messages_in_another_format_are_found_among_many_that_look_alike(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    numbers = [
        sender.send(HELLO, settle=False, message_format=BATCH if number % 20 == 7 else 0)
        for number in range(100)
    ]
    bench.settle()
    outcomes = [type(sender.outcome(number)) for number in numbers]
    assert outcomes == [p.Rejected if number % 20 == 7 else p.Accepted for number in range(100)]
    assert bench.queue("q").ready == 95
