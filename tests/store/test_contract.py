"""What every store promises, in memory or in SQLite: `broker_core/store/contract.py` as tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.store import chunk
from broker_core.store.contract import DamagedError, NoSpaceError, Reader, StoreError
from broker_core.store.memory import MemoryStore
from tests.store.shelf import Found, Shelf, entries

BITS = b"\5\0"


@pytest.fixture(params=["memory", "sqlite"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(MemoryStore()) if request.param == "memory" else Shelf.of(tmp_path / "data")
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
