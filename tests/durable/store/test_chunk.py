"""The format of a chunk: what goes in comes out, and what was changed on the way does not."""

from __future__ import annotations

from array import array
from inspect import isdatadescriptor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError, Entries
from leveret.message import LOWEST, Death, Encoding, Facts, Message, Notes
from tests.harness.bench import ENCODING

NAMES = st.text(max_size=8) | st.just("\udcff") | st.just("\ud800x")
SECONDS = st.integers(0, 1 << 40)
ADDRESSES = st.tuples(NAMES, NAMES, NAMES)


@st.composite
def notes(draw: st.DrawFn) -> Notes:
    made = Notes()
    made.deaths = tuple(
        draw(
            st.lists(
                st.builds(
                    Death,
                    NAMES,
                    NAMES,
                    st.integers(1, 1 << 40),
                    SECONDS,
                    SECONDS,
                    NAMES,
                    st.lists(NAMES, max_size=2).map(tuple),
                    st.none() | SECONDS,
                ),
                max_size=2,
            )
        )
    )
    made.first_death, made.last_death = draw(st.none() | ADDRESSES), draw(st.none() | ADDRESSES)
    made.offset = draw(st.none() | st.integers(0, 1 << 60))
    made.reached = tuple(draw(st.lists(st.tuples(st.booleans(), NAMES), max_size=2)))
    made.is_repeat = draw(st.booleans())
    return made


FACTS = st.builds(
    Facts,
    st.booleans(),
    st.integers(0, 255),
    st.none() | st.integers(0, 1 << 40),
    st.none() | NAMES,
    st.none() | NAMES,
    st.lists(NAMES, max_size=2).map(tuple),
    st.lists(NAMES, max_size=2).map(tuple),
    st.booleans(),
)
MESSAGES = st.builds(
    Message,
    st.just(ENCODING),
    NAMES,
    NAMES,
    st.binary(max_size=8) | st.binary(min_size=2000, max_size=2001),
    st.binary(max_size=8),
    FACTS,
    st.none() | notes(),
)


@st.composite
def entries(draw: st.DrawFn) -> Entries:
    made = Entries(draw(st.integers(1, 1 << 60)), draw(st.booleans()))
    if signed := draw(st.booleans()):
        made.priorities = array("h")
    made.messages = draw(st.lists(MESSAGES, min_size=1, max_size=5))
    for record in range(len(made.messages)):
        for _ in range(draw(st.integers(1, 3))):
            made.records.append(record)
            made.queues.append(draw(st.integers(1, 3)))
            made.positions.append(draw(st.integers(0, 1 << 60)))
            made.priorities.append(draw(st.integers(-1 if signed else 0, 255)))
            made.expiries.append(draw(st.just(0) | SECONDS))
    return made


def encoding_of(name: str) -> Encoding | None:
    return ENCODING if name == ENCODING.name else None


def fields(thing: object) -> dict[str, object]:
    """What an object with slots has; compiled, they are known as something else."""
    return {name: getattr(thing, name) for name, kind in vars(type(thing)).items() if isdatadescriptor(kind)}


def told(message: Message) -> object:
    """All of a message that can be compared."""

    notes = message.notes
    said = None
    if notes is not None:
        deaths = [fields(death) for death in notes.deaths]
        addresses = (notes.first_death, notes.last_death)
        said = (deaths, *addresses, notes.offset, notes.reached, notes.is_repeat)
    own = (message.encoding, message.exchange, message.key, message.properties, message.body, message.size)
    return (*own, fields(message.facts), said)


def unpacked(made: chunk.Chunk) -> list[tuple[object, ...]]:
    columns = chunk.read(made.entries)
    return [
        (
            columns.numbers[place],
            columns.queues[place],
            columns.positions[place],
            columns.priorities[place],
            0 if columns.expiries is None else columns.expiries[place],
            told(
                chunk.message_of(
                    made.messages[columns.begin(record) : columns.ends[record]],
                    columns.crcs[record],
                    encoding_of,
                )
            ),
        )
        for place, record in enumerate(columns.records)
    ]


def expected(made: Entries) -> list[tuple[object, ...]]:
    rows = zip(made.queues, made.positions, made.priorities, made.expiries, made.records, strict=True)
    return [
        (made.first + at, queue, position, priority, expiry, told(made.messages[record]))
        for at, (queue, position, priority, expiry, record) in enumerate(rows)
    ]


@given(entries())
def test_what_is_packed_is_read_again(made: Entries) -> None:
    packed = chunk.pack(made)
    assert unpacked(packed) == expected(made)
    columns = chunk.read(packed.entries)
    assert columns.volatile is made.volatile
    assert [columns.sizes[r] for r in columns.records] == [made.messages[r].size for r in made.records]


@pytest.mark.parametrize("size", [4095, 4096, 4097, 9000, 1 << 17, (1 << 17) + 1])
def test_checksums_of_long_bodies_and_many_entries_are_taken_in_pieces_and_are_the_same(size: int) -> None:
    made = Entries(7)
    made.messages = [
        Message(ENCODING, "x", "k", b"p", (bytes([at]) + bytes(range(256)) * 600)[:size], Facts(True))
        for at in range(2)
    ]
    for at in range(600):  # their columns have more than 4 KiB
        made.records.append(at // 300)  # type: ignore[attr-defined]
        for column in (made.queues, made.positions, made.priorities, made.expiries):
            column.append(at % 3)
    assert unpacked(chunk.pack(made)) == expected(made)


@given(entries(), st.data())
def test_the_records_of_a_queue_lie_together(made: Entries, data: st.DataObject) -> None:
    columns = chunk.read(chunk.pack(made).entries)
    first_queue: dict[int, int] = {}
    for queue, record in zip(columns.queues, columns.records, strict=True):
        first_queue.setdefault(record, queue)
    by_record = [first_queue[record] for record in sorted(first_queue)]
    assert by_record == sorted(by_record)


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
def test_rewritten_chunks_keep_what_is_needed_under_its_numbers(made: list[Entries], data: st.DataObject):
    first = 1
    for each in made:
        each.first, each.volatile = first, False
        first += len(each) + data.draw(st.integers(0, 2))
    packed = [chunk.pack(each) for each in made]
    rows = [row for each in packed for row in unpacked(each)]
    needed = data.draw(st.sets(st.sampled_from([row[0] for row in rows]), min_size=1))
    parts = [
        (
            each.entries,
            each.messages,
            array("Q", [n for n in chunk.read(each.entries).numbers if n in needed]),
        )
        for each in packed
    ]
    again = chunk.rewritten(parts)
    assert again.first == packed[0].first
    assert unpacked(again) == [row for row in rows if row[0] in needed]
    kept = {row[0] for row in rows[1:] if row[0] in needed}
    if kept:
        twice = chunk.rewritten([(again.entries, again.messages, sorted(kept))])  # type: ignore[list-item]
        assert unpacked(twice) == [row for row in rows if row[0] in kept]


def test_only_chunks_with_priorities_below_0_have_signed_ones() -> None:
    made = one()
    assert not chunk.has_signed([chunk.pack(made)])
    more = Entries(2)
    more.priorities = array("h")
    for record, priority in enumerate((LOWEST, 255)):
        more.messages.append(Message(ENCODING, "", "q", b"", b"body"))
        for column, value in (
            (more.records, record),
            (more.queues, 0),
            (more.positions, 0),
            (more.priorities, priority),
            (more.expiries, 0),
        ):
            column.append(value)
    packed = chunk.pack(more)
    assert chunk.has_signed([chunk.pack(made), packed])
    assert list(chunk.read(packed.entries).priorities) == [LOWEST, 255]
    both = [(each.entries, each.messages) for each in (chunk.pack(made), packed)]
    merged = chunk.rewritten([(*both[0], [1]), (*both[1], [2])])
    assert chunk.has_signed([merged])
    assert list(chunk.read(merged.entries).priorities) == [0, LOWEST]
    merged = chunk.rewritten([(*both[0], [1]), (*both[1], [3])])
    assert not chunk.has_signed([merged])
    assert list(chunk.read(merged.entries).priorities) == [0, 255]


@given(entries(), st.data())
def test_a_changed_octet_or_a_cut_is_found(made: Entries, data: st.DataObject) -> None:
    packed = chunk.pack(made)
    right = unpacked(packed)
    at = data.draw(st.integers(0, len(packed.entries) + len(packed.messages) - 1))
    flip = data.draw(st.integers(1, 255))
    octets = bytearray(packed.entries + packed.messages)
    octets[at] ^= flip
    size = len(packed.entries)
    changed = chunk.Chunk(packed.first, bytes(octets[:size]), bytes(octets[size:]))
    with pytest.raises(DamagedError):
        unpacked(changed)
    with pytest.raises(DamagedError):
        chunk.read(packed.entries[: data.draw(st.integers(0, size - 1))])
    if packed.messages:
        cut = chunk.Chunk(packed.first, packed.entries, packed.messages[:-1])
        with pytest.raises(DamagedError):
            unpacked(cut)
    assert unpacked(packed) == right


def one() -> Entries:
    made = Entries(1)
    made.messages.append(Message(ENCODING, "", "q", b"", b"body"))
    for column in (made.records, made.queues, made.positions, made.priorities, made.expiries):
        column.append(0)
    return made


def test_a_message_of_a_protocol_that_is_not_there_is_not_given_out() -> None:
    packed = chunk.pack(one())
    checksum = chunk.read(packed.entries).crcs[0]
    chunk.parsed.clear()  # another test may have read one that looks the same
    with pytest.raises(DamagedError, match="fake"):
        chunk.message_of(packed.messages, checksum, lambda name: None)


def test_a_newer_format_is_refused() -> None:
    octets = bytearray(chunk.pack(one()).entries[:-4])
    octets[0] = chunk.VERSION + 1
    octets += chunk.CHECKSUM.pack(chunk.crc32(octets))
    with pytest.raises(DamagedError, match="format"):
        chunk.read(bytes(octets))
