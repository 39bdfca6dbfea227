"""What every store promises, in memory, SQLite or PostgreSQL: `durable/store/contract.py` as tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError, NoSpaceError, Reader, Span, StoreError
from leveret.durable.store.memory import MemoryStore
from leveret.durable.store.redo_policy import REDO_OCTETS
from tests.durable.store.shelf import Found, Shelf, append, bodies_in, entries

BITS = b"\5\0"


@pytest.fixture(params=["memory", "sqlite", "logged", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "memory":
        made = Shelf(MemoryStore())
    elif request.param in ("sqlite", "logged"):
        made = Shelf.of(tmp_path / "data", REDO_OCTETS if request.param == "logged" else 0)
    else:
        made = Shelf.of_database(request.getfixturevalue("database"), tmp_path / "copy")
    yield made
    made.store.close(None)


def kept(first: int, *bodies: bytes) -> tuple[bytes, int, bytes]:
    """A chunk as it is found, none of it settled."""
    packed = chunk.pack(entries(first, *bodies))
    return packed.entries, len(packed.messages), b""


def octets_of(reader: Reader, number: int) -> bytes:
    """All messages of the chunk that has an entry."""
    first, columns = reader.find(number)
    return reader.messages(first, 0, chunk.read(columns).ends[-1])


# What is kept.


def test_a_new_store_is_empty_and_clean(shelf: Shelf):
    assert shelf.found() == Found([], {}, {})
    assert shelf.store.was_clean
    assert shelf.store.damage == []


def test_a_commit_is_found_at_the_next_start_however_the_store_ended(shelf: Shelf):
    shelf.start()
    said = shelf.commit(
        objects={"a": "1"}, chunks=[entries(1, b"x", b"y"), entries(3, b"z")], settled={1: BITS}, marks={2: 7}
    )
    assert said == 1
    columns, octets, _ = kept(1, b"x", b"y")
    expected = Found([("a", "1")], {1: (columns, octets, BITS), 3: kept(3, b"z")}, {2: 7})
    shelf = shelf.killed()
    assert shelf.found() == expected
    shelf = shelf.start().given_up()
    assert shelf.found() == expected
    shelf = shelf.start().closed()
    assert shelf.found() == expected
    shelf.store.close(None)


def test_only_a_proper_close_is_clean(shelf: Shelf):
    shelf = shelf.start().given_up()
    assert not shelf.store.was_clean
    shelf = shelf.start().closed()
    assert shelf.store.was_clean
    shelf = shelf.given_up()
    assert shelf.store.was_clean, "one that was not started has changed nothing"
    shelf.start()
    shelf.commit(objects={"a": "1"})
    shelf = shelf.killed()
    assert not shelf.store.was_clean
    shelf.store.close(None)


def test_a_commit_is_kept_at_the_close_even_if_one_is_in_flight(shelf: Shelf):
    shelf.start()
    shelf.store.append(shelf.new_commit(chunks=[entries(1, b"x")]))
    shelf = shelf.closed(objects={"a": "1"}, marks={1: 2}, settled={1: BITS})
    assert shelf.found() == Found([("a", "1")], {1: (*kept(1, b"x")[:2], BITS)}, {1: 2})
    shelf.store.close(None)


def test_objects_are_in_the_order_in_which_they_first_came(shelf: Shelf):
    shelf.start()
    shelf.commit(objects={"e": "0", "b": "1", "a": "2", "c": "3"})
    shelf.commit(objects={"a": "4", "d": "5"})
    shelf.commit(objects={"b": None, "absent": None})
    shelf.commit(objects={"b": "ä\N{SNOWMAN}\0\n"})
    shelf = shelf.killed()
    assert shelf.found().objects == [
        ("e", "0"),
        ("a", "4"),
        ("c", "3"),
        ("d", "5"),
        ("b", "ä\N{SNOWMAN}\0\n"),
    ]
    shelf.store.close(None)


def test_bits_take_the_place_of_earlier_ones(shelf: Shelf):
    shelf.start()
    shelf.commit(chunks=[entries(1, *[b"x"] * 9), entries(10, b"y")])
    shelf.commit(settled={1: b"\1\0"})
    shelf.commit(settled={1: b"\3\1", 10: b"\0"})
    shelf = shelf.killed()
    assert {first: bits for first, (_, _, bits) in shelf.found().chunks.items()} == {1: b"\3\1", 10: b"\0"}
    shelf.store.close(None)


def test_a_chunk_is_dropped_with_its_bits_and_the_marks_of_its_entries(shelf: Shelf):
    shelf.start()
    shelf.commit(
        chunks=[entries(1, b"x"), entries(2, b"x", b"y"), entries(4, b"z")],
        settled={1: BITS, 2: BITS, 4: BITS},
        marks={1: 1, 2: 2, 3: 3, 4: 4},
    )
    shelf.commit(dropped=[2])
    shelf.commit(chunks=[entries(5, b"new")], dropped=[77])
    shelf = shelf.killed()
    found = shelf.found()
    assert [(first, bits) for first, (_, _, bits) in found.chunks.items()] == [(1, BITS), (4, BITS), (5, b"")]
    assert found.marks == {1: 1, 4: 4}
    shelf.start().commit(dropped=[1, 4, 5])
    shelf = shelf.killed()
    assert shelf.found() == Found([], {}, {})
    shelf.store.close(None)


def test_several_chunks_become_one_under_the_number_of_the_first(shelf: Shelf):
    shelf.start()
    shelf.commit(
        chunks=[entries(1, b"a", b"b"), entries(3, b"c"), entries(4, b"d")], settled={1: b"\1"}, marks={2: 9}
    )
    parts = [chunk.pack(entries(1, b"a", b"b")), chunk.pack(entries(3, b"c"))]
    merged = chunk.rewritten(
        [(parts[0].entries, parts[0].messages, [2]), (parts[1].entries, parts[1].messages, [3])]
    )
    shelf.commit(replaced=[([1, 3], merged)], settled={1: b"\2"})
    for number in (2, 3):
        assert shelf.read(lambda reader, number=number: octets_of(reader, number)) == merged.messages  # type: ignore[misc]
    shelf = shelf.killed()
    found = shelf.found()
    assert found.chunks == {1: (merged.entries, len(merged.messages), b"\2"), 4: kept(4, b"d")}
    assert found.marks == {2: 9}
    shelf.store.close(None)


def test_a_commit_may_do_everything_at_once(shelf: Shelf):
    """What goes, what takes its place, what is new; then what is said of what is there."""
    shelf.start()
    old = [entries(number, b"%d" % number) for number in range(1, 8)]
    shelf.commit(chunks=old, settled={1: BITS, 3: BITS, 5: BITS}, marks={2: 1, 5: 1})
    whole = [chunk.pack(each) for each in old]
    merged = [
        chunk.rewritten([(each.entries, each.messages, [each.first]) for each in part])
        for part in (whole[0:2], whole[2:4])
    ]
    shelf.commit(
        dropped=[5, 7],
        replaced=[([1, 2], merged[0]), ([3, 4], merged[1])],
        chunks=[entries(8, b"8"), entries(9, b"9")],
        settled={1: b"\1", 3: b"\2", 8: b"\4"},
        marks={3: 3, 9: 9},
    )
    shelf = shelf.killed()
    found = shelf.found()
    assert {first: bits for first, (_, _, bits) in found.chunks.items()} == {
        1: b"\1", 3: b"\2", 6: b"", 8: b"\4", 9: b"",
    }  # fmt: skip
    assert [found.chunks[first][0] for first in (1, 3)] == [each.entries for each in merged]
    assert found.marks == {2: 1, 3: 3, 9: 9}
    shelf.store.close(None)


def test_commits_are_reported_in_order_each_once(shelf: Shelf):
    shelf.start()
    for number in range(1, 30):
        assert shelf.commit(objects={str(number): "x"}, chunks=[entries(number, b"x")]) == number
    assert shelf.told == list(range(1, 30))
    assert shelf.store.stats().commits == 29


# Reading.


def test_a_slice_of_a_chunk_is_read(shelf: Shelf):
    shelf.start()
    body = bytes(range(256)) * 4096
    shelf.commit(chunks=[entries(1, b"first"), entries(2, body, body[::-1]), entries(4, b"last")])
    packed = chunk.pack(entries(2, body, body[::-1]))
    with shelf.store.reader() as reader:
        assert reader.find(3) == (2, packed.entries)
        for start, length in ((0, 1), (700_000, 20), (1_000_000, 600_000), (0, len(packed.messages))):
            assert reader.messages(2, start, length) == packed.messages[start : start + length]
    assert shelf.read(lambda reader: octets_of(reader, 3)) == packed.messages


def test_an_entry_is_in_the_chunk_with_the_greatest_first_number_that_is_not_above_it(shelf: Shelf):
    shelf.start()
    shelf.commit(chunks=[entries(5, b"x"), entries(9, b"y")])
    with shelf.store.reader() as reader:
        assert [reader.find(number)[0] for number in (5, 6, 8, 9, 1000)] == [5, 5, 5, 9, 9]
        with pytest.raises(DamagedError, match="no chunk has entry 4"):
            reader.find(4)


def test_what_is_not_there_cannot_be_read(shelf: Shelf):
    shelf.start()
    shelf.commit(chunks=[entries(1, b"x")])
    (size,) = chunk.read(chunk.pack(entries(1, b"x")).entries).ends
    with shelf.store.reader() as reader:
        for first, start, length in ((1, 0, size + 1), (1, size + 1, 1), (2, 0, 1)):
            with pytest.raises(DamagedError):
                reader.messages(first, start, length)
        assert len(reader.messages(1, 0, size)) == size


def test_what_a_reading_job_raises_is_handed_on(shelf: Shelf):
    shelf.start()

    def job(reader: Reader) -> None:
        raise DamagedError("as it happens")

    assert str(shelf.read(job)) == "as it happens"
    assert isinstance(shelf.read(lambda reader: reader.find(1)), DamagedError)
    assert shelf.read(lambda reader: 7) == 7


def test_a_commit_can_be_read_as_soon_as_it_is_durable(shelf: Shelf):
    shelf.start()
    for number in range(1, 40):
        shelf.commit(chunks=[entries(number, b"%d" % number)])
        with shelf.store.reader() as reader:
            assert octets_of(reader, number).endswith(b"%d" % number)


# Streams.


def in_blocks(shelf: Shelf, *where: int) -> list[tuple[int, bytes]]:
    """What the reading thread finds: stream, segment, offset, until, octets."""
    found = shelf.read(lambda reader: reader.blocks(*where))
    assert isinstance(found, bytes), found
    return bodies_in(found)


def test_spans_say_what_is_in_segments_at_the_next_start_however_the_store_ended(shelf: Shelf):
    shelf.start()
    shelf.commit(
        appends=[append(2, 0, b"a", b"bc"), append(1, 7, b"d", segment=7), append(2, 2, b"e", arrived=1500)]
    )
    shelf.commit(
        appends=[append(1, 8, b"", segment=7, arrived=3000), append(2, 3, b"f", segment=3, arrived=900)]
    )
    sizes = [len(shelf.read(lambda reader, at=at: reader.blocks(*at, 100, 1 << 20)))  # type: ignore[arg-type, misc]
             for at in ((1, 7, 7), (2, 0, 0), (2, 3, 3))]  # fmt: skip
    expected = [
        Span(1, 7, 9, sizes[0], 1, 1000, 3000),
        Span(2, 0, 3, sizes[1], 4, 1000, 1500),
        Span(2, 3, 4, sizes[2], 1, 900, 900),
    ]
    shelf = shelf.killed()
    assert list(shelf.store.spans()) == expected
    shelf = shelf.start().given_up()
    assert list(shelf.store.spans()) == expected
    shelf = shelf.start().closed()
    assert list(shelf.store.spans()) == expected
    assert shelf.store.was_clean
    assert shelf.store.damage == []
    assert in_blocks(shelf.start(), 2, 0, 0, 3, 1 << 20) == [(0, b"a"), (1, b"bc"), (2, b"e")]
    shelf.store.close(None)


def test_what_is_appended_at_the_close_is_kept(shelf: Shelf):
    shelf.start().commit(appends=[append(1, 0, b"a")])
    shelf = shelf.closed(appends=[append(1, 1, b"b")], producers={(1, "p"): 4})
    assert [span.next for span in shelf.store.spans()] == [2]
    assert list(shelf.store.producers()) == [(1, "p", 4)]
    shelf.store.close(None)


def test_whole_blocks_are_read_from_an_offset_up_to_another(shelf: Shelf):
    shelf.start()
    for first in range(0, 12, 3):
        shelf.commit(appends=[append(1, first, *(b"%d" % n for n in range(first, first + 3)))])
    whole = 1 << 20
    every = [(n, b"%d" % n) for n in range(12)]
    assert in_blocks(shelf, 1, 0, 0, 12, whole) == every
    assert in_blocks(shelf, 1, 0, 5, 12, whole) == every[3:], "from the block that has it"
    assert in_blocks(shelf, 1, 0, 6, 12, whole) == every[6:]
    assert in_blocks(shelf, 1, 0, 0, 6, whole) == every[:6], "none that begins there"
    assert in_blocks(shelf, 1, 0, 0, 7, whole) == every[:9]
    assert in_blocks(shelf, 1, 0, 11, 100, whole) == every[9:]
    for beyond in (12, 13):
        assert in_blocks(shelf, 1, 0, beyond, 100, whole) == []
    assert in_blocks(shelf, 1, 0, 4, 4, whole) == []


def test_as_many_blocks_are_read_as_fit_but_one_at_least(shelf: Shelf):
    shelf.start()
    shelf.commit(appends=[append(1, 0, b"x" * 1000), append(1, 1, b"y" * 1000), append(1, 2, b"z" * 1000)])
    (span,) = shelf.store.spans()
    size = span.octets // 3
    for octets, many in ((0, 1), (1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size - 1, 2), (3 * size, 3)):
        assert len(in_blocks(shelf, 1, 0, 0, 3, octets)) == many, octets


def test_a_large_commit_is_several_blocks(shelf: Shelf):
    shelf.start()
    bodies = [bytes([n]) * 300_000 for n in range(10)]
    shelf.commit(appends=[append(1, 0, *bodies)])
    first = in_blocks(shelf, 1, 0, 0, 10, 1)
    assert 0 < len(first) < 5
    assert first + in_blocks(shelf, 1, 0, len(first), 10, 1 << 30) == list(enumerate(bodies))


def test_the_first_block_of_a_time_is_found(shelf: Shelf):
    """Clocks may go back: it is the first in the order of offsets."""
    shelf.start()
    for first, arrived in ((0, 1000), (1, 2000), (2, 1500), (3, 3000)):
        shelf.commit(appends=[append(1, first, b"x" * 70_000, arrived=arrived)])
    for arrived, offset in ((0, 0), (1000, 0), (1001, 1), (1600, 1), (2000, 1), (2001, 3), (3000, 3)):
        assert shelf.read(lambda reader, at=arrived: reader.offset_since(1, 0, 4, at)) == offset  # type: ignore[misc]
    assert shelf.read(lambda reader: reader.offset_since(1, 0, 4, 3001)) == 4
    assert shelf.read(lambda reader: reader.offset_since(1, 0, 2, 3000)) == 2
    with shelf.store.reader() as reader:
        assert reader.offset_since(1, 0, 4, 1001) == 1


def test_a_segment_that_is_cut_is_gone_and_the_others_are_there(shelf: Shelf):
    shelf.start()
    shelf.commit(appends=[append(1, n, b"%d" % n, segment=n) for n in range(3)] + [append(2, 0, b"other")])
    shelf.commit(cut=[(1, 0)], appends=[append(1, 3, b"3", segment=2)])
    error = shelf.read(lambda reader: reader.blocks(1, 0, 0, 9, 1))
    assert isinstance(error, DamagedError)
    assert error.next == 9, "there may be something behind it"
    assert isinstance(shelf.read(lambda reader: reader.offset_since(1, 0, 9, 0)), DamagedError)
    assert in_blocks(shelf, 1, 2, 2, 9, 1 << 20) == [(2, b"2"), (3, b"3")]
    shelf = shelf.killed()
    assert [(span.stream, span.first, span.next) for span in shelf.store.spans()] == [
        (1, 1, 2), (1, 2, 4), (2, 0, 1),
    ]  # fmt: skip
    shelf.store.close(None)


def test_a_stream_that_ends_takes_all_it_has_with_it(shelf: Shelf):
    shelf.start()
    shelf.commit(appends=[append(n, 0, b"x") for n in (1, 2, 3)], producers={(1, "p"): 1, (2, "p"): 2})
    shelf.commit(ended=[1, 3], appends=[append(1, 1, b"late"), append(4, 0, b"y")], producers={(1, "q"): 3})
    shelf = shelf.killed()
    assert [span.stream for span in shelf.store.spans()] == [2, 4]
    assert list(shelf.store.producers()) == [(2, "p", 2)]
    shelf.store.close(None)


def test_a_segment_may_begin_and_go_within_a_commit(shelf: Shelf):
    shelf.start()
    shelf.commit(appends=[append(1, 0, b"x"), append(1, 1, b"y", segment=1)], cut=[(1, 0)])
    shelf = shelf.killed()
    assert [(span.first, span.next) for span in shelf.store.spans()] == [(1, 2)]
    assert in_blocks(shelf.start(), 1, 1, 1, 2, 1) == [(1, b"y")]
    shelf.store.close(None)


def test_a_segment_may_begin_with_nothing_in_it(shelf: Shelf):
    shelf.start()
    shelf.commit(appends=[append(1, 5, segment=5)])
    shelf = shelf.killed()
    assert list(shelf.store.spans()) == [Span(1, 5, 5, 0, 0, 1000, 1000)]
    assert shelf.store.damage == []
    shelf.start().commit(appends=[append(1, 5, b"x", segment=5, arrived=1200)])
    assert in_blocks(shelf, 1, 5, 5, 6, 1) == [(5, b"x")]
    shelf.store.close(None)


def test_the_last_numbers_of_producers_are_kept(shelf: Shelf):
    shelf.start()
    names = ["a", "", "ä\0\n", "\udc80", "x" * 255]
    shelf.commit(producers={(1, name): number for number, name in enumerate(names)} | {(2, "a"): 7})
    shelf.commit(producers={(1, "a"): (1 << 63) - 1, (1, ""): -1, (2, "unknown"): -1})
    shelf = shelf.killed()
    found = {(stream, name): last for stream, name, last in shelf.store.producers()}
    assert found == {
        (1, "a"): (1 << 63) - 1, (1, "ä\0\n"): 2, (1, "\udc80"): 3, (1, "x" * 255): 4, (2, "a"): 7,
    }  # fmt: skip
    shelf.start().commit(producers={(1, "a"): -1, (2, "b"): 1})
    shelf = shelf.killed()
    assert {(stream, name) for stream, name, _ in shelf.store.producers()} == {*found, (2, "b")} - {(1, "a")}
    shelf.store.close(None)


def test_streams_are_counted(shelf: Shelf):
    shelf.start()
    shelf.commit(appends=[append(1, 0, b"x"), append(1, 1, b"y", segment=1), append(2, 0, b"z")])
    stats = shelf.store.stats()
    assert (stats.streams, stats.segments) == (2, 3)
    assert stats.segment_octets == sum(span.octets for span in shelf.store.spans()) > 0


# Looking after it.


def test_a_store_tells_how_much_it_holds(shelf: Shelf):
    shelf.start()
    shelf.commit(objects={"a": "1", "b": "2"}, chunks=[entries(1, b"x" * 5000), entries(2, b"y")])
    stats = shelf.store.stats()
    packed = [chunk.pack(entries(1, b"x" * 5000)), chunk.pack(entries(2, b"y"))]
    assert (stats.chunks, stats.objects, stats.commits, stats.format) == (2, 2, 1, 1)
    assert stats.messages_octets == sum(len(each.messages) for each in packed)


# Failing, as far as it can be had in memory.


def test_a_commit_that_found_no_space_can_be_given_again():
    shelf = Shelf(MemoryStore(held=True)).start()
    commit = shelf.new_commit(objects={"a": "1"})
    shelf.store.append(commit)
    assert isinstance(shelf.store, MemoryStore)
    shelf.store.fail(NoSpaceError("full"))
    shelf.hear()
    assert [type(each) for each in shelf.told] == [NoSpaceError]
    assert list(shelf.store.reopened().objects()) == []
    shelf.store.append(commit)
    shelf.store.land()
    shelf.hear()
    assert shelf.told[1:] == [1]
    assert list(shelf.store.reopened().objects()) == [("a", "1")]


def test_a_store_that_has_failed_keeps_nothing_more():
    shelf = Shelf(MemoryStore(held=True)).start()
    assert isinstance(shelf.store, MemoryStore)
    shelf.store.append(shelf.new_commit(objects={"a": "1"}))
    shelf.store.fail(StoreError("broken"))
    shelf.store.append(shelf.new_commit(objects={"b": "1"}))
    with pytest.raises(StoreError):
        shelf.store.close(shelf.new_commit(objects={"c": "1"}))
    after = shelf.store.reopened()
    assert list(after.objects()) == []
    assert not after.was_clean


def test_what_is_in_flight_is_lost_in_a_crash():
    shelf = Shelf(MemoryStore(held=True)).start()
    assert isinstance(shelf.store, MemoryStore)
    shelf.store.append(shelf.new_commit(objects={"a": "1"}))
    assert list(shelf.store.reopened().objects()) == []
    shelf.store.land()
    assert list(shelf.store.reopened().objects()) == [("a", "1")]
