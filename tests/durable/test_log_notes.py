"""What logs of the broker's own have besides: numbers under names, places in queues, and an end of what is needed."""

from __future__ import annotations

import pytest

from leveret.durable.segment_log import SegmentLog
from leveret.durable.store import block
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.queues.stream_log import Log, MemoryLog
from tests.durable.site import Site
from tests.harness.bench import ENCODING

DURABLE = Facts(durable=True)
LARGE = b"x" * 100_000


def message(body: bytes) -> Message:
    return Message(ENCODING, "", "k", b"p", body, DURABLE)


class EitherLog:
    """A log in memory, or in a store whose commits land at once."""

    def __init__(self, stored: bool) -> None:
        self.site = Site()
        self.log: Log = MemoryLog()
        if stored:
            self.site.queue("s", x_queue_type="stream")
            self.log = log_of(self.site)

    def append(self, *bodies: bytes, places: list[int] | None = None, wall: float = 1.0) -> None:
        """In one commit."""
        for at, body in enumerate(bodies):
            self.log.append(message(body), wall, None if places is None else places[at])
        self.site.settle()

    def blocks(self, offset: int = 0, octets: int = 1 << 30) -> list[block.Block]:
        got: list[bytes | Exception] = []
        self.log.raw(offset, self.log.committed, octets, got.append)
        assert isinstance(got[0], bytes)
        found, at = [], 0
        while at < len(got[0]):
            found.append(block.Block(got[0], at))
            at += found[-1].header.octets
        return found

    def segments(self) -> list[tuple[int, int]]:
        """First and next offset of each that is in the store."""
        return [(span.first, span.next) for span in self.site.store.spans()]


def log_of(site: Site) -> SegmentLog:
    log = site.host.queues["s"].log  # type: ignore[attr-defined]
    assert isinstance(log, SegmentLog)
    return log


@pytest.fixture(params=[False, True], ids=["memory", "store"])
def bench(request: pytest.FixtureRequest) -> EitherLog:
    return EitherLog(request.param)


# Places in queues.


def test_places_are_in_the_blocks(bench: EitherLog) -> None:
    places = [7, 1 << 40, 3]
    bench.append(b"a", b"b", b"c", places=places)
    (only,) = bench.blocks()
    assert only.positions is not None
    assert only.positions.tolist() == places


def test_messages_without_places_have_none(bench: EitherLog) -> None:
    bench.append(b"a", b"b")
    assert [each.positions for each in bench.blocks()] == [None]


def test_each_piece_has_the_places_of_its_own_messages(bench: EitherLog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(block, "BLOCK_MESSAGES", 3)
    for begin in (0, 5):
        bodies = [b"%d" % n for n in range(begin, begin + 5)]
        bench.append(*bodies, places=[*range(100 + begin, 105 + begin)], wall=1.0 + begin)
    found = bench.blocks()
    assert [each.header.count for each in found] == [3, 2, 3, 2]
    places = [place for each in found if each.positions is not None for place in each.positions.tolist()]
    assert places == [*range(100, 110)]
    (piece,) = bench.blocks(offset=4, octets=1)
    assert piece.positions is not None
    assert 104 in piece.positions.tolist()


def test_places_go_with_what_is_dropped() -> None:
    bench = EitherLog(stored=False)
    bench.append(*[b"x"] * 100, places=[*range(1000, 1100)])
    for until in (1, 13, 90):
        bench.log.drop_until(until)
        (only,) = bench.blocks(offset=until)
        assert only.positions is not None
        assert only.positions.tolist() == [*range(1000 + until, 1100)]


# Without offsets.


def test_messages_can_be_read_as_they_were(bench: EitherLog) -> None:
    bench.append(b"a")
    for noted in (True, False, True):
        found = bench.log.read(0, 10, 1000, noted)
        assert found is not None
        (read,) = found[1]
        assert (read.body, read.key, read.properties) == (b"a", "k", b"p")
        assert (None if read.notes is None else read.notes.offset) == (0 if noted else None)


# Numbers under names.


def test_numbers_stand_under_their_names(bench: EitherLog) -> None:
    bench.log.note("a", 5)
    bench.log.note("b", 0)
    bench.log.note("a", 3)  # it may fall
    bench.log.unnote("b")
    bench.log.unnote("unknown")
    assert bench.log.sequences == {"a": 3}


@pytest.mark.parametrize("clean", [True, False])
def test_numbers_outlive_the_node(clean: bool) -> None:
    bench = EitherLog(stored=True)
    for name, number in (("a", 1 << 62), ("ä/1", 0), ("gone", 1)):
        bench.log.note(name, number)
    bench.site.settle()
    bench.log.unnote("gone")
    bench.log.note("a", 4)
    after = bench.site.again(clean=clean)
    assert log_of(after).sequences == {"a": 4, "ä/1": 0}
    assert log_of(after.again()).sequences == {"a": 4, "ä/1": 0}


def test_a_number_is_on_disk_with_what_was_done_beside_it_or_not_at_all() -> None:
    bench = EitherLog(stored=True)
    bench.site.settle()
    bench.site.store.held = True
    bench.log.note("n", 1)
    bench.append(b"a")
    for landed in (False, True):
        if landed:
            bench.site.store.land()
        log = log_of(Site(bench.site.store.reopened()))
        assert (log.sequences, log.next) == (({"n": 1}, 1) if landed else ({}, 0))


# What is needed no more.


def test_what_is_dropped_in_memory_goes_message_by_message() -> None:
    bench = EitherLog(stored=False)
    bench.append(b"a", b"bb", b"ccc")
    bench.log.drop_until(2)
    assert (bench.log.first, bench.log.next, bench.log.messages, bench.log.octets) == (2, 3, 1, 3)
    bench.log.drop_until(99)
    assert (bench.log.first, bench.log.next, bench.log.messages, bench.log.octets) == (3, 3, 0, 0)
    bench.append(b"d")
    assert [offset for offset, _ in bench.log.look()] == [3]


def test_a_segment_goes_when_all_of_it_is_needed_no_more() -> None:
    bench = EitherLog(stored=True)
    log_of(bench.site)._segment_octets = 2 * len(LARGE)
    for _ in range(6):
        bench.append(LARGE)
    segments = bench.segments()
    assert len(segments) > 2
    bench.log.drop_until(segments[1][1] - 1)
    bench.site.settle()
    assert bench.segments() == segments[1:]
    bench.log.drop_until(segments[1][1])
    bench.site.settle()
    assert bench.segments() == segments[2:]
    assert bench.log.first == segments[2][0]


def test_the_last_segment_goes_when_the_next_one_begins() -> None:
    bench = EitherLog(stored=True)
    bench.append(b"a", b"b")
    bench.log.drop_until(2)
    bench.site.settle()
    assert bench.segments() == [(0, 2)], "it says which offset is the next"
    assert log_of(bench.site.again()).next == 2
    bench.append(b"c")
    assert bench.segments() == [(0, 2), (2, 3)]
    bench.log.drop_until(2)
    bench.site.settle()
    assert bench.segments() == [(2, 3)]


def test_what_is_not_on_disk_yet_is_not_dropped() -> None:
    site = Site(MemoryStore(held=True))
    site.queue("s", x_queue_type="stream")
    while site.store.flying is not None:
        site.store.land()
    log = log_of(site)
    log.append(message(b"a"), 1.0)
    site.settle()
    log.drop_until(1)
    log.append(message(b"b"), 1.0)
    while site.store.flying is not None:
        site.store.land()
    assert [(span.first, span.next) for span in site.store.spans()] in ([(0, 2)], [(0, 1), (1, 2)])
    assert [each.body for _, each in log.look()] == [b"a", b"b"]


def test_places_of_a_commit_go_into_its_own_blocks() -> None:
    """What arrives while a commit is in flight has its places in the next one."""
    site = Site(MemoryStore(held=True))
    site.queue("s", x_queue_type="stream")
    while site.store.flying is not None:
        site.store.land()
    log = log_of(site)
    for body, place in ((b"a", 5), (b"b", 6)):
        log.append(message(body), 1.0, place)
        site.settle()
    while site.store.flying is not None:
        site.store.land()
    got: list[bytes | Exception] = []
    log.raw(0, 2, 1 << 20, got.append)
    assert isinstance(got[0], bytes)
    first = block.Block(got[0])
    second = block.Block(got[0], first.header.octets)
    assert [None if each.positions is None else each.positions.tolist() for each in (first, second)] == [
        [5],
        [6],
    ]
