"""Flipped bits, zeroed pages and cuts: what is found is what was written, or is said to be damaged.

A small folder is damaged in one place, opened and read from end to end, written to and opened again. Nothing wrong may
be given out on the way, nothing may be missing without a word, and no exception may come but those of the contract.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

import attrs
import pytest

from leveret.durable.store import chunk, verification
from leveret.durable.store.contract import DamagedError, Span, Store, StoreError
from leveret.durable.store.database import PAGE_OCTETS
from leveret.durable.store.folder import MESSAGES, META, BadFolder
from leveret.durable.store.memory import MemoryStore
from leveret.durable.store.sqlite import SqliteStore
from leveret.server.node.persistence import Persistence
from tests.durable.store.shelf import Found, Shelf, append, content_of, entries, quick_folder
from tests.harness.bench import ENCODING, CoreBench
from tests.harness.seldom import elsewhere

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"  # then every octet is tried
HEADER = 100  # of a database
LOG_HEADER = 32
FRAME = 24  # the head of a page in a log
T = TypeVar("T")

BODIES = {number: bytes([number]) * (9 * number) for number in range(1, 41)}
BODIES |= {41: random.Random(1).randbytes(30_000), 50: b"new"}


def commits() -> Iterator[dict[str, object]]:
    yield {"objects": {f'["queue","/","{name}"]': "{}" for name in "abcdefgh"}}
    yield {"chunks": [entries(n, *(BODIES[m] for m in range(n, n + 4))) for n in range(1, 41, 4)]}
    yield {"objects": {'["exchange","/","x"]': "x" * 6000}, "settled": {1: b"\5", 9: b"\2"}}
    yield {"chunks": [entries(41, BODIES[41])], "marks": {2: 3, 9: 70_000}, "settled": {9: b"\3"}}
    yield {"appends": [append(7, 0, *(b"%d" % n for n in range(9)))], "producers": {(7, "p"): 1, (7, "q"): 2}}
    yield {"dropped": [5], "objects": {'["queue","/","c"]': None}}
    yield {"appends": [append(7, 9, b"9"), append(7, 10, b"10", segment=10)], "producers": {(7, "p"): 3}}
    yield {"settled": {13: b"\1"}}


Streams: TypeAlias = tuple[list[Span], list[tuple[int, str, int]]]


def streams_in(store: Store) -> Streams:
    return list(store.spans()), sorted(store.producers())


@attrs.frozen
class Sample:
    """A folder to be damaged, and what it held after each of its commits."""

    folder: Path
    contents: list[Found]
    streams: list[Streams]  # and of streams

    def damaged(self, name: str, damage: Callable[[bytearray], None]) -> Path:
        """Another with one of its files damaged."""
        place = self.folder.with_name("damaged")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder, place)
        octets = bytearray((place / name).read_bytes())
        damage(octets)
        (place / name).write_bytes(octets)
        return place

    def octets(self, name: str) -> int:
        return (self.folder / name).stat().st_size


def held() -> tuple[list[Found], list[Streams]]:
    memory = Shelf(MemoryStore()).start()
    contents, streams = [memory.found()], [streams_in(memory.store)]
    for columns in commits():
        memory.commit(**columns)
        contents.append(memory.found())
        streams.append(streams_in(memory.store))
    return contents, streams


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    made = Path(quick_folder())
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def closed(place: Path) -> Sample:
    return closed_in(place)


@pytest.fixture(scope="module")
def killed(place: Path) -> Sample:
    return killed_in(place)


def closed_in(place: Path) -> Sample:
    """Closed properly: everything is in the databases."""
    shelf = full(place / "closed")
    shelf.store.close(shelf.new_commit())
    contents, streams = held()
    return Sample(place / "closed", contents[-1:], streams[-1:])


def killed_in(place: Path) -> Sample:
    """Killed: everything is in the logs."""
    full(place / "running").kill(place / "killed")
    return Sample(place / "killed", *held())


def full(folder: Path) -> Shelf:
    shelf = Shelf.of(folder).start()
    for columns in commits():
        shelf.commit(**columns)
    return shelf


# What may come of it.


def outcome(sample: Sample, folder: Path) -> str:
    """How a damaged folder behaves; fails if that is not allowed."""
    problems = verification.verify(folder).problems
    try:
        shelf = Shelf.of(folder)
    except BadFolder:
        assert problems, "verify says so, too"
        return "refused"
    found, said = shelf.found(), list(shelf.store.damage)
    bodies = read(shelf.store)
    assert wrong(bodies) == []
    look_at_streams(sample, shelf.store)
    assert not (said and shelf.store.was_clean)
    assert said or commits_after([content.objects for content in sample.contents], found.objects) <= 1
    lacking = [lacks(found, content) for content in sample.contents]
    is_whole = [] in lacking and all(number in bodies for number in live(found))
    if is_whole:
        lost = commits_after(
            [(content.chunks, content.marks) for content in sample.contents], (found.chunks, found.marks)
        )
        assert said or lost <= 1, "one commit may have been torn; if more are lost, it is said"
    else:
        assert said or [] in lacking, "what is missing at the start is said; a message, when it is read"
        assert not any(each.startswith("WRONG") for each in min(lacking, key=len)), lacking
    assert problems or (is_whole and not said), "verify says so, too"
    go_on(shelf)
    return "whole" if is_whole and not said else "said"


def look_at_streams(sample: Sample, store: Store) -> None:
    """What is told of streams was so at some time, and what is lacking is said."""
    spans, producers = streams_in(store)
    assert {*spans} <= {span for stage, _ in sample.streams for span in stage}
    assert {*producers} <= {producer for _, stage in sample.streams for producer in stage}
    if not store.damage:
        assert commits_after(sample.streams, (spans, producers)) <= 1
    with store.reader() as reader:
        found, errors = content_of(reader, spans)
    assert errors == []
    assert found == [(n, b"%d" % n) for span in spans for n in range(span.first, span.next)]


def commits_after(contents: list[T], found: T) -> int:
    """How many commits there were after what was found; it must be what there was at some time."""
    stages = [each for each, before in zip(contents, [None, *contents], strict=False) if each != before]
    return len(stages) - 1 - stages.index(found)


def lacks(found: Found, content: Found) -> list[str]:
    """What of a content was not found, or found otherwise."""
    complaints = []
    for first, (columns, octets, bits) in content.chunks.items():
        there = found.chunks.get(first)
        if there is None or there[0] is None:
            complaints.append(f"chunk {first}")
        elif there[0] != columns:
            complaints.append(f"WRONG chunk {first}")
        elif there[2] is None:
            complaints.append(f"bits of chunk {first}")
        elif there[2] != bits:
            complaints.append(f"bits of chunk {first} are {there[2]!r}")
        elif there[1] != octets:
            complaints.append(f"octets of chunk {first}")
    complaints += [
        f"{'number' if columns is None else 'WRONG'} of chunk {first}"
        for first, (columns, _, _) in found.chunks.items()
        if first not in content.chunks
    ]
    for entry in content.marks.keys() | found.marks.keys():
        if found.marks.get(entry) != content.marks.get(entry):
            complaints.append(f"mark of {entry}" if entry not in found.marks else f"WRONG mark of {entry}")
    return complaints


def live(found: Found) -> list[int]:
    """Entries of all chunks whose columns could be read."""
    return [
        number
        for columns, _, _ in found.chunks.values()
        if columns is not None
        for number in chunk.read(columns).numbers
    ]


def read(store: Store) -> dict[int, bytes]:
    """Every body that can be read."""
    bodies: dict[int, bytes] = {}
    for number in range(1, 60):
        with store.reader() as reader, suppress(DamagedError):
            first, columns = reader.find(number)
            read = chunk.read(columns)
            for place in chunk.places(read, [number]):
                begin, end = read.begin(read.records[place]), read.ends[read.records[place]]
                record = reader.messages(first, begin, end - begin)
                checksum = read.crcs[read.records[place]]
                bodies[number] = chunk.message_of(record, checksum, {ENCODING.name: ENCODING}.get).body
    return bodies


def wrong(bodies: dict[int, bytes]) -> list[int]:
    return [number for number, body in bodies.items() if body != BODIES[number]]


def go_on(shelf: Shelf) -> None:
    """Write to the store, and have another start: it works, or it is said that it does not."""
    try:
        shelf.start()
    except StoreError:
        return
    first, end = next(((span.first, span.next) for span in reversed([*shelf.store.spans()])), (20, 20))
    for columns in (
        {"chunks": [entries(50, BODIES[50])], "settled": {17: b"\1"}, "marks": {18: 2}},
        {"appends": [append(7, end, b"%d" % end, segment=first)], "producers": {(7, "q"): 7}},
        {"dropped": [1, 13, 21]},
    ):
        shelf.store.append(shelf.new_commit(**columns))
        shelf.hear()
        if isinstance(shelf.told[-1], StoreError):
            shelf.store.close(None)
            return
    assert wrong(read(shelf.store)) == []
    try:
        shelf = shelf.closed()
    except (StoreError, BadFolder):
        return
    shelf.found()
    bodies = read(shelf.store)
    assert wrong(bodies) == []
    assert bodies.get(50) == BODIES[50] or shelf.store.damage
    if not shelf.store.damage:
        assert [span.next for span in shelf.store.spans()][-1] == end + 1
        assert (7, "q", 7) in shelf.store.producers()
    shelf.store.close(None)


# The damage.


def places(octets: int, header: int, page: int, heads: list[int], stride: int) -> list[int]:
    """Octets of a file to be damaged: its header, some in the heads of its pages, and some of the rest."""
    if NIGHTLY:
        return list(range(octets))
    turns = enumerate(range(header, octets, page))  # which of four neighbours it is changes from page to page
    books = {at + (number + each) % 4 for number, at in turns for each in heads}
    return sorted(at for at in {*range(header), *books, *range(0, octets, stride)} if at < octets)


def flip(at: int) -> Callable[[bytearray], None]:
    def damage(octets: bytearray) -> None:
        octets[at] ^= 1 << at % 8

    return damage


def zero(at: int) -> Callable[[bytearray], None]:
    def damage(octets: bytearray) -> None:
        octets[at : at + PAGE_OCTETS] = bytes(len(octets[at : at + PAGE_OCTETS]))

    return damage


def cut(at: int) -> Callable[[bytearray], None]:
    def damage(octets: bytearray) -> None:
        del octets[at:]

    return damage


@pytest.mark.parametrize(("apart", "every"), [(4001, 3), pytest.param(401, 1, marks=elsewhere)])
@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_flipped_bit_is_harmless_or_said(closed: Sample, name: str, apart: int, every: int):
    chosen = places(closed.octets(name), HEADER, PAGE_OCTETS, [-100, -97, -95, -92, -88], apart)
    outcomes = {outcome(closed, closed.damaged(name, flip(at))) for at in chosen[:: 1 if NIGHTLY else every]}
    assert outcomes == ({"whole", "said", "refused"} if name == MESSAGES else {"whole", "refused"})


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_zeroed_page_is_said(closed: Sample, name: str):
    for at in range(0, closed.octets(name), PAGE_OCTETS):
        assert outcome(closed, closed.damaged(name, zero(at))) != "whole", at


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_cut_database_is_said(closed: Sample, name: str):
    octets = closed.octets(name)
    for at in sorted({*range(0, octets, 401), *range(0, octets, PAGE_OCTETS), octets - 1}):
        assert outcome(closed, closed.damaged(name, cut(at))) == "refused" or at > octets - PAGE_OCTETS, at


@pytest.mark.parametrize("name", [f"{MESSAGES}-wal", f"{META}-wal"])
def test_a_flipped_bit_in_a_log_costs_one_commit_at_most_or_is_said(killed: Sample, name: str):
    outcomes = {
        outcome(killed, killed.damaged(name, flip(at)))
        for at in places(killed.octets(name), LOG_HEADER, PAGE_OCTETS + FRAME, [0, 4, 8, 12, 16, 20], 2053)
    }
    assert ("said" if MESSAGES in name else "refused") in outcomes


@pytest.mark.parametrize("name", [f"{MESSAGES}-wal", f"{META}-wal"])
def test_a_zeroed_page_in_a_log_costs_one_commit_at_most_or_is_said(killed: Sample, name: str):
    for at in range(0, killed.octets(name), PAGE_OCTETS):
        outcome(killed, killed.damaged(name, zero(at)))


def test_a_cut_log_is_as_if_the_rest_had_not_been_written(killed: Sample):
    name = f"{MESSAGES}-wal"
    for at in range(0, killed.octets(name), 1201):
        shelf = Shelf.of(killed.damaged(name, cut(at)))
        found = shelf.found()
        assert (found.chunks, found.marks) in [(content.chunks, content.marks) for content in killed.contents]
        bodies = read(shelf.store)
        assert bodies == {number: BODIES[number] for number in live(found)}
        shelf.store.close(None)


def test_a_log_that_is_missing_is_said(killed: Sample):
    folder = killed.damaged(f"{MESSAGES}-wal", flip(0))
    (folder / f"{MESSAGES}-wal").unlink()
    shelf = Shelf.of(folder)
    assert "a log (-wal) is missing" in shelf.store.damage[0]
    shelf.store.close(None)
    assert Shelf.of(killed.damaged(MESSAGES, bytearray.copy)).given_up().store.damage == [], (
        "it is SQLite's to delete it"
    )


def test_a_node_says_at_its_start_what_is_damaged(closed: Sample, caplog: pytest.LogCaptureFixture):
    def spoiled(octets: bytearray) -> None:
        at = octets.index(BODIES[40])
        octets[at - 4 * PAGE_OCTETS : at] = bytes(4 * PAGE_OCTETS)

    store = SqliteStore(closed.damaged(MESSAGES, spoiled))
    Persistence(CoreBench().broker, store, None, []).recover()
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any(text.startswith("the store is damaged: ") and MESSAGES in text for text in said)
    assert store.damage
    store.close(None)
