"""The fixed script, cut off everywhere.

    python -m tests.crash.points kills --every 1      kill -9 at each system call that writes, a run for each
    python -m tests.crash.points cuts --every 1       one run is traced; then the power is cut at each call of it
    python -m tests.crash.points starts               kill -9 at each such call of a start

A cut needs no process: what may be on the disk is made from the trace, and a node in this process recovers it. What
clients had read by then is what must be found.
"""

from __future__ import annotations

import argparse
import bisect
import logging
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from .cuts import Disk, Fate
from .node import Node, NodeFailed
from .planted import program as planted
from .scene import Scene, compare
from .script import SEED, Script, inspect, prepare
from .tracing import WRITING, Call, calls_in, injecting, recording

AT_ONCE: Final = planted("rewrite_at_once")  # the script is over before chunks are old enough otherwise


class Prepared:
    """A folder in which the script can begin, and the books of what is in it; made once, copied for each run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._template = place / "prepared"
        scene = Scene(SEED)
        node = Node(self._template)
        try:
            prepare(scene, node)
            assert node.stop() == 0, node.log
        finally:
            node.kill()
        scene.ledger.restarted()
        self._books = pickle.dumps(scene)

    def scene(self) -> Scene:
        scene: Scene = pickle.loads(self._books)
        return scene

    def folder(self, name: str = "data") -> Path:
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._template, folder)
        return folder


# kill -9 at each call.


def kill_at(prepared: Prepared, number: int, program: Sequence[str] = AT_ONCE) -> list[str] | None:
    """Kill the node at the so-manieth writing call after its start: complaints; None: the script ended before."""
    scene, folder = prepared.scene(), prepared.folder()
    node = Node(folder, program)
    try:
        script = Script(scene, node)
        tracer = injecting(node, WRITING, "signal=KILL", str(number))
        script.run()
        code = node.stop()
        tracer.close()
        script.end()
    finally:
        node.kill()
    scene.ledger.restarted(closed=True)
    complaints = inspect(scene, folder)
    return None if code == 0 and not complaints else complaints


def kill_after(prepared: Prepared, step: str, program: Sequence[str] = AT_ONCE) -> list[str]:
    """Kill the node when a step of the script is done: complaints."""
    scene, folder = prepared.scene(), prepared.folder()
    node = Node(folder, program)
    try:
        script = Script(scene, node)
        assert script.run(until=step), node.log
        node.process.kill()
        script.end()
    finally:
        node.kill()
    scene.ledger.restarted()
    compare(scene, folder, program)
    return scene.ledger.complaints


def kill_start_at(prepared: Prepared, number: int) -> list[str] | None:
    """Kill the node at the so-manieth writing call of its start, on a folder that was left suddenly."""
    scene, folder = prepared.scene(), prepared.folder()
    Node(folder).kill()
    before = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={WRITING}"]
    before += ["-e", f"inject={WRITING}:signal=KILL:when={number}"]
    try:
        Node(folder, before=before).kill()
    except NodeFailed:
        return inspect(scene, folder)
    return None


# A power cut at each call.


@attrs.frozen
class Recording:
    """A run of the script: what was done to the folder, and the books at each moment."""

    disk: Disk  # before
    calls: Sequence[Call]
    books: Sequence[bytes]
    times: Sequence[float]  # of the books, seconds since 1970
    began: Mapping[str, float]  # the steps of the script

    def cut(self, number: int, fate: Fate, target: Path, seed: int = 0) -> list[str]:
        """What is wrong after a power cut before the so-manieth call. They come in rising order."""
        at = self.calls[number].at if number < len(self.calls) else self.times[-1]
        self.disk.cut(target, fate, seed)
        scene: Scene = pickle.loads(self.books[bisect.bisect_right(self.times, at) - 1])
        scene.ledger.restarted(closed=True)
        return inspect(scene, target)

    def calls_of(self, step: str) -> range:
        """Those that came in a step, or after it and before the next."""
        begin = self.began[step]
        end = min((at for at in self.began.values() if at > begin), default=float("inf"))
        stamps = [call.at for call in self.calls]
        return range(bisect.bisect(stamps, begin), bisect.bisect(stamps, end))

    def cuts(
        self, target: Path, numbers: Container[int], fates: Sequence[Fate] = tuple(Fate)
    ) -> Iterator[list[str]]:
        """The complaints after each cut before one of these calls, each with where it was. To be asked once."""
        for number in range(len(self.calls) + 1):
            if number in numbers:
                for fate in fates:
                    complaints = self.cut(number, fate, target, seed=number)
                    yield [f"cut before call {number}, {fate.value}: {each}" for each in complaints]
            if number < len(self.calls):
                self.disk.do(self.calls[number])


def record(prepared: Prepared, program: Sequence[str] = AT_ONCE, until: str = "") -> Recording:
    """Run the script to its end or to a step, and the node to its own end."""
    scene, folder = prepared.scene(), prepared.folder()
    trace = prepared.place / "trace"
    books: list[bytes] = []
    times: list[float] = []

    def watch() -> None:
        times.append(time.time())
        books.append(pickle.dumps(scene))

    node = Node(folder, program)
    try:
        watch()
        script = Script(scene, node)
        disk = Disk(folder)
        tracer = recording(node, trace)
        script.watch(watch)
        assert script.run(until), node.log
        assert node.stop() == 0, node.log
        tracer.close()
        script.end()
        watch()
    finally:
        node.kill()
    return Recording(disk, calls_in(trace), books, times, script.began)


# The command.


def main() -> int:
    logging.disable(logging.WARNING)  # that a store was not closed properly is the point
    options = _options()
    place = Path(tempfile.mkdtemp(prefix="leveret-points-"))
    prepared = Prepared(place)
    found = {"kills": _kills, "cuts": _cuts, "starts": _starts}[options.what](prepared, options.every)
    number = -1
    for number, complaints in enumerate(found):
        print(f"\r{options.what}: {number + 1}", end="", flush=True)
        if complaints:
            print("\n" + "\n".join(complaints[:20]))
            print(f"again: python -m tests.crash.points {options.what} --every {options.every}")
            return 1
    print(" points, nothing lost")
    shutil.rmtree(place)
    return 0 if number >= 0 else 1


def _kills(prepared: Prepared, every: int) -> Iterator[list[str]]:
    yield from _until_none(lambda number: kill_at(prepared, number), every)


def _starts(prepared: Prepared, every: int) -> Iterator[list[str]]:
    yield from _until_none(lambda number: kill_start_at(prepared, number), every)


def _until_none(point: Callable[[int], list[str] | None], every: int) -> Iterator[list[str]]:
    number = 1
    while (complaints := point(number)) is not None:
        yield [f"killed at call {number}: {each}" for each in complaints]
        number += every


def _cuts(prepared: Prepared, every: int) -> Iterator[list[str]]:
    recording = record(prepared)
    yield from recording.cuts(prepared.place / "cut", range(0, len(recording.calls) + 1, every))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["kills", "cuts", "starts"])
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth point")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
