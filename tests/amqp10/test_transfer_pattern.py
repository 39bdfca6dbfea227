"""Transfers that look alike are taken together: the same comes of them as if each had come by itself, whatever they say
and wherever a read ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocols.amqp10.broker.encoding import project
from leveret.protocols.amqp10.broker.projection import REMEMBERED_MAX, Projection
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.wire import EMPTY_FRAME
from tests.harness.bench import ClientBench

from .client import SETTLED, Sender
from .parts import VALUE, annotations, application_properties, data, frame, section
from .peer import SECOND, bind, declare, session_of

SETTINGS = "protocols.amqp10.link_credit = 60\nprotocols.amqp10.incoming_window = 80"
FULL = {"x-max-length": 5, "x-overflow": "reject-publish"}
MESSAGES = 24


class Case:
    """A bench with two senders in one session, before anything is sent."""

    def __init__(self, address: str | None = "/queues/q", settings: str = SETTINGS, **link: object) -> None:
        self.bench = ClientBench(settings)
        for name in ("q", "r", "fan1", "fan2"):
            declare(self.bench, name)
        declare(self.bench, "full", arguments=FULL)
        for name in ("fan1", "fan2"):
            bind(self.bench, "amq.fanout", name)
        self.session = session_of(self.bench)
        self.sender = self.session.sender(address, **link)
        self.other = self.session.sender("/queues/r")

    def read(self, octets: bytes) -> None:
        """The node reads this, and takes its turns until there is nothing left of it."""
        front = self.session.peer.front
        front.receive(octets, self.bench.broker.tick())
        while front.halted:
            front.receive(b"", self.bench.broker.tick())
        self.bench.settle()

    def outcome(self) -> tuple[object, ...]:
        """What became of it, as everybody sees it."""
        self.session.peer.read()
        wire = self.session.peer.front.wire.sessions.get(self.session.channel)
        links = {} if wire is None else wire.links
        return (
            [
                [
                    (each.message.body, each.message.properties, each.message.facts.durable, each.message.key)
                    for each in self.bench.queue(name).waiting()
                ]
                for name in ("q", "r", "fan1", "fan2", "full")
            ],
            self.session.outcomes,
            self.session.settled,
            self.session.ended,
            self.sender.detached,
            None if wire is None else (wire.received, wire.unanswered, wire._next_incoming_id),
            [(link.delivery_count, link.credit + link.session.received) for link in links.values()],
        )


def transfer(case: Case, number: int, payload: bytes, sender: Sender | None = None, **said: object) -> bytes:
    link = case.sender if sender is None else sender
    fields = {"delivery_tag": number.to_bytes(4), "settled": False, "message_format": 0, **said}
    performative = p.Transfer(handle=link.handle, delivery_id=number, **fields)
    return frame(case.session.channel, performative, payload)


def many(case: Case, payload: Callable[[int], bytes], begin: int = 0, **said: object) -> list[bytes]:
    return [transfer(case, number, payload(number), **said) for number in range(begin, begin + MESSAGES)]


def text(number: int) -> bytes:
    return data(b"%03d" % number)


def alike(case: Case) -> list[bytes]:
    return many(case, text)


def ids_of_both_widths(case: Case) -> list[bytes]:
    return many(case, text, begin=245)


def of_all_sizes(case: Case) -> list[bytes]:
    return many(case, lambda number: data(bytes(30 * number)))


def durable(case: Case) -> list[bytes]:
    return many(case, lambda number: p.Header(durable=True).encode() + text(number))


def values(case: Case) -> list[bytes]:
    return many(case, lambda number: section(VALUE, "a" * number))


def numbered_text(number: int) -> bytes:
    return p.Properties(message_id=f"m{number}").encode() + text(number)


def numbered(case: Case) -> list[bytes]:
    return many(case, numbered_text)


def some_durable(case: Case) -> list[bytes]:
    return many(case, lambda number: p.Header(durable=number % 5 == 0).encode() + text(number))


def some_for_later(case: Case) -> list[bytes]:
    """A time before which a message is not ready, and none in those around it."""
    due_ms = int(case.bench.clock.wall() * 1000) + 60_000

    def payload(number: int) -> bytes:
        later = annotations({"x-opt-delivery-time": due_ms}) if number % 8 == 7 else b""
        return later + p.Properties(message_id=f"m{number}").encode() + text(number)

    return many(case, payload)


def own_properties(case: Case) -> list[bytes]:
    """Ids and headers of each message's own; some have more that the broker reads, or cannot be taken."""

    def payload(number: int) -> bytes:
        properties = p.Properties(
            message_id=f"m{number}",
            correlation_id=f"c{number:05}",
            reply_to=f"r{number}" if number % 3 == 0 else None,
            user_id=b"guest" if number % 11 == 5 else b"nobody" if number == 29 else None,
        )
        headers = {"n": number, "trace": "é" * number, "list": [number] if number % 4 == 0 else None}
        front = p.Header(priority=number % 2).encode() if number % 10 == 9 else b""
        return front + properties.encode() + application_properties(headers) + text(number)

    return many(case, payload)


def one_whose_headers_cannot_be_read(case: Case) -> list[bytes]:
    bad = b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\xa1\x01\xff"
    return many(case, lambda number: (bad if number == 12 else b"") + text(number))


def to_many_queues(case: Case) -> list[bytes]:
    return many(
        case, lambda number: p.Properties(to=f"/queues/{'q' if number % 5 else 'x'}").encode() + text(number)
    )


def some_in_two_sections(case: Case) -> list[bytes]:
    return many(case, lambda number: text(number) + (data(b"more") if number % 7 == 6 else b""))


def some_settled(case: Case) -> list[bytes]:
    return [transfer(case, number, text(number), settled=number % 6 == 5) for number in range(MESSAGES)]


def of_two_links(case: Case) -> list[bytes]:
    return [
        transfer(case, number, text(number), case.other if number % 8 > 5 else case.sender)
        for number in range(MESSAGES)
    ]


def one_in_two_frames(case: Case) -> list[bytes]:
    frames = many(case, text)
    whole = text(10)
    frames[10:11] = [transfer(case, 10, whole[:3], more=True), transfer(case, 10, whole[3:])]
    return frames


def one_aborted(case: Case) -> list[bytes]:
    frames = many(case, text)
    frames[10:11] = [transfer(case, 10, b"", more=True), transfer(case, 10, b"", aborted=True)]
    return frames


def one_that_is_no_message(case: Case) -> list[bytes]:
    return many(case, lambda number: b"\x00\x53\x75\xa0\x09abc" if number == 12 else text(number))


def one_with_a_long_tag(case: Case) -> list[bytes]:
    return [*alike(case), transfer(case, MESSAGES, text(1), delivery_tag=bytes(33))]


def one_of_another_format(case: Case) -> list[bytes]:
    return [transfer(case, number, text(number), message_format=number // 20) for number in range(MESSAGES)]


def more_than_the_credit(case: Case) -> list[bytes]:
    return [transfer(case, number, text(number)) for number in range(70)]


def more_than_the_window(case: Case) -> list[bytes]:
    senders = [case.sender] * 45 + [case.other] * 45
    return [transfer(case, number, text(number), sender) for number, sender in enumerate(senders)]


def flows_between(case: Case) -> list[bytes]:
    frames = alike(case)
    flow = p.Flow(incoming_window=9, next_outgoing_id=12, outgoing_window=9, next_incoming_id=0)
    frames[12:12] = [frame(case.session.channel, flow)]
    return frames


SCRIPTS = [
    *(alike, ids_of_both_widths, of_all_sizes, durable, values, numbered, some_durable),
    *(own_properties, some_for_later, one_whose_headers_cannot_be_read, to_many_queues),
    *(some_in_two_sections, some_settled, of_two_links, one_in_two_frames, one_aborted),
    *(one_that_is_no_message, one_with_a_long_tag, one_of_another_format, flows_between),
]
MEETING_A_LIMIT = [more_than_the_credit, more_than_the_window]
LINKS: list[dict[str, object]] = [
    {},
    {"address": "/queues/full"},
    {"address": "/exchanges/amq.fanout"},
    {"address": "/exchanges/amq.direct/nowhere"},
    {"rcv_settle_mode": SECOND},
    {"snd_settle_mode": SETTLED},
]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("script", [*SCRIPTS, *MEETING_A_LIMIT])
def test_transfers_in_one_read_do_what_each_does_by_itself(
    script: Callable[[Case], list[bytes]], link: dict[str, object]
) -> None:
    together, singly = Case(**link), Case(**link)
    together.read(b"".join(script(together)))
    singly.read(EMPTY_FRAME.join(script(singly)))  # no transfer follows another
    assert together.outcome() == singly.outcome()


@pytest.mark.parametrize("script", [each for each in SCRIPTS if each is not one_with_a_long_tag])
def test_a_read_may_end_anywhere_among_transfers(script: Callable[[Case], list[bytes]]) -> None:
    whole = Case()
    octets = b"".join(script(whole))
    whole.read(octets)
    expected = whole.outcome()
    for cut in range(1, len(octets), 31):
        parts = Case()
        parts.read(octets[:cut])
        parts.read(octets[cut:])
        assert parts.outcome() == expected, cut


def test_an_anonymous_sender_says_the_same_address_many_times() -> None:
    case = Case(address=None)
    case.read(
        b"".join(
            transfer(case, number, p.Properties(to=f"/queues/{'qqr'[number % 3]}").encode() + text(number))
            for number in range(MESSAGES)
        )
    )
    case.session.peer.read()
    assert [case.bench.queue(name).ready for name in "qr"] == [16, 8]
    assert len(case.session.settled) == MESSAGES


def test_what_a_queue_has_no_room_for_is_refused_each_by_itself() -> None:
    case = Case("/queues/full")
    case.read(b"".join(alike(case)))
    case.session.peer.read()
    outcomes = [type(case.session.outcomes[number]) for number in range(MESSAGES)]
    assert outcomes == [p.Accepted] * 5 + [p.Rejected] * (MESSAGES - 5)


def test_many_copies_are_made_in_turns() -> None:
    """So many at once that others would wait for long: a run is cut where its turn ends."""
    case = Case("/exchanges/amq.fanout")
    for number in range(998):
        bind(case.bench, "amq.fanout", declare(case.bench, f"fan-{number}"))
    front = case.session.peer.front
    front.receive(b"".join(alike(case)), case.bench.broker.tick())
    assert front.halted
    assert case.bench.queue("fan1").ready < MESSAGES
    case.read(b"")
    assert case.bench.queue("fan1").ready == MESSAGES


# What was read of one message holds for another.

FRONTS = (b"", p.Header(durable=True).encode(), p.Properties(to="/queues/q", subject="s").encode())


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("size", [1, 300])
def test_what_was_read_of_a_message_holds_for_those_that_differ_in_their_body_only(
    front: bytes, size: int
) -> None:
    known = Projection(front + data(bytes(size)))
    like = front + data(b"x" * (size + 2))
    assert known.properties_of(like) is known.properties
    facts, properties, body, to, subject = project(like)
    assert (facts, properties, to, subject) == (known.facts, known.properties, known.to, known.subject)
    assert body == like[known.body_at :]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("size", [1, 300])
def test_what_was_read_of_a_message_holds_for_no_other(front: bytes, size: int) -> None:
    whole = front + data(bytes(size))
    known = Projection(whole)
    other_width = front + data(bytes(301 - size))
    other_front = p.Header(durable=True, priority=1).encode() + data(bytes(size))
    beginnings = [whole[:end] for end in (0, len(front), len(front) + 4, len(front) + 5, len(whole) - 1)]
    for payload in (other_width, other_front, whole + data(b"y"), whole + b"\0", *beginnings):
        assert known.properties_of(payload) is None


@pytest.mark.parametrize(
    "payload",
    [
        data(b"x") + data(b"y"),
        section(VALUE, True),
        p.Properties(message_id="m" * REMEMBERED_MAX).encode() + data(b"x"),
    ],
    ids=["two sections", "without a size", "too much in front"],
)
def test_some_messages_are_read_each_by_itself(payload: bytes) -> None:
    assert Projection(payload).properties_of(payload) is None
