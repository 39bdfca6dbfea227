"""Every way to take a durable node away from under its clients, as often as the promises of the store are stated for.

    python -m tests.crash.durability                  # 200 kills, 500 points, 1000 power cuts, 200 errors, 1000 bits
    python -m tests.crash.durability --only errors bits --share 0.1 --seed 7

| | |
|---|---|
| kills | kill -9 under load (`rounds.py`) |
| points | the fixed script: power cuts before calls that write, and kill -9 at such calls (`points.py`) |
| power | the power of a disk is cut under load (`power.py`); needs root and loop devices |
| errors | syncs that fail, writes cut short, no room, full disks, and starts on these (`failing.py`) |
| bits | a bit is flipped, a page zeroed, or a database cut, anywhere in a folder (`store/test_damage.py`) |

Each line tells how many rounds there were, and whether one found something lost or wrong.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Final

from leveret.durable.store.database import PAGE_OCTETS
from leveret.durable.store.folder import MESSAGES, META
from tests.durable.store import test_damage as damage
from tests.durable.store import test_redo_log

from . import failing, points, power, rounds
from .tracing import why_not

Round = list[str]  # what was lost or wrong after one; empty: nothing was
SHOWN: Final = 20  # complaints


def kills(place: Path, count: int, chance: random.Random) -> Iterator[Round]:
    under_load = rounds.Rounds(place / "data", chance.randrange(1 << 32), rounds.PROGRAMS)
    for number in range(count):
        under_load.run()
        if number == count - 1:
            under_load.last_look()
        yield under_load.complaints


def points_of(place: Path, count: int, chance: random.Random) -> Iterator[Round]:
    """Four in five are power cuts; the others are kills, one of them in five during a start."""
    prepared = points.Prepared(place)
    recording = points.record(prepared)
    calls, killed, started = len(recording.calls), count * 4 // 25, count // 25
    fates = 4 * count // 5
    every = max(1, calls * len(points.Fate) // fates)
    cuts = recording.cuts(place / "cut", range(chance.randrange(every), calls + 1, every))
    at = sorted(chance.sample(range(1, calls), min(killed, calls - 1)))
    yield from chain(
        (each for _, each in zip(range(fates), cuts, strict=False)),
        (points.kill_at(prepared, number) or [] for number in at),
        (points.kill_start_at(prepared, number) or [] for number in range(1, started + 1)),
    )


def power_cuts(place: Path, count: int, chance: random.Random) -> Iterator[Round]:
    with power.machine(place) as disk:
        under_load = rounds.Rounds(disk.folder / "data", chance.randrange(1 << 32))
        for number in range(count):
            power.power_cut(disk, under_load, chance.randrange(rounds.PROMISES_MAX))
            if number == count - 1:
                under_load.last_look()
            yield under_load.complaints


def errors(place: Path, count: int, chance: random.Random) -> Iterator[Round]:
    """In turn: nodes that have to end, and nodes that have to wait for room and go on."""
    ending, waiting = (failing.sync_fails, failing.short_write), (failing.no_room, failing.no_quota)
    on_small_disks = (
        () if failing.why_no_small_disk(folder_in(place)) else (failing.full_disk, failing.full_start)
    )
    for fail in islice(cycle((*ending, *waiting, *on_small_disks)), count):
        folder, seed = folder_in(place), chance.randrange(1 << 32)
        try:
            if fail in on_small_disks:
                with failing.small_disk(folder) as disk:
                    failure = fail(disk, seed)
            else:
                failure = fail(folder / "data", seed)
        except AssertionError as error:  # a client has waited too long
            yield [f"{fail.__name__}, seed {seed}: {error}"]
            continue
        complaints = list(failure.complaints)
        if fail in ending and failure.code != 1:
            complaints.append(f"the node went on, or ended with {failure.code}")
        if fail not in ending and not failure.blocked:
            complaints.append("publishers were not held back")
        yield [f"{fail.__name__}, seed {seed}: {each}" for each in complaints]
        shutil.rmtree(folder)


def folder_in(place: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=place))


def bits(place: Path, count: int, chance: random.Random) -> Iterator[Round]:
    closed, killed = damage.closed_in(place), damage.killed_in(place)
    files = [(closed, name) for name in (MESSAGES, META)] + [
        (killed, f"{name}-wal") for name in (MESSAGES, META)
    ]
    files.append((test_redo_log.logged_in(place), test_redo_log.NAME))
    for _ in range(count):
        sample, name = chance.choice(files)
        at = chance.randrange(sample.octets(name))
        ways = (damage.flip, damage.zero, damage.cut)
        how = chance.choices(ways, (8, 1, sample is closed))[0]  # nobody can tell that a log was longer
        if how is damage.zero:
            at -= at % PAGE_OCTETS
        try:
            damage.outcome(sample, sample.damaged(name, how(at)))
        except Exception as error:  # whatever it is: nothing may come but what the contract names
            yield [f"{how.__name__} at byte {at} of {name}: {type(error).__name__}: {error}"]
        else:
            yield []


PROOFS: Final[
    dict[str, tuple[int, Callable[[Path, int, random.Random], Iterator[Round]], Callable[[], str]]]
] = {
    "kills": (200, kills, str),
    "points": (500, points_of, why_not),
    "power": (1000, power_cuts, power.why_not),
    "errors": (200, errors, why_not),
    "bits": (1000, bits, str),
}


def proved(name: str, share: float, seed: int) -> bool:
    """Run one kind of rounds to their end, or to the first that finds something. Returns whether none did."""
    count, rounds_of, reason_against = PROOFS[name]
    if reason := reason_against():
        print(f"{name}: not here: {reason}")
        return True
    count, began, found = max(1, round(count * share)), time.monotonic(), Round()
    place = Path(tempfile.mkdtemp(prefix=f"leveret-{name}-"))
    for number, found in enumerate(rounds_of(place, count, random.Random(seed)), 1):
        print(f"\r{name}: {number} of {count}", end="", flush=True)
        if found:
            break
    print(f", {'something' if found else 'nothing'} lost or wrong, {time.monotonic() - began:.0f} s")
    if found:
        print("\n".join(found[:SHOWN]))
        print(f"the folder: {place}\nagain: python -m tests.crash.durability --only {name} --seed {seed}")
    else:
        shutil.rmtree(place)
    return not found


def main() -> int:
    logging.disable(logging.WARNING)  # that a store was not closed properly is the point
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*PROOFS], default=[*PROOFS])
    parser.add_argument("--share", type=float, default=1.0, help="of the rounds; default: 1, all of them")
    parser.add_argument("--seed", type=int, help="what chance decides; default: something new")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    return 0 if all([*map(partial(proved, share=options.share, seed=seed), options.only)]) else 1


if __name__ == "__main__":
    sys.exit(main())
