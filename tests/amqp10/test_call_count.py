"""The price of a published message in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

from functools import partial

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Timestamp
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls
from tests.harness.plain import calls_under, plain_only

from .client import Sender
from .parts import application_properties, data, frame
from .peer import declared, session_of

MESSAGES = 150


def batch(sender: Sender, first: int, settled: bool, *sections: bytes, count: int = MESSAGES) -> bytes:
    """So many small messages, as a client sends them."""
    sender.session.next_delivery = first + count
    channel = sender.session.channel
    return b"".join(
        frame(
            channel,
            p.Transfer(
                handle=sender.handle,
                delivery_id=number,
                delivery_tag=number.to_bytes(4),
                message_format=0,
                settled=settled,
            ),
            b"".join(sections),
        )
        for number in range(first, first + count)
    )


@pytest.mark.parametrize(
    ("address", "sections", "settled", "at_most"),
    [
        ("/queues/q", (data(bytes(100)),), False, 4.9),
        ("/queues/q", (data(bytes(100)),), True, 4.9),
        (None, (p.Properties(to="/queues/q").encode(), data(bytes(100))), False, 4.9),
    ],
)
def test_a_published_message_costs_few_python_calls(
    address: str | None, sections: tuple[bytes, ...], settled: bool, at_most: float
) -> None:
    bench = declared(ClientBench("protocols.amqp10.link_credit = 1000"), ["q"])
    sender = session_of(bench).sender(address)
    front = sender.peer.front

    def publish(octets: bytes) -> None:
        front.receive(octets, bench.broker.tick())
        bench.broker.settle()

    publish(batch(sender, 0, settled, *sections))
    octets = batch(sender, MESSAGES, settled, *sections)
    cost = calls(lambda: publish(octets))
    assert bench.queue("q").ready == 2 * MESSAGES
    sender.peer.read()
    assert len(sender.session.settled) == (0 if settled else 2 * MESSAGES)
    assert cost.total() / MESSAGES < at_most, cost.most_common(20)


def one_sender() -> tuple[ClientBench, Sender]:
    """A bench with a queue, and a sender from whom it has a message."""
    bench = declared(ClientBench("protocols.amqp10.link_credit = 1000"), ["q"])
    sender = session_of(bench).sender("/queues/q")
    take_in(bench, sender, batch(sender, 0, False, *with_id(0), count=1))
    sender.peer.read()
    return bench, sender


def take_in(bench: ClientBench, sender: Sender, octets: bytes) -> None:
    sender.peer.front.receive(octets, bench.broker.tick())
    bench.broker.settle()


def with_id(number: int) -> tuple[bytes, bytes, bytes]:
    """A message that differs from the others in front of its body."""
    return p.Header(durable=True).encode(), p.Properties(message_id=f"m{number}").encode(), data(bytes(100))


@plain_only
@pytest.mark.parametrize(
    ("number", "expected", "read"),
    [
        (
            10,  # an id of another size
            [
                "Publishing._project",
                "Projection.properties_of",  # what is known does not hold for this one
                "Projection.__init__",
                "project",
                "bounds",
                "texts_at",
                "Projection.learn_form",  # it has not that of the one before
                "Projection.may_hold",  # but what is known of it may hold for those to come
            ],
            {"encoding", "sections", "section_scan"},
        ),
        (
            2,
            [
                "Publishing._project",
                "Projection.properties_of",
                "Projection.__init__",
                "Projection.may_hold",
            ],
            set(),
        ),
    ],
    ids=["unlike the one before", "of the form of the two before"],
)
def test_a_message_is_read_straight_down_or_not_at_all(
    number: int, expected: list[str], read: set[str]
) -> None:
    bench, sender = one_sender()
    take_in(bench, sender, batch(sender, 1, False, *with_id(1), count=1))
    octets = batch(sender, 2, False, *with_id(number), count=1)
    called, modules = calls_under("Publishing._project", lambda: take_in(bench, sender, octets))
    assert called == expected
    assert modules == {"publishing", "projection"} | read


def own(number: int) -> tuple[bytes, ...]:
    """A message with ids, a time and headers of its own."""
    properties = p.Properties(
        message_id=f"m{number}", correlation_id=f"c{number:08}", creation_time=Timestamp(number)
    )
    headers = application_properties({"trace": f"{number:032x}", "n": number})
    return p.Header().encode(), properties.encode(), headers, data(bytes(100))


def owned(sender: Sender, first: int) -> bytes:
    return b"".join(
        batch(sender, number, False, *own(number), count=1) for number in range(first, first + MESSAGES)
    )


def test_messages_with_properties_of_their_own_are_taken_together() -> None:
    """Two of them are read; they are published, and answered, as one run."""
    bench, sender = one_sender()
    take_in(bench, sender, owned(sender, 1))
    octets = owned(sender, 1 + MESSAGES)
    cost = calls(lambda: take_in(bench, sender, octets))
    assert bench.queue("q").ready == 1 + 2 * MESSAGES
    sender.peer.read()
    assert len(sender.session.settled) == 1 + 2 * MESSAGES
    assert cost.total() / MESSAGES < 5, cost.most_common(20)
    assert cost["publish"] == 0


def test_deliveries_with_properties_of_their_own_cost_no_more_than_alike_ones() -> None:
    """But for one slice; and acknowledged one by one in one read they are settled in one go."""
    costs = []
    for make in (lambda number: (data(b"%8d" % number),), own):
        bench, sender = one_sender()
        receiver = session_of(bench).receiver("/queues/q", credit=10_000)
        peer = receiver.peer
        batches = [
            b"".join(
                batch(sender, number, False, *make(number), count=1)
                for number in range(first, first + MESSAGES)
            )
            for first in (1, 1 + MESSAGES)
        ]
        for octets in batches:
            sender.peer.front.receive(octets, bench.broker.tick())
            cost = calls(bench.broker.settle)
        got = receiver.all()
        assert len(got) == 1 + 2 * MESSAGES
        costs.append(cost.total() / MESSAGES)
        acks = b"".join(
            frame(0, p.Disposition(role=True, first=each.id, settled=True, state=p.Accepted()))
            for each in got
        )
        cost = calls(partial(peer.front.receive, acks, bench.broker.tick()))
        assert bench.queue("q").unsettled == 0
        assert cost.total() / len(got) < 4, cost.most_common(20)
    assert costs[1] - costs[0] < 1.5, costs


@plain_only
@pytest.mark.parametrize("messages", [1, MESSAGES])
def test_an_accepted_message_is_answered_straight_down(messages: int) -> None:
    """From being told that all is safe to the disposition: twelve calls, for one message and for a batch."""
    bench, sender = one_sender()
    octets = batch(sender, 1, False, *with_id(0), count=messages)
    called, _ = calls_under("ServedSession.taken", lambda: take_in(bench, sender, octets))
    assert called == [
        *("ServedSession.taken", "Publishing.answer", "IncomingLink.accept_all"),
        *("Session.accept", "Session.become_due"),
        *("Session.flush", "Dispositions.tell", "runs", "disposition_frame", "frame"),
        *("OutboxWriter.write", "Outbox.write"),
    ]
    sender.peer.read()
    assert len(sender.session.settled) == 1 + messages


@plain_only
@pytest.mark.parametrize(("address", "at_most"), [(None, 18), ("/exchange/amq.direct", 21)])
def test_messages_by_turns_for_ten_queues_are_published_together(address: str | None, at_most: int) -> None:
    """Each is projected by itself; every queue gets its share of a read at once."""
    settings = "protocols.amqp10.link_credit = 1000\nprotocols.amqp10.addresses.v1 = true"
    queues = [f"q{number}" for number in range(10)]
    bench = declared(ClientBench(settings), queues)
    for name in queues:
        bench.host.bind(bench.host.exchange("amq.direct"), bench.queue(name), name)
    sender = session_of(bench).sender(address)

    def octets(first: int) -> bytes:
        return b"".join(
            batch(
                sender,
                first + number,
                False,
                p.Properties(to=f"/queues/{name}", subject=name).encode(),
                data(bytes(100)),
                count=1,
            )
            for number, name in enumerate(queues * (MESSAGES // 10))
        )

    for read in range(2):  # routes are known after the first
        take_in(bench, sender, octets(read * MESSAGES))
    last = octets(2 * MESSAGES)
    cost = calls(lambda: take_in(bench, sender, last))
    assert {bench.queue(name).ready for name in queues} == {3 * MESSAGES // 10}
    assert cost["LanedQueue.push_run"] == cost["LanedQueue.push"] + len(queues) == len(queues)
    assert cost.total() / MESSAGES < at_most, cost.most_common(30)
