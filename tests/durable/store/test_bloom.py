"""Bloom filters of blocks: no wanted message is ever missed, and what has none is not read from disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.durable.segment_log import SegmentLog
from leveret.durable.store import block, segment
from leveret.durable.store.contract import Append, DamagedError, Span
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.queues.stream import StreamQueue
from leveret.selectors.bloom import FILTER_MAX, FILTER_OCTETS, BloomQuery, filter_of
from leveret.values import Value
from tests.core.fakes import FakeConsumer
from tests.durable.site import Site, land_all
from tests.durable.store.test_segment import OneSegment
from tests.features.leases.leased import settle_down

ENCODINGS = {ENCODING.name: ENCODING}.get
VALUES = st.none() | st.text(min_size=1, max_size=5)
SIZES = st.integers(FILTER_OCTETS, FILTER_MAX)


def valued(value: str | None, body: bytes = b"", key: str = "s") -> Message:
    """A message with a filter value, or with headers and none."""
    headers: dict[str, str] = {"n": "x"} if value is None else {"x-stream-filter-value": value}
    facts = Facts(durable=True, has_headers=True)
    return Message(ENCODING, "", key, BasicProperties(headers=headers).encode(), body, facts)


def packed(*values: str | None, first: int = 0, size: int = 1, octets: int = FILTER_OCTETS) -> bytes:
    append = Append(
        1, 0, first, 1000, [valued(value, b"%d." % n * size) for n, value in enumerate(values, first)]
    )
    append.filter_octets = octets
    return block.pack(append)


# The bits.


@given(st.lists(VALUES), VALUES, SIZES)
def test_what_is_in_a_block_is_never_missed(others: list[str | None], value: str | None, octets: int) -> None:
    bits = filter_of([*others, value], octets)
    assert len(bits) == octets
    assert BloomQuery([value]).may_be_in(bits)
    assert BloomQuery(["never there", value]).may_be_in(bits)


@pytest.mark.parametrize(("values", "octets", "most"), [(10, 16, 0.01), (20, 16, 0.08), (100, 255, 0.01)])
def test_few_blocks_are_read_in_vain(values: int, octets: int, most: float) -> None:
    wanted = BloomQuery(["wanted"])
    blocks = [filter_of((f"{number} {n}" for n in range(values)), octets) for number in range(2000)]
    assert sum(map(wanted.may_be_in, blocks)) <= most * len(blocks)


def test_a_block_without_a_filter_may_have_anything() -> None:
    assert BloomQuery(["a"]).may_be_in(b"")


def test_messages_without_a_value_are_wanted_by_themselves() -> None:
    assert not BloomQuery([None]).may_be_in(filter_of(["a", "b"], 16))
    assert BloomQuery(["z", None]).may_be_in(filter_of(["a", None], 16))


# The block.


@given(st.lists(VALUES, min_size=1, max_size=5), SIZES)
def test_a_block_with_a_filter_is_read_again(values: list[str | None], octets: int) -> None:
    read = packed(*values, first=7, octets=octets)
    found = block.Block(read)
    has_values = any(value is not None for value in values)
    assert block.filter_at(read, 0, found.header) == (filter_of(values, octets) if has_values else b"")
    bodies = [each.body for each in block.messages_of(found, ENCODINGS)]
    assert bodies == [b"%d." % n for n in range(7, 7 + len(values))]


def test_a_block_without_values_is_what_it_was_before_there_were_filters() -> None:
    append = Append(1, 0, 0, 1000, [valued(None)])
    before = block.pack(append)
    append.filter_octets = FILTER_OCTETS
    assert block.pack(append) == before
    assert before[4] == 1  # the version


def test_an_empty_value_or_one_that_is_no_text_is_none() -> None:
    for value in ("", 7, True, ["a"]):
        properties = BasicProperties(headers={"x-stream-filter-value": value}).encode()  # type: ignore[dict-item]
        message = Message(ENCODING, "", "s", properties, b"", Facts(has_headers=True))
        append = Append(1, 0, 0, 1000, [message])
        append.filter_octets = FILTER_OCTETS
        read = block.pack(append)
        assert block.filter_at(read, 0, block.header(read)) == filter_of([None], FILTER_OCTETS)


def test_every_changed_byte_of_a_block_with_a_filter_is_found() -> None:
    octets = packed("a", "b", None)
    for at in range(len(octets)):
        changed = bytearray(octets)
        changed[at] ^= 0x41
        with pytest.raises(DamagedError):
            block.Block(changed)


def test_a_filter_is_not_believed_before_its_checksum_matches() -> None:
    octets = bytearray(packed("a"))
    head = block.header(octets)
    octets[block.HEADER_OCTETS] ^= 1
    with pytest.raises(DamagedError, match="filter does not fit"):
        block.filter_at(octets, 0, head)


# The search through a segment.


def one_segment(*blocks: tuple[str | None, ...], size: int = 1) -> OneSegment:
    octets, first = b"", 0
    for values in blocks:
        octets += packed(*values, first=first, size=size)
        first += len(values)
    return OneSegment(Span(1, 0, first, len(octets), 0, 0, 0), octets)


@given(
    st.lists(
        st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=3), min_size=1, max_size=9
    ),
    st.integers(0, 30),
    st.sampled_from([1, 2000]),
)
def test_a_search_passes_over_nothing_that_is_wanted(
    blocks: list[list[str | None]], offset: int, size: int
) -> None:
    reader = one_segment(*map(tuple, blocks), size=size)
    values = [value for each in blocks for value in each]
    wanted = BloomQuery(["b"])
    while offset < len(values):
        place = reader.wanted(1, 0, offset, len(values), wanted)
        assert "b" not in values[offset : place.first]
        assert place.first > offset or place.octets
        assert place.next <= len(values)
        offset = place.next if place.octets else place.first


def test_what_is_not_wanted_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 blocks of 60 KB, of which two have a wanted message."""
    blocks = [("b",) if number in (70, 71) else ("a", None, "c") for number in range(100)]
    reader = one_segment(*blocks, size=20_000)
    read: list[int] = []

    def counted(at: int, length: int) -> bytes:
        read.append(length)
        return reader.octets[at : at + length]

    monkeypatch.setattr(reader, "read", counted)
    place = reader.wanted(1, 0, 0, reader.span.next, BloomQuery(["b"]))
    octets = reader.blocks(1, 0, place.first, place.next, place.octets)
    found = list(range(*block.range_of(octets)))
    assert found == [210, 211]
    assert sum(read) < 2 * 100 * segment.PEEK_OCTETS + 3 * place.octets < len(reader.octets) / 10


def test_a_search_looks_at_so_many_blocks_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "BLOCKS", 5)
    reader = one_segment(*[("a",)] * 12, ("b",))
    places = []
    offset = 0
    while True:
        place = reader.wanted(1, 0, offset, 13, BloomQuery(["b"]))
        places.append((place.first, bool(place.octets)))
        if place.octets or place.first == 13:
            break
        offset = place.first
    assert places == [(5, False), (10, False), (12, True)]


def test_a_damaged_filter_is_a_hole_of_one_block() -> None:
    reader = one_segment(("a",), ("a",), ("b",))
    at = block.header(reader.octets).octets + block.HEADER_OCTETS
    reader.octets = reader.octets[:at] + bytes([reader.octets[at] ^ 1]) + reader.octets[at + 1 :]
    place = reader.wanted(1, 0, 0, 3, BloomQuery(["b"]))
    assert (place.first, place.octets) == (1, 0)
    with pytest.raises(DamagedError, match="filter") as damage:
        reader.wanted(1, 0, 1, 3, BloomQuery(["b"]))
    assert damage.value.next == 2


# Streams on disk.


class FilteredReading(RuleBasedStateMachine):
    """Commits of messages with values, and readers that want some, with nothing in memory, over starts."""

    @initialize(filter_size=st.sampled_from([None, 16, 255]))
    def begin(self, filter_size: int | None) -> None:
        self.arguments: dict[str, Value] = {"x-queue-type": "stream"}
        if filter_size is not None:
            self.arguments["x-stream-filter-size-bytes"] = filter_size
        self.values: list[str | None] = []
        self.use(Site())

    def use(self, site: Site) -> None:
        self.site = site
        site.journal.cache.budget = 0
        stream = site.host.declare_queue("s", durable=True, arguments=self.arguments)
        assert isinstance(stream, StreamQueue)
        self.stream = stream
        self.readers: list[tuple[FakeConsumer, int, set[str | None]]] = []

    def settle(self) -> None:
        for _ in range(3):  # a search goes on in portions
            self.site.advance(1)
            settle_down(self.site.broker)

    @rule(values=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=6))
    def publish(self, values: list[str | None]) -> None:
        for value in values:
            self.stream.push(valued(value, b"%d" % len(self.values)))
            self.values.append(value)
        self.settle()

    @rule(
        at=st.integers(0, 20), asked=st.sampled_from(["a", ["b"], ["b", "z"], "z"]), unfiltered=st.booleans()
    )
    def read(self, at: int, asked: Value, unfiltered: bool) -> None:
        arguments: dict[str, Value] = {"x-stream-offset": at, "x-stream-filter": asked}
        if unfiltered:
            arguments["x-stream-match-unfiltered"] = True
        wanted = {str(each) for each in (asked if isinstance(asked, list) else [asked])}
        for each, _, _ in self.readers:
            each.leave()  # where readings take no time, two readers would push each other out of the cache for ever
        self.readers.clear()
        consumer = FakeConsumer(self.stream, credit=1000, arguments=arguments)
        self.settle()
        begin = min(at, len(self.values))
        self.readers.append((consumer, begin, {*wanted, None} if unfiltered else {*wanted}))

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        self.use(self.site.again(clean=clean))

    @invariant()
    def readers_have_what_they_want(self) -> None:
        for consumer, begin, wanted in self.readers:
            expected = [n for n in range(begin, len(self.values)) if self.values[n] in wanted]
            assert [delivery.position for delivery in consumer.got] == expected
            assert [delivery.message.body for delivery in consumer.got] == [b"%d" % n for n in expected]


TestFilteredReading = FilteredReading.TestCase


def test_blocks_that_are_not_wanted_are_not_read_back_into_memory() -> None:
    site = Site()
    arguments: dict[str, Value] = {"x-queue-type": "stream"}
    stream = site.host.declare_queue("s", durable=True, arguments=arguments)
    assert isinstance(stream, StreamQueue)
    for number in range(40):
        for _ in range(5):
            stream.push(valued("b" if number == 30 else "a"))
        settle_down(site.broker)
    site = site.again()
    stream = site.host.queues["s"]  # type: ignore[assignment]
    log = stream.log
    assert isinstance(log, SegmentLog)
    consumer = FakeConsumer(
        stream, credit=100, arguments={"x-stream-offset": "first", "x-stream-filter": "b"}
    )
    settle_down(site.broker)
    assert [delivery.position for delivery in consumer.got] == [150, 151, 152, 153, 154]
    assert sum(len(run.messages) for run in site.journal.cache._runs) == 5


def test_blocks_from_before_there_were_filters_are_read() -> None:
    """As an older broker would have written them: a log that knows no size of filters."""
    site = Site()
    stream = site.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    assert isinstance(stream, StreamQueue)
    assert isinstance(stream.log, SegmentLog)
    stream.log._filter_octets = 0
    for value in ("a", "b", None):
        stream.push(valued(value))
        settle_down(site.broker)
    site = site.again()
    consumer = FakeConsumer(
        site.host.queues["s"], credit=9, arguments={"x-stream-offset": 0, "x-stream-filter": "b"}
    )
    settle_down(site.broker)
    assert [delivery.position for delivery in consumer.got] == [1]


def test_a_reader_that_leaves_during_a_search_gets_nothing() -> None:
    site = Site(MemoryStore(held=True))
    land_all(site)
    stream = site.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    stream.push(valued("a"))
    land_all(site)
    consumer = FakeConsumer(stream, credit=9, arguments={"x-stream-offset": 0, "x-stream-filter": "a"})
    consumer.leave()
    land_all(site)
    assert not consumer.got
