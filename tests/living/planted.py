"""A node with a mistake planted in it, to see that the rounds here would find it; or one that rewrites no chunks.

python -m tests.living.planted NAME serve --config FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from leveret.durable import compaction, merge_candidates
from leveret.durable.store.contract import Chunk, Commit, DamagedError, Reader
from leveret.durable.store.postgres.bodies import ChunkBodies
from leveret.durable.store.postgres.scratch import CachedSlices, Scratch
from leveret.durable.store.segments import SegmentChange
from leveret.durable.store.snapshot_reader import SnapshotReader
from leveret.server.cli import main
from tests.crash.node import SERVE

NEVER: Final = 1 << 60
SLOWLY_S: Final = 0.01


def hoarding() -> None:
    """No mistake: chunks stay as small as they were written, and are left for the next node to rewrite."""
    compaction.LOOK_EVERY = NEVER  # type: ignore[misc]


def eager() -> None:
    """No mistake: chunks are rewritten after few commits, and few of them at a time, as if there were many more."""
    compaction.LOOK_EVERY, compaction.YOUNG_MS = 4, 100  # type: ignore[misc]
    merge_candidates.SMALL_MANY, merge_candidates.MERGED_OCTETS = 4, 1 << 17  # type: ignore[misc]


def slow() -> None:
    """No mistake: each reading takes a moment, as on a slow disk, so that there is nearly always a reader."""
    moment = SnapshotReader.moment

    @contextmanager
    def slowly(self: SnapshotReader) -> Iterator[Reader]:
        with moment(self) as reader:
            time.sleep(SLOWLY_S)
            yield reader

    SnapshotReader.moment = slowly  # type: ignore[method-assign]


def put_off() -> None:
    """Messages are found by the number of a chunk: its old ones, too, as if a reader had them still."""
    write_rows, kept = Scratch.write_rows, CachedSlices._kept
    old: dict[int, int] = {}  # keys of messages that are to be deleted, by chunk

    def write(self: Scratch, commit: Commit, made: list[Chunk], change: SegmentChange | None) -> None:
        beside = self._beside
        old.update({first: beside[first] for each, _ in commit.replaced for first in each if first in beside})
        write_rows(self, commit, made, change)

    def by_number(self: CachedSlices, first: int, start: int, length: int) -> bytes:
        found = self._scratch.bodies.read(old[first], start, length) if first in old else None
        return kept(self, first, start, length) if found is None else found

    Scratch.write_rows, CachedSlices._kept = write, by_number  # type: ignore[method-assign]
    ChunkBodies.tidy = lambda self: None  # type: ignore[method-assign]


def once() -> None:
    """What cannot be read is not read again."""

    def damaged(self: CachedSlices, number: int) -> Chunk:
        raise DamagedError(f"entry {number} is damaged")

    CachedSlices.again = damaged  # type: ignore[method-assign]


PLANTED: Final = {each.__name__: each for each in (hoarding, eager, slow, put_off, once)}


def program(*names: str) -> Sequence[str]:
    """Return what runs a node with all of that."""
    return (
        ("-m", "tests.living.planted", ",".join(PLANTED[name].__name__ for name in names)) if names else SERVE
    )


if __name__ == "__main__":
    for each in sys.argv[1].split(","):
        PLANTED[each]()
    sys.exit(main(sys.argv[2:]))
