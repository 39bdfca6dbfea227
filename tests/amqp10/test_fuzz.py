"""Random and mutated conversations in every state of a 1.0 connection: errors come back, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import types
from leveret.protocols.amqp10.codec.types import Described, Symbol, UByte, UInt, ULong, UShort
from tests.harness.bench import ClientBench
from tests.harness.mutation import POSITIONS, Mutation, mutated, mutations, reads, with_number

from . import attack as a
from .conversation import transcript
from .parts import AMQP, SASL, data, frame
from .peer import HEADER, SASL_HEADER, Peer

each_state: Final = pytest.mark.parametrize("state", a.STATES.values(), ids=a.STATES.keys())
a_share: Final = settings(max_examples=settings().max_examples // 4)  # the states together try hard enough

# Bytes and frames out of nothing.

NUMBERS: Final = st.sampled_from((0, 1, 2, 3, 50, 255, 256, 65_535, 1 << 31, (1 << 32) - 1))
NAMES: Final = st.sampled_from(
    (
        "q",
        "/queues/q",
        "/queues/%",
        "/exchanges/amq.topic/a",
        "/management",
        "/topic/a.#",
        "",
        "a\0b",
        "✋" * 40,
    )
)
ATOMS: Final = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS.map(UInt),
    NUMBERS.map(ULong),
    st.integers(0, 255).map(UByte),
    st.integers(0, 3).map(UByte),
    NUMBERS.map(lambda number: UShort(number & 0xFFFF)),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.floats(),
    NAMES,
    st.sampled_from(("never", "copy", "temporary-queue", "amqp:accepted:list", "x-note")).map(Symbol),
    st.binary(max_size=40),
)
CODES: Final = sorted(
    {each.CODE for each in vars(p).values() if isinstance(each, type) and hasattr(each, "CODE")}
)
PERFORMATIVES: Final = tuple(range(p.Open.CODE, p.Close.CODE + 1))


def composites(values: st.SearchStrategy[types.Value]) -> st.SearchStrategy[Described]:
    """Anything that looks like a composite type, with fields that may be of any type."""
    codes = st.sampled_from(CODES) | st.sampled_from(PERFORMATIVES)
    return st.builds(
        lambda code, fields: Described(ULong(code), fields), codes, st.lists(values, max_size=14)
    )


VALUES: Final = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3), composites(inner)
    ),
    max_leaves=8,
)
HANDLES: Final = st.sampled_from((0, 0, 0, 1, 2, 7, 255, 256))
CHANNELS: Final = st.sampled_from((0, 0, 0, 1, 63, 64, 65_535))
STATES_SAID: Final = st.sampled_from(
    (
        None,
        p.Accepted(),
        p.Released(),
        p.Rejected(),
        p.Modified(undeliverable_here=True),
        p.Received(section_number=0, section_offset=0),
    )
) | st.builds(lambda tx: p.TransactionalState(txn_id=tx, outcome=p.Accepted()), st.binary(max_size=4))
ADDRESSES: Final = st.just("/queues/q") | NAMES
SOURCES: Final = st.none() | st.builds(
    lambda address, dynamic, mode: p.Source(address=address, dynamic=dynamic, distribution_mode=mode),
    *(ADDRESSES, st.sampled_from((False, False, True)), st.sampled_from((None, None, "copy", "other"))),
)
TARGETS: Final = st.one_of(
    st.builds(p.Target),
    st.builds(lambda address: p.Target(address=address), ADDRESSES),
    st.builds(p.Coordinator),
    st.none(),
)
PLAUSIBLE: Final = st.one_of(
    st.builds(
        lambda handle, role, source, target, name, mode: p.Attach(
            name=name,
            handle=handle,
            role=role,
            snd_settle_mode=mode,
            source=source,
            target=target,
            initial_delivery_count=None if role else 0,
        ),
        *(HANDLES, st.booleans(), SOURCES, TARGETS, NAMES, st.integers(0, 2)),
    ),
    st.builds(
        lambda handle, number, tag, settled, more, state, aborted: p.Transfer(
            handle=handle,
            delivery_id=number,
            delivery_tag=tag,
            settled=settled,
            more=more,
            state=state,
            aborted=aborted,
        ),
        *(HANDLES, st.none() | NUMBERS, st.none() | st.binary(max_size=33)),
        *(st.none() | st.booleans(), st.booleans(), STATES_SAID, st.booleans()),
    ),
    st.builds(
        lambda role, first, last, settled, state: p.Disposition(
            role=role, first=first, last=last, settled=settled, state=state
        ),
        *(st.booleans(), NUMBERS, st.none() | NUMBERS, st.booleans(), STATES_SAID),
    ),
    st.builds(
        lambda incoming, window, handle, count, credit, drain, echo: p.Flow(
            next_incoming_id=incoming,
            incoming_window=window,
            next_outgoing_id=0,
            outgoing_window=window,
            handle=handle,
            delivery_count=count,
            link_credit=credit,
            drain=drain,
            echo=echo,
        ),
        *(st.none() | NUMBERS, NUMBERS, st.none() | HANDLES, st.none() | NUMBERS, st.none() | NUMBERS),
        *(st.booleans(), st.booleans()),
    ),
    st.builds(lambda handle, closed: p.Detach(handle=handle, closed=closed), HANDLES, st.booleans()),
    st.builds(lambda window: p.Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=0), NUMBERS),
    st.builds(p.End),
)
BODIES: Final = st.one_of(
    PLAUSIBLE.map(lambda record: record.encode()),
    composites(VALUES).map(types.encode),
    composites(ATOMS).map(types.encode),
    st.binary(max_size=60),
)
PAYLOADS: Final = st.sampled_from(
    (b"", data(b"x"), data(b"x")[:3], b"\x00\x53\x70\x45" + data(b"y"))
) | st.binary(max_size=20)
SIZES: Final = st.sampled_from((None,) * 12 + (0, 7, 8, a.FRAME_MAX, a.FRAME_MAX + 1, 0xFFFF_FFFF))


def frame_of(body: bytes, payload: bytes, channel: int, kind: int, offset: int, size: int | None) -> bytes:
    whole = body + payload
    return pack(">IBBH", 8 + len(whole) if size is None else size, offset, kind, channel) + whole


FRAMES: Final = st.builds(
    frame_of,
    BODIES,
    PAYLOADS,
    CHANNELS,
    st.sampled_from((AMQP,) * 8 + (SASL, 2)),
    st.sampled_from((2,) * 12 + (0, 1, 3, 255)),
    SIZES,
)


@each_state
@a_share
@given(chunks=st.lists(st.binary(max_size=200), max_size=4))
def test_random_bytes(state: Callable[[ClientBench], Peer], chunks: list[bytes]):
    a.attack(state, chunks)


@each_state
@a_share
@given(frames=st.lists(FRAMES, min_size=1, max_size=8), at_once=st.booleans())
def test_random_frames(state: Callable[[ClientBench], Peer], frames: list[bytes], at_once: bool):
    a.attack(state, [b"".join(frames)] if at_once else frames)


@each_state
@a_share
@given(said=st.lists(st.tuples(PLAUSIBLE, PAYLOADS), min_size=1, max_size=12))
def test_plausible_frames(state: Callable[[ClientBench], Peer], said: list[tuple[p.Record, bytes]]):
    """Whole performatives with fields of the right types, in any order."""
    a.attack(state, [frame(0, record, payload) for record, payload in said])


@pytest.mark.parametrize("state", [Peer, a.greeted])
@given(bodies=st.lists(composites(VALUES).map(types.encode) | st.binary(max_size=60), max_size=4))
def test_random_logins(state: Callable[[ClientBench], Peer], bodies: list[bytes]):
    header = SASL_HEADER if state is Peer else b""
    a.attack(state, [header + b"".join(frame_of(body, b"", 0, SASL, 2, None) for body in bodies)])


# A good client's words, mutated.

FRAMES_SAID: Final = transcript()
READ_SIZES: Final = st.integers(30, 1000)  # octets; in one read, nobody could have seen credit and windows


def move_to_channel(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">H", 6, (0, 1, 2, 3, 4, 63, 64, 65_535)[value % 8])


def give_size(frames: list[bytes], at: int, value: int) -> None:
    size = len(frames[at])
    wrong = (0, size - 1, size + 1, a.FRAME_MAX, a.FRAME_MAX + 1, 1 << 31)[value % 6]
    frames[at] = with_number(frames[at], ">I", 0, max(wrong, 0))


def give_kind(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">B", 5, (AMQP, SASL, 2, value % 256)[value % 4])


def give_offset(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">B", 4, (0, 1, 3, 255)[value % 4])


def give_descriptor(frames: list[bytes], at: int, value: int) -> None:
    """The fields of one performative, told as those of another."""
    frames[at] = with_number(frames[at], ">B", 10, CODES[value % len(CODES)] & 0xFF)


MUTATED: Final = mutations(
    {
        "another channel": move_to_channel,
        "another size": give_size,
        "another kind": give_kind,
        "another offset": give_offset,
        "another descriptor": give_descriptor,
    }
)


@given(changes=MUTATED, size=READ_SIZES)
@example(changes=[], size=30)
@example(changes=[], size=1000)
def test_mutated_conversations(changes: list[Mutation], size: int):
    a.attack(Peer, reads(mutated(FRAMES_SAID, changes), size))


@each_state
@a_share
@given(start=POSITIONS, count=st.integers(1, 30), changes=st.just([]) | MUTATED, size=READ_SIZES)
def test_parts_of_conversations(
    state: Callable[[ClientBench], Peer], start: int, count: int, changes: list[Mutation], size: int
):
    """The right words at the wrong time: some frames from the middle of a conversation, on channel 0."""
    at = start % len(FRAMES_SAID)
    frames = [on_channel_0(said) for said in FRAMES_SAID[at : at + count]]
    a.attack(state, reads(mutated(frames, changes), size))


def on_channel_0(said: bytes) -> bytes:
    return said if said in (HEADER, SASL_HEADER) else said[:6] + b"\0\0" + said[8:]


def test_the_conversation_is_a_good_one():
    """Mutations of what is refused from the start would test little."""
    peer = Peer(ClientBench(a.SETTINGS))
    for said in FRAMES_SAID:
        peer.send_bytes(said)
    ends = [p.decode(body, 0, len(body))[0] for _, _, body in a.frames_of(peer.take_bytes()) if body]
    assert ends[-1] == p.Close()
    assert [each for each in ends if isinstance(each, p.Detach | p.End) and each.error is not None] == []
    assert len(FRAMES_SAID) > 80


# Memory.


@pytest.mark.parametrize("kind", [AMQP, SASL])
@pytest.mark.parametrize("state", [a.greeted, a.opened, a.begun])
def test_a_frame_beyond_the_limit_is_refused_at_its_first_octets(
    state: Callable[[ClientBench], Peer], kind: int
):
    attacker = state(ClientBench(a.SETTINGS))
    attacker.send_bytes(pack(">IBBH", a.FRAME_MAX + 1, 2, kind, 0) + b"x")
    assert attacker.front.wire._tail_size == 0
    assert attacker.front.closed


def test_an_endless_frame_in_small_pieces_is_kept_up_to_its_size():
    attacker = a.begun(ClientBench(a.SETTINGS))
    attacker.send_bytes(pack(">IBBH", a.FRAME_MAX, 2, AMQP, 0))
    for _ in range(a.FRAME_MAX - 8):
        attacker.send_bytes(b"\x40")
        a.must_be_bounded(attacker)
    assert attacker.front.wire._tail_size == 0
    attacker.read()
    assert attacker.closed is not None
    assert attacker.closed.error is not None


def test_a_message_that_never_ends_is_kept_up_to_the_largest_one():
    """S172."""
    attacker = a.sending(ClientBench(a.SETTINGS))
    session = attacker.sessions[0]
    for _ in range(100):
        session.send(p.Transfer(handle=0, delivery_id=90, delivery_tag=b"endless", more=True), b"x" * 1000)
        a.must_be_bounded(attacker)
        attacker.read()
    [detach] = attacker.taken(p.Detach)
    assert detach.error.condition == p.LINK_MESSAGE_SIZE_EXCEEDED
    assert attacker.front.wire.unfinished.size == 0
