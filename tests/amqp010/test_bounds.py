"""What one peer can make the node hold, and compute, before others have their turn: measured, in octets and in work."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import pytest

from leveret.exchanges import exchange_type as exchange
from leveret.features.xa.branches import BRANCHES_MAX, Branches
from leveret.limits import UserLimits
from leveret.message import Message
from leveret.protocols.amqp010.broker import adapter, declarations, encoding, envelope
from leveret.protocols.amqp010.broker.encoding import ENCODING, rendered
from leveret.protocols.amqp010.broker.envelope import REMEMBERED_MAX, envelope_of
from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames
from leveret.protocols.amqp010.codec.sequences import RANGES_MAX, SequenceSet
from leveret.protocols.amqp010.machine.connection import NAME_MAX, RANGES_FEW
from leveret.protocols.amqp010.machine.contract import SessionLimits
from leveret.protocols.amqp010.machine.execution import (
    KNOWN_RANGES_MAX,
    UPDATED_RANGES_MAX,
    Execution,
    Sending,
    SequenceError,
)
from leveret.protocols.amqp010.machine.reader import COMMAND_SIZE_MAX, INITIAL_SIZE_MAX, TRANSFERS_MAX
from leveret.protocols.amqp010.machine.replay import Replay
from leveret.security import permission_book
from tests.harness.bench import ClientBench

from .client import ClientSession, SessionEnded, frame, ids
from .peer import Peer, session_of

MIB: Final = 1 << 20


@contextmanager
def growth() -> Iterator[list[int]]:
    """Yield a list that has one item afterwards: how many octets more are held than before, by all threads."""
    found: list[int] = []
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        yield found
        gc.collect()
        found.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()


@contextmanager
def held(most: int) -> Iterator[None]:
    """No more octets than these are held afterwards than were before."""
    with growth() as found:
        yield
    assert found[0] <= most, f"{found[0]} octets are held"


def octets_of(command: c.Command, structs: tuple[object, ...] | None = None, channel: int = 1) -> bytes:
    header = None if structs is None else b"".join(each.encode() for each in structs)
    pieces: list[bytes] = []
    append_frames(pieces, channel, command.encode(), header, None if structs is None else b"x", 65_535)
    return b"".join(pieces)


# Before login.


def test_what_a_stranger_says_of_himself_is_not_kept() -> None:
    peer = Peer()
    peer.greet()
    said = {f"property {number}": [number % 100] * 20 for number in range(38)}
    start_ok = c.ConnectionStartOk(said, "PLAIN", b"\0guest\0guest", "en_US")
    payload = start_ok.encode()
    assert 7000 < len(payload) < INITIAL_SIZE_MAX
    with held(10_000):
        peer.send_bytes(frame(payload))
        peer.read()
    assert peer.tune is not None


def test_controls_of_a_stranger_that_never_end_are_not_kept_for_ever() -> None:
    peer = Peer()
    peer.greet()
    with held(16_384):
        for channel in range(100):
            for flags in (0x0E, 0x0C, 0x0C, 0x0C):
                peer.front.receive(frame(b"\x01\x02" + bytes(500), channel, flags), 0.0)
    assert peer.front.closed


# Sessions and subscriptions.


def test_a_long_name_is_no_name_for_a_session() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    peer.attach(b"x" * NAME_MAX)
    refused = peer.sessions[2] = ClientSession(peer, 2, b"x" * (NAME_MAX + 1))
    refused.control(c.SessionAttach(refused.name))
    peer.read()
    assert refused.detached is not None
    assert refused.detached.code == c.DETACH_CODE_TRANSPORT_BUSY
    assert len(bench.host.guest(Sessions)) == 1


def test_a_command_of_more_octets_than_a_declaration_needs_is_passed_over() -> None:
    session = session_of(ClientBench())
    with held(MIB), pytest.raises(SessionEnded) as ended:
        session.call(
            c.QueueDeclare("q", arguments={f"a{n}": "x" * 1000 for n in range(COMMAND_SIZE_MAX // 1000)})
        )
    assert ended.value.code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert "limits." not in told_of(session)


def test_the_error_for_a_message_that_is_too_large_names_the_setting() -> None:
    session = session_of(ClientBench("limits.message_size_max = 1000"))
    session.declare("q")
    session.publish("q", bytes(1000))
    session.sync()
    session.publish("q", bytes(1001))
    assert session.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert (
        told_of(session)
        == "1001 octets or more are too many for a segment of a command (limits.message_size_max)"
    )


def told_of(session: ClientSession) -> str:
    """What the exception says that has ended a session."""
    exception = session.ended().exception
    assert exception is not None
    return exception.description or ""


# What commands leave behind.

REPEATED: Final[dict[str, Callable[[int], c.Command]]] = {
    "execution.sync": lambda number: c.ExecutionSync(),
    "queries": lambda number: c.QueueQuery(f"missing{number}"),
    "bindings that are asked for": lambda number: c.ExchangeBound("amq.direct", "q", f"key{number}"),
    "unbinding nothing": lambda number: c.ExchangeUnbind("q", "amq.direct", f"key{number}"),
    "accepting nothing": lambda number: c.MessageAccept(ids(number)),
    "acquiring nothing": lambda number: c.MessageAcquire(ids(number)),
    "declaring again": lambda number: c.QueueDeclare("q", arguments={"no-local": True, "n": number}),
    "looking for a queue": lambda number: c.QueueDeclare("q", passive=True, arguments={"no-local": True}),
    "giving credit": lambda number: c.MessageFlow("d", 0, 1),
    "changing the mode": lambda number: c.MessageSetFlowMode("d", number % 2),
    "flushing": lambda number: c.MessageFlush("d"),
    "stopping": lambda number: c.MessageStop("d"),
    "what branches there are": lambda number: c.DtxRecover(),
}
IN_PAIRS: Final[dict[str, Callable[[int], tuple[c.Command, ...]]]] = {
    "queues that come and go": lambda number: (
        c.QueueDeclare(f"brief{number}", arguments={"no-local": True}),
        c.QueueDelete(f"brief{number}"),
    ),
    "exchanges that come and go": lambda number: (
        c.ExchangeDeclare(f"brief{number}", "topic"),
        c.ExchangeDelete(f"brief{number}"),
    ),
    "bindings that come and go": lambda number: (
        c.ExchangeBind("q", "amq.topic", f"key{number}"),
        c.ExchangeUnbind("q", "amq.topic", f"key{number}"),
    ),
    "subscriptions that come and go": lambda number: (
        c.MessageSubscribe("q", f"brief{number}"),
        c.MessageFlow(f"brief{number}", 0, 1),
        c.MessageFlush(f"brief{number}"),
        c.MessageCancel(f"brief{number}"),
    ),
    "branches that come and go": lambda number: (
        c.DtxStart(c.Xid(number, b"g", b"b")),
        c.DtxEnd(c.Xid(number, b"g", b"b")),
        c.DtxRollback(c.Xid(number, b"g", b"b")),
    ),
}


@pytest.mark.parametrize(
    "said",
    [*((lambda number, one=one: (one(number),)) for one in REPEATED.values()), *IN_PAIRS.values()],
    ids=[*REPEATED, *IN_PAIRS],
)
def test_what_is_said_again_and_again_leaves_nothing(
    said: Callable[[int], tuple[c.Command, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        permission_book, "GRANTS_MAX", 100
    )  # this memory is bounded, and so tested, elsewhere
    session = session_of(ClientBench())
    session.declare("q", {"no-local": True})
    session.subscribe("q", "d", messages=1)
    session.call(c.DtxSelect())
    peer = session.client
    assert isinstance(peer, Peer)

    def say(begin: int, end: int) -> None:
        for number in range(begin, end):
            peer.send_bytes(b"".join(octets_of(command) for command in said(number)))
            peer.take_bytes()
        assert not peer.front.wire.sessions[1].ended

    say(0, 400)
    with growth() as found:
        say(400, 1200)
    if found[0] > 25_000:  # a thread that another test has left may have taken it, once
        with held(25_000):
            say(1200, 2000)


def test_a_virtual_host_has_so_many_branches() -> None:
    bench = ClientBench()
    session = session_of(bench)
    session.call(c.DtxSelect())
    with pytest.raises(SessionEnded) as ended:  # noqa: PT012 - until the last
        for number in range(BRANCHES_MAX + 1):
            session.call(c.DtxStart(c.Xid(number, b"g" * 64, b"b" * 64)))
            session.call(c.DtxEnd(c.Xid(number, b"g" * 64, b"b" * 64), suspend=True))
    assert ended.value.code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert len(bench.host.guest(Branches)) == BRANCHES_MAX


# What is remembered: neither too many nor too large.


def long_header(number: int) -> bytes:
    """Delivery-properties with a kilobyte behind their fields, which says nothing."""
    plain = c.DeliveryProperties(routing_key=f"k{number}").encode()
    body = plain[4:] + number.to_bytes(4, "big") * 250
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "header",
    [
        long_header,
        lambda number: c.DeliveryProperties(routing_key=f"{number:0250}").encode(),
        lambda number: c.MessageProperties(user_id=f"{number:01000}".encode()).encode(),
        lambda number: c.MessageProperties(correlation_id=b"%01000d" % number).encode(),
        lambda number: c.MessageProperties(application_headers={"k": f"{number:01000}"}).encode(),
    ],
    ids=["trailing octets", "routing keys", "user ids", "correlation ids", "headers"],
)
def test_what_is_remembered_of_headers_is_bounded_in_octets(header: Callable[[int], bytes]) -> None:
    with held(2 * MIB):
        for number in range(REMEMBERED_MAX):
            octets = header(number)
            found = envelope_of(octets)
            rendered(Message(ENCODING, "", found.routing_key, octets, b"x", found.facts))
    caches = (encoding.remembered, envelope.remembered, envelope.remembered_parts, envelope.remembered_facts)
    assert all(len(cache) <= REMEMBERED_MAX for cache in caches)


def test_transfers_that_are_remembered_by_their_octets_are_few() -> None:
    bench = ClientBench()
    session = session_of(bench)
    session.exchange("x" * 100, "fanout")
    peer = session.client
    assert isinstance(peer, Peer)
    for accept_mode in range(2):
        for acquire_mode in range(256):
            transfer = c.MessageTransfer("x" * 100, accept_mode, acquire_mode)
            peer.send_bytes(octets_of(transfer, (c.DeliveryProperties(),)))
    assert len(peer.front.wire._transfers) <= TRANSFERS_MAX


# What is computed: sets of ids.

AS_MANY: Final = SequenceSet.of(*((3 * n + 1, 3 * n + 1) for n in range(SessionLimits().incomplete_max)))


def test_few_ranges_are_added_to_many_without_going_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    many = AS_MANY.copy()
    monkeypatch.setattr(SequenceSet, "_merge", None)
    few = SequenceSet.of(*((30 * n + 3, 30 * n + 3) for n in range(100)))
    many.update(few)
    assert many.range_count == AS_MANY.range_count
    assert many.count == AS_MANY.count + few.count


def test_the_many_ranges_of_a_peer_are_read_as_the_few_are() -> None:
    """They are read another way."""
    for step in (1, 2, 3):
        for count in (8, 9, 20, 8191):
            made = SequenceSet.of(*((step * n + 7, step * n + 7) for n in range(count)))
            raw = b"".join(2 * (step * n + 7).to_bytes(4, "big") for n in range(count))
            (command, _) = c.command_at(*whole(c.MessageAccept(made).encode(), raw))
            assert isinstance(command, c.MessageAccept)
            assert command.transfers == made


def whole(accept: bytes, ranges: bytes) -> tuple[bytes, int, int]:
    """An accept with these octets in place of its ranges."""
    at = accept.index(b"\x01\x00", 4) + 2
    octets = accept[:at] + len(ranges).to_bytes(2, "big") + ranges
    return octets, 0, len(octets)


def test_of_what_is_complete_ahead_so_much_is_looked_at_as_may_be_known() -> None:
    execution = Execution()
    for _ in range(AS_MANY.last + 2):
        execution.receive()
    for id in AS_MANY:
        execution.complete(id)
    everything = SequenceSet.of_range(0, AS_MANY.last)
    execution.known(everything)
    assert execution._known.range_count <= KNOWN_RANGES_MAX
    told = execution.completed
    assert AS_MANY.range_count - KNOWN_RANGES_MAX <= told.range_count <= AS_MANY.range_count


def test_results_for_commands_that_have_none_are_not_remembered_without_end() -> None:
    sending = Sending()
    for _ in range(1000):
        sending.send()
    with pytest.raises(SequenceError):  # noqa: PT012 - until one too many
        for id in range(0, 4 * UPDATED_RANGES_MAX, 2):
            sending.dup(ids(id))
    assert sending.range_count <= UPDATED_RANGES_MAX + 1


# What takes long gives others their turn.


def turns(session: ClientSession, octets: bytes) -> int:
    """How many turns it takes until all of it is done."""
    peer = session.client
    assert isinstance(peer, Peer)
    peer.front.receive(octets, peer.bench.broker.tick())
    count = 1
    while peer.front.halted:
        peer.bench.settle()
        peer.take_bytes()
        peer.front.receive(b"", peer.bench.broker.tick())
        count += 1
    peer.bench.settle()
    return count


@pytest.fixture
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "WORK_MAX", 1200)


@pytest.mark.usefixtures("little_work")
@pytest.mark.parametrize(
    "command",
    [
        c.ExchangeBound("amq.direct", None, "nothing"),
        c.ExchangeBound("amq.direct", "q", "nothing"),
        c.ExchangeUnbind("q", "amq.direct", "nothing"),
    ],
    ids=["bound", "bound to a queue", "unbind"],
)
def test_who_asks_for_bindings_again_and_again_lets_others_have_their_turn(command: c.Command) -> None:
    session = session_of(ClientBench())
    session.declare("q")
    assert turns(session, octets_of(command) * 100) == 1
    for number in range(400):
        session.bind("q", "amq.direct", f"k{number}")
    assert turns(session, octets_of(command) * 100) >= 4


@pytest.mark.usefixtures("little_work")
def test_who_deletes_exchanges_one_by_one_lets_others_have_their_turn() -> None:
    session = session_of(ClientBench())
    for number in range(400):
        session.declare(f"q{number}")
    pair = octets_of(c.ExchangeDeclare("brief", "fanout")) + octets_of(c.ExchangeDelete("brief"))
    assert turns(session, pair * 60) >= 3


@pytest.mark.usefixtures("little_work")
@pytest.mark.parametrize("acquire_mode", [c.ACQUIRE_MODE_PRE_ACQUIRED, c.ACQUIRE_MODE_NOT_ACQUIRED])
def test_who_answers_what_is_not_there_lets_others_have_their_turn(acquire_mode: int) -> None:
    """Between what he holds."""
    session = session_of(ClientBench())
    session.declare("q")
    for _ in range(600):
        session.publish("q")
    inbox = session.subscribe("q", acquire_mode=acquire_mode)
    first = inbox.get().id
    inbox.all()
    gone = ids((first + 1, first + 400))
    kind = c.MessageAcquire if acquire_mode else c.MessageAccept
    session.call(kind(gone))
    asked = gone if kind is c.MessageAccept else ids((first + 2_000, first + 900_000))
    assert turns(session, octets_of(kind(asked)) * 100) >= 4


# What peers are told of their own words.


@pytest.mark.parametrize(
    "command",
    [
        c.QueueDelete("\n" * 255),
        c.QueueDelete("\udcff" * 255),
        c.ExchangeDeclare("ä" * 127, "\r\n" * 60),
        c.QueueDeclare("new", arguments={"qpid.max_count": "\n" * 60_000}),
        c.QueueDeclare("new", arguments={"x-max-length": ["\x00" * 60_000]}),
        c.MessageSubscribe("q", "d", arguments={"x-apache-selector": "'" * 60_000}),
        c.MessageTransfer("\x1b[2J" * 60),
    ],
    ids=range(7),
)
def test_the_words_of_a_peer_come_back_short_and_stay_in_one_line_of_the_log(
    command: c.Command, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_of(ClientBench())
    session.declare("q")
    with caplog.at_level("DEBUG"), pytest.raises(SessionEnded) as ended:
        session.call(command)
    exception = ended.value.exception
    assert exception is not None
    assert len((exception.description or "").encode("utf-8", "surrogateescape")) <= 4096
    assert all(len(line) < 500 for line in caplog.messages)


def test_arguments_of_bindings_are_compared_without_going_through_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_of(ClientBench())
    session.declare("q")
    for number in range(5):
        session.bind("q", "amq.match", "", {"x-match": "all", "n": number, "long": list(range(1000))})
    walked: list[object] = []
    monkeypatch.setattr(
        declarations, "frozen", lambda arguments: walked.append(arguments) or exchange.frozen(arguments)
    )
    for number, no in ((3, False), (7, True)):
        asked = {"x-match": "all", "n": number, "long": list(range(1000))}
        told = session.call(c.ExchangeBound("amq.match", "q", None, asked))
        assert isinstance(told, c.ExchangeBoundResult)
        assert told.args_not_matched is no
    assert len(walked) <= 6


def test_sessions_that_are_refused_are_in_the_log_once_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    bench = ClientBench()
    guest = bench.broker.access.user("guest")
    assert guest is not None
    bench.broker.access.put_user(attrs.evolve(guest, limits=UserLimits(max_channels=0)))
    peer = Peer(bench).open()
    for channel in range(1, 20):
        peer.send_bytes(frame(c.SessionAttach(b"s", False).encode(), channel))
    assert sum("session refused" in message for message in caplog.messages) == 1


@pytest.mark.usefixtures("little_work")
@pytest.mark.parametrize(
    ("commands", "least"),
    [
        ((c.QueueQuery("q"),), 3),
        ((c.QueueDeclare("brief"), c.QueueDelete("brief")), 6),
        ((c.MessageSubscribe("q", "d"), c.MessageCancel("d")), 6),
        (
            (
                c.MessageSubscribe("q", "d", arguments={"x-apache-selector": "a = 1 AND " * 20 + "b = 2"}),
                c.MessageCancel("d"),
            ),
            100,
        ),
    ],
    ids=["queries", "queues", "subscriptions", "selectors"],
)
def test_after_so_many_commands_others_have_their_turn(commands: tuple[c.Command, ...], least: int) -> None:
    session = session_of(ClientBench())
    session.declare("q")
    assert turns(session, b"".join(map(octets_of, commands)) * 400) >= least
    assert not session.is_over


def test_after_a_flush_others_have_their_turn() -> None:
    """It has fifteen octets, and the answer may have 65 thousand."""
    session = session_of(ClientBench())
    assert turns(session, frame(c.SessionFlush(completed=True).encode(), 1) * 10) == 11


@pytest.mark.parametrize(("done", "turns_taken"), [(RANGES_FEW, 1), (RANGES_FEW + 1, 11)])
def test_others_have_their_turn_after_a_control_that_has_many_ranges_looked_at(
    done: int, turns_taken: int
) -> None:
    """It has 26 octets, and looks at every range of commands that were done out of order."""
    session = session_of(ClientBench())
    execution = next(iter(session.client.front.wire.sessions.values())).execution
    first = execution.next_id
    for _ in range(2 * done):
        execution.receive()
    for number in range(done):
        execution.complete(first + 1 + 2 * number)
    known = c.SessionKnownCompleted(SequenceSet.of((first + 1, first + 1)))
    assert turns(session, frame(known.encode(), 1) * 10) == turns_taken


def test_as_much_is_told_as_fits_at_the_price_of_that() -> None:
    execution = Execution()
    for _ in range(AS_MANY.last + 2):
        execution.receive()
    for id in AS_MANY:
        execution.complete(id)
    assert AS_MANY.range_count > RANGES_MAX
    told = execution.completed_first(RANGES_MAX)
    assert told == execution.completed.beginning(RANGES_MAX)
    assert len(told.encode()) == 2 + 8 * RANGES_MAX


def test_what_is_kept_to_be_sent_again_is_counted_as_it_is_held() -> None:
    """Also where it is many small things."""
    replay = Replay(0, 100_000, 400_000)
    with held(replay.hard // 2):
        while not replay.crowded():
            replay.keep(b"%020d" % replay.next_id, None, None)
