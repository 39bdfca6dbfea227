"""Disks that fail under a running node: syncs that do not succeed, no room, writes that end in the middle.

Each function runs one node under load until its disk has failed (and, where that can be, is well again),
starts another one on what is left, and compares. What the first one did is in the `Failure`."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import attrs

from .actor10 import TARGETS
from .actors import Actor091
from .load import Load
from .node import SERVE, Node
from .rounds import Rounds
from .scene import HUGE
from .tracing import injecting

BEFORE: Final = 100  # promises read before the disk fails
UNHEARD: Final = 1000  # promises read after it failed, when a test gives up waiting for consequences
AFTER: Final = 200  # and after it is well again
TMPFS_OCTETS: Final = 32 << 20  # four times what a node under load writes here
NO_WARNING: Final = {"LEVERET_DISK__FREE_LIMIT": "0"}  # publishers are not held back before the disk is full
LITTLE_MORE: Final = 5001  # octets that a file may still grow: not whole pages, so that a write is cut short


@attrs.define
class Failure:
    """What became of a node whose disk failed."""

    code: int | None = None  # with which the process ended by itself; None: it went on
    log: str = ""
    blocked: bool = False  # publishers were held back
    promises: int = 0  # read since the disk failed
    refused_commits: list[int] = attrs.field(factory=list)  # of each client that makes them
    complaints: list[str] = attrs.field(factory=list)


@attrs.define
class Failing:
    """A node under load, to be failed."""

    rounds: Rounds
    node: Node
    load: Load
    failure: Failure = attrs.field(factory=Failure)

    @property
    def is_blocked(self) -> bool:
        return any(actor.line.blocked for actor in self.load.actors if isinstance(actor, Actor091))

    @property
    def _was_blocked(self) -> bool:
        return any(actor.line.blockings for actor in self.load.actors if isinstance(actor, Actor091))

    def until_gone(self) -> None:
        """The node is expected to end by itself."""
        before = self.load.promises
        self.load.go_on(lambda: self.load.promises > before + UNHEARD)
        if all(line.ended for line in self.load.lines):
            self.failure.code = self.node.ended()

    def until_blocked(self) -> None:
        """Publishers go on, whatever they wait for: who does not publish is not told."""
        before = self.load.promises
        for actor in self.load.actors:
            actor.window += UNHEARD
        self.load.go_on(lambda: self._was_blocked or self.load.promises > before + UNHEARD)
        self.failure.blocked = self._was_blocked

    def commit_too_much(self) -> None:
        """Two clients commit more than there is room for, one by 0-9-1 and one by 1.0; the others are still."""
        scene, clerk, ten = self.rounds.scene, self.load.clerk, self.load.ten
        self.load.listen(lambda: clerk.is_idle and ten.is_idle)
        scene.size_min = HUGE
        for _ in TARGETS:
            clerk.publish_in_transaction()
        clerk.commit()
        ten.begin()
        self.load.listen(lambda: clerk.is_idle and ten.is_idle)
        scene.size_min = 0
        self.failure.refused_commits = [clerk.refused_commits, ten.refused_commits]

    def until_well(self) -> None:
        """Publishers are let go on, and have what they publish confirmed."""
        self.load.go_on(lambda: not self.is_blocked)
        before = self.load.promises
        self.load.go_on(lambda: self.load.promises >= before + AFTER)
        self.failure.promises = self.load.promises - before


@contextmanager
def failing(
    folder: Path, seed: int, program: Sequence[str] = SERVE, looked: Callable[[], None] = lambda: None
) -> Iterator[Failing]:
    """A node that has made some promises; after the block it is killed, and another one has to keep them.

    `looked` is called when that one has been looked at, before it is stopped."""
    rounds = Rounds(folder, seed)
    with ExitStack() as stack:
        node = Node(folder, program, settings=NO_WARNING)
        stack.callback(node.kill)
        rounds.look(node)
        load = Load(rounds.scene, node)
        stack.callback(load.drop)
        load.run(BEFORE)
        case = Failing(rounds, node, load)
        yield case
        node.process.kill()
        load.end()
    case.failure.log = node.log
    rounds.scene.ledger.restarted(closed=True)
    rounds.last_look(looked)
    case.failure.complaints = rounds.complaints


def sync_fails(folder: Path, seed: int, program: Sequence[str] = SERVE) -> Failure:
    """One fdatasync says EIO; if somebody tried again, the next would not."""
    with failing(folder, seed, program) as case, closing(injecting(case.node, "fdatasync", "error=EIO", "1")):
        case.until_gone()
    return case.failure


def no_room(folder: Path, seed: int, program: Sequence[str] = SERVE, error: str = "ENOSPC") -> Failure:
    """Writes say ENOSPC, until publishers have been held back."""
    with failing(folder, seed, program) as case:
        with closing(injecting(case.node, "pwrite64", f"error={error}")):
            case.until_blocked()
        case.until_well()
    return case.failure


def no_quota(folder: Path, seed: int, program: Sequence[str] = SERVE) -> Failure:
    """Writes say EDQUOT, which SQLite takes for a disk that fails, until publishers have been held back."""
    return no_room(folder, seed, program, "EDQUOT")


def full_disk(folder: Path, seed: int) -> Failure:
    """Another file takes all the room there is, and goes again; the folder is on a small file system of its own."""
    with failing(folder, seed) as case:
        filler = folder.with_name("filler")
        fill(filler)
        case.until_blocked()
        filler.unlink()
        case.until_well()
    return case.failure


def too_large_commits(folder: Path, seed: int) -> Failure:
    """Two clients commit more than fits on the disk; the folder is on a small file system of its own."""
    with failing(folder, seed) as case:
        case.commit_too_much()
        case.until_well()
    return case.failure


def full_start(folder: Path, seed: int) -> Failure:
    """Another file takes all the room there is, and stays until the next node has started and was looked at."""
    filler = folder.with_name("filler")
    with failing(folder, seed, looked=filler.unlink) as case:
        fill(filler)
        case.until_blocked()
    return case.failure


def short_write(folder: Path, seed: int) -> Failure:
    """A write ends in the middle, and the rest of it does not go: the file must not grow so far."""
    with failing(folder, seed) as case:
        largest = max(path.stat().st_size for path in folder.glob("*.db*"))
        limit = largest + LITTLE_MORE
        resource.prlimit(case.node.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        case.until_gone()
    return case.failure


def fill(path: Path) -> None:
    """Let a file take all the room that its disk has."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A folder on a file system with little room."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_OCTETS}", "leveret-test", str(place)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield place / "data"
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def why_no_small_disk(place: Path) -> str:
    """Why there can be none; empty: there can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    try:
        with small_disk(place):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no tmpfs can be mounted: {error}"
