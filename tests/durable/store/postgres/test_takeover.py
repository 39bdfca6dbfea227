"""A node that takes over reads columns first, then messages and files of streams: when they are wanted, or later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from leveret.durable.store import chunk
from leveret.durable.store.contract import Chunk, DamagedError, Reader
from leveret.durable.store.postgres.scratch import Scratch
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.store import PostgresStore
from tests.durable.store.shelf import Shelf, append, bodies_in, entries

BODY = b"a body of some length " * 50


@pytest.fixture
def shelf(database: Database, tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf.of_database(database, tmp_path / "copy").start()
    yield made
    made.store.close(None)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Nothing is brought in the background before it is open."""
    opened = Event()
    bring = Scratch._bring_all

    def later(scratch: Scratch) -> None:
        while not (opened.wait(0.01) or scratch._sources[2]._closing.is_set()):
            pass
        bring(scratch)

    monkeypatch.setattr(Scratch, "_bring_all", later)
    yield opened
    opened.set()


def scratch_of(shelf: Shelf) -> Scratch:
    assert isinstance(shelf.store, PostgresStore)
    return shelf.store._scratch


def messages_of(number: int) -> Callable[[Reader], bytes]:
    def read(reader: Reader) -> bytes:
        first, columns = reader.find(number)
        return reader.messages(first, 0, chunk.read(columns).ends[-1])

    return read


def test_large_chunks_are_beside_the_copys_database_as_are_those_that_are_brought(shelf: Shelf, gate: Event):
    small, large = chunk.pack(entries(1, b"small")), chunk.pack(entries(2, BODY * 5, BODY * 5))
    shelf.commit(chunks=[entries(1, b"small"), entries(2, BODY * 5, BODY * 5)])
    for is_another_start in (False, True):
        if is_another_start:
            shelf = shelf.killed().start()
        assert [shelf.read(messages_of(number)) for number in (1, 3)] == [small.messages, large.messages]
        assert scratch_of(shelf).bodies.octets == len(large.messages)
        assert shelf.store.stats().messages_octets == len(small.messages) + len(large.messages)
    shelf.commit(dropped=[2])
    assert scratch_of(shelf).bodies.octets == 0
    assert isinstance(shelf.read(lambda reader: reader.messages(2, 0, 1)), DamagedError)
    shelf.store.close(None)


def test_messages_are_brought_when_they_are_wanted(shelf: Shelf, gate: Event):
    shelf.commit(chunks=[entries(1, BODY), entries(2, b"other")])
    packed = chunk.pack(entries(1, BODY)).messages
    shelf = shelf.killed()
    assert [octets for _, octets, _ in shelf.found().chunks.values()] == [
        len(packed),
        len(chunk.pack(entries(2, b"other")).messages),
    ]
    shelf.start()
    assert sorted(scratch_of(shelf)._lacking) == [1, 2]
    assert shelf.read(messages_of(1)) == packed
    assert sorted(scratch_of(shelf)._lacking) == [2], "what was brought stays"
    with shelf.store.reader() as reader:
        assert messages_of(2)(reader) == chunk.pack(entries(2, b"other")).messages
    assert not scratch_of(shelf)._lacking
    assert shelf.store.stats().messages_octets == len(packed) + len(chunk.pack(entries(2, b"other")).messages)
    shelf.store.close(None)


def test_messages_follow_in_the_background(shelf: Shelf, gate: Event):
    shelf.commit(chunks=[entries(number, BODY) for number in range(1, 40)])
    shelf = shelf.killed().start()
    assert len(scratch_of(shelf)._lacking) == 39
    assert shelf.store.stats().messages_octets == 39 * len(chunk.pack(entries(1, BODY)).messages)
    gate.set()
    scratch_of(shelf)._loader.join()
    assert not scratch_of(shelf)._lacking
    assert [shelf.read(messages_of(number)) for number in (1, 39)] == [
        chunk.pack(entries(number, BODY)).messages for number in (1, 39)
    ]
    shelf.store.close(None)


def test_what_was_rewritten_before_it_was_brought_is_not_written_over(shelf: Shelf, gate: Event):
    """The merged chunk has the number of the first that it replaces."""
    shelf.commit(chunks=[entries(1, b"a", b"b"), entries(3, b"c")])
    parts = [chunk.pack(entries(1, b"a", b"b")), chunk.pack(entries(3, b"c"))]
    merged = chunk.rewritten([(each.entries, each.messages, [2 + at]) for at, each in enumerate(parts)])
    shelf = shelf.killed().start()
    shelf.commit(replaced=[([1, 3], Chunk(merged.first, merged.entries, merged.messages))])
    gate.set()
    scratch_of(shelf)._loader.join()
    assert shelf.read(messages_of(2)) == merged.messages
    shelf.store.close(None)


def test_a_reader_of_an_older_moment_than_the_database_reads_again(shelf: Shelf, gate: Event):
    shelf.commit(chunks=[entries(1, b"a", b"b"), entries(3, b"c")])
    shelf = shelf.killed().start()
    merged = merged_of(chunk.pack(entries(1, b"a", b"b")), [2], chunk.pack(entries(3, b"c")), [3])
    with shelf.store.reader() as reader:
        assert reader.find(2)[0] == 1
        shelf.commit(replaced=[([1, 3], merged)])
        with pytest.raises(DamagedError, match="not in the database as it is in the local copy"):
            reader.messages(1, 0, 10)
        for number in (2, 3):
            made = reader.again(number)
            assert (made.first, made.entries, made.messages) == (1, merged.entries, merged.messages)
    shelf.store.close(None)


def merged_of(*parts: Chunk | list[int]) -> Chunk:
    """Return one chunk with what is left of some, each followed by the numbers of its entries that are needed."""
    made = chunk.rewritten(
        [
            (each.entries, each.messages, needed)
            for each, needed in zip(parts[::2], parts[1::2], strict=True)
            if isinstance(each, Chunk) and isinstance(needed, list)
        ]
    )
    return Chunk(made.first, made.entries, made.messages)


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_merged_chunk_is_read_while_a_reader_still_has_those_that_it_replaced(
    shelf: Shelf, gate: Event, is_taken_over: bool
):
    """It has the number of the first, of which the messages are kept as long as that reader is there."""
    old, other = chunk.pack(entries(1, BODY * 10, BODY * 10)), chunk.pack(entries(3, BODY * 20))
    shelf.commit(chunks=[entries(1, BODY * 10, BODY * 10), entries(3, BODY * 20)])
    if is_taken_over:
        shelf = shelf.killed().start()
    merged = merged_of(old, [1], other, [3])
    with shelf.store.reader() as reader:
        assert messages_of(1)(reader) == old.messages
        shelf.commit(replaced=[([1, 3], merged)])
        assert shelf.read(messages_of(3)) == shelf.read(messages_of(1)) == merged.messages
        # else it would have to bring them once more, and the database has them no longer
        if not is_taken_over:
            assert messages_of(1)(reader) == old.messages
    assert shelf.read(messages_of(3)) == merged.messages
    shelf.store.close(None)


def test_segments_are_brought_whole_when_they_are_read_and_can_be_appended_to_before(shelf: Shelf):
    shelf.commit(appends=[append(1, 0, b"a", b"b"), append(1, 2, b"c", segment=2), append(2, 0, b"other")])
    shelf.commit(appends=[append(1, 3, b"d", segment=2)])
    shelf = shelf.killed().start()
    shelf.commit(appends=[append(1, 4, b"e", segment=2)])
    assert len(scratch_of(shelf)._short_of) == 3
    found = shelf.read(lambda reader: reader.blocks(1, 2, 2, 5, 1 << 20))
    assert isinstance(found, bytes)
    assert bodies_in(found) == [(2, b"c"), (3, b"d"), (4, b"e")]
    assert sorted(scratch_of(shelf)._short_of) == [(1, 0), (2, 0)]
    with shelf.store.reader() as reader:
        assert bodies_in(reader.blocks(1, 0, 0, 2, 1 << 20)) == [(0, b"a"), (1, b"b")]
    shelf = shelf.killed()
    assert [(span.first, span.next) for span in shelf.store.spans()] == [(0, 2), (2, 5), (0, 1)]
    shelf.store.close(None)


def test_a_segment_that_went_before_it_was_brought_is_gone(shelf: Shelf):
    shelf.commit(appends=[append(1, 0, b"a"), append(1, 1, b"b", segment=1)])
    shelf = shelf.killed().start()
    shelf.commit(cut=[(1, 0)])
    assert isinstance(shelf.read(lambda reader: reader.blocks(1, 0, 0, 1, 1)), DamagedError)
    shelf.commit(ended=[1])
    assert isinstance(shelf.read(lambda reader: reader.blocks(1, 1, 1, 2, 1)), DamagedError)
    shelf.store.close(None)


def test_what_is_paged_out_only_to_save_memory_is_here_and_not_in_the_database(
    shelf: Shelf, database: Database
):
    volatile = entries(2, b"x", b"y")
    volatile.volatile = True
    shelf.commit(chunks=[entries(1, b"kept"), volatile], marks={1: 1, 2: 1}, settled={2: b"\1"})
    assert shelf.read(messages_of(3)) == chunk.pack(volatile).messages
    session = Session(database, "test")
    try:
        assert session.rows("select first from {s}.chunks") == [(1,)]
        assert session.rows("select entry from {s}.marks") == [(1,)]
        assert session.rows("select chunk from {s}.settled") == []
        numbers = session.rows("select number from {s}.commits")
        more = entries(4, b"z")
        more.volatile = True
        assert shelf.commit(chunks=[more]) == 2
        assert session.rows("select number from {s}.commits") == numbers, "there was nothing to send"
        merged = chunk.rewritten(
            [(chunk.pack(each).entries, chunk.pack(each).messages, [each.first]) for each in (volatile, more)]
        )
        shelf.commit(replaced=[([2, 4], merged)], marks={4: 2})
        shelf.commit(dropped=[2], settled={1: b"\0"})
        assert session.rows("select first from {s}.chunks") == [(1,)]
        assert session.rows("select chunk from {s}.settled") == [(1,)]
    finally:
        session.close()
