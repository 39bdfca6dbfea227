"""Power cuts, on a file system of its own: ext4 in a file, which is shut down under a running node.

    python -m tests.crash.power --rounds 20

`EXT4_IOC_SHUTDOWN` with NOLOGFLUSH stops the file system as it is: nothing that was not synced reaches the file.
Mounted again, it is what a machine finds after the power was off. Needs root, loop devices and the tools of ext4.

Only what clients had read before the cut counts: while the file system goes down, a sync may be said to have succeeded
that has not (two in 150 cuts under a program that only writes and syncs). `cuts.py` knows no such mercy.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .load import Load
from .node import SERVE, Node
from .rounds import PROMISES_MAX, Rounds

SHUTDOWN: Final = 0x8004587D  # EXT4_IOC_SHUTDOWN
NOLOGFLUSH: Final = 2
IMAGE_OCTETS: Final = 512 << 20  # of which little is ever written
NOT_PERMITTED: Final = 77  # an exit code that says "skipped"


class Machine:
    """A disk that can lose its power, and is mounted at `folder`."""

    def __init__(self, place: Path) -> None:
        self.image = place / "image"
        self.copies = 0  # of the file
        self.folder = place / "disk"
        self.folder.mkdir()
        with self.image.open("wb") as image:
            image.truncate(IMAGE_OCTETS)
        _run("mkfs.ext4", "-q", "-F", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount what has reached the file.

        While another process keeps the mounts of its own (a sandbox does), the file system that was shut down goes on
        to exist, and would be mounted again as it is: then a copy of the file is the disk.
        """
        _run("mount", "-o", "loop", str(self.image), str(self.folder))
        if not self._takes_files():
            self.unmount()
            copy = self.image.with_name(f"image-{self.copies}")
            self.copies += 1
            _run("cp", "--sparse=always", str(self.image), str(copy))
            self.image.unlink()
            self.image = copy
            _run("mount", "-o", "loop", str(self.image), str(self.folder))

    def _takes_files(self) -> bool:
        probe = self.folder / "probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError:
            return False
        return True

    def unmount(self) -> None:
        _run("umount", str(self.folder))

    def cut(self) -> None:
        """From now on nothing reaches the disk, and everything that asks for it fails."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(folder)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def machine(place: Path) -> Iterator[Machine]:
    """A disk, mounted, until the end of the block."""
    disk = Machine(place)
    try:
        yield disk
    finally:
        disk.unmount()


def why_not() -> str:
    """Why there can be no power cut here; empty: there can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    missing = [tool for tool in ("mkfs.ext4", "mount", "losetup") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    with tempfile.TemporaryDirectory(prefix="leveret-power-") as place:
        try:
            with machine(Path(place)) as disk:
                disk.cut()
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no ext4 on a loop device: {getattr(error, 'stderr', '') or error}".strip()
    return ""


def power_cut(disk: Machine, rounds: Rounds, promises: int, program: Sequence[str] = SERVE) -> None:
    """A node under load when the power goes; the disk is mounted again."""
    node = Node(rounds.folder, program)
    try:
        rounds.look(node)
        load = Load(rounds.scene, node)
        load.run(promises)
        disk.cut()
        node.process.kill()
        load.drop()
        rounds.promises += load.promises
        may_have_come_back = load.is_closing
    finally:
        node.kill()
    disk.unmount()
    disk.mount()
    rounds.number += 1
    rounds.scene.ledger.restarted(closed=may_have_come_back)


def cuts(
    place: Path,
    seed: int,
    count: int,
    program: Sequence[str] = SERVE,
    told: Callable[[Rounds], None] = lambda rounds: None,
) -> Rounds:
    """So many power cuts on one disk, or fewer if something is wrong after one; each is `told`."""
    with machine(place) as disk:
        rounds = Rounds(disk.folder / "data", seed)
        for _ in range(count):
            power_cut(disk, rounds, rounds.scene.random.randrange(PROMISES_MAX), program)
            if rounds.complaints:
                return rounds
            told(rounds)
        rounds.last_look()  # by a node without mistakes
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="what chance decides; default: something new")
    options = parser.parse_args()
    if reason := why_not():
        print(f"no power cuts here: {reason}")
        return NOT_PERMITTED
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="leveret-power-") as place:
        rounds = cuts(Path(place), seed, options.rounds, told=_tell)
    print(f", {len(rounds.complaints)} broken")
    if rounds.complaints:
        print("\n".join(rounds.complaints[:20]))
        print(f"again: python -m tests.crash.power --rounds {options.rounds} --seed {seed}")
    return 1 if rounds.complaints else 0


def _tell(rounds: Rounds) -> None:
    print(f"\r{rounds.number} power cuts, {rounds.promises} promises", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
