"""Fuzz for a while: python -m tests.fuzz [--seconds N] [--target NAME ...] [--seed N]

Where atheris is installed, each target runs in a process of its own that is guided by coverage; inputs that reached
something new are kept in tests/fuzz/corpora. Without it, inputs are changed by chance. A fault is written to
build/fuzz/NAME, and ends the run of its target; `--replay FILE --target NAME` shows it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz import corpora
from tests.fuzz.mutator import mutated

ROOT: Final = Path(__file__).parents[2]
FAULTS: Final = ROOT / "build" / "fuzz"
PACKAGES: Final = ["leveret"]


def main() -> int:
    asked = arguments()
    if asked.child:
        guided(asked.target[0], Path(asked.child), asked.seconds, asked.seed)
    names = asked.target or list(names_of_targets())
    if asked.replay:
        target_of(names[0]).run(Path(asked.replay).read_bytes())
        print(f"{names[0]}: no fault")
        return 0
    has_guide = importlib.util.find_spec("atheris") is not None
    print(
        f"{'guided by coverage' if has_guide else 'by chance (atheris is not installed)'}, seed {asked.seed}",
        flush=True,
    )
    fault_free = [
        name
        for name in names
        if (under_guidance if has_guide else by_chance)(name, asked.seconds / len(names), asked.seed)
    ]
    print(f"{len(fault_free)} of {len(names)} targets without a fault")
    return 0 if len(fault_free) == len(names) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together (default: 600)")
    parser.add_argument("--target", action="append", default=[], help="may be repeated; default: all")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--replay", metavar="FILE", help="run one input")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def names_of_targets() -> Iterator[str]:
    from tests.fuzz import differential, targets

    yield from (*targets.TARGETS, *differential.TARGETS)


def target_of(name: str):
    from tests.fuzz import differential, targets

    known = {**targets.TARGETS, **differential.TARGETS}
    if name not in known:
        raise SystemExit(f"there is no target '{name}'; there are {', '.join(known)}")
    return known[name]


def by_chance(name: str, seconds: float, seed: int) -> bool:
    """Run a target on inputs made by chance. Return whether there was no fault."""
    target = target_of(name)
    until, count = time.monotonic() + seconds, 0
    for octets in mutated([*target.samples, *corpora.load(name)], Random(seed)):
        try:
            target.run(octets)
        except Exception:
            return told_fault(name, octets, traceback.format_exc())
        count += 1
        if time.monotonic() >= until:
            break
    print(f"{name}: {count} inputs", flush=True)
    return True


def told_fault(name: str, octets: bytes, said: str) -> bool:
    FAULTS.mkdir(parents=True, exist_ok=True)
    path = FAULTS / name
    path.write_bytes(octets)
    print(f"{name}: FAULT, written to {path.relative_to(ROOT)}\n{said}", flush=True)
    return False


def under_guidance(name: str, seconds: float, seed: int) -> bool:
    """Run a target in a process of its own. Return whether there was no fault; what was found new is kept."""
    with tempfile.TemporaryDirectory() as folder:
        found, faults = Path(folder) / "corpus", Path(folder) / "faults"
        found.mkdir()
        faults.mkdir()
        target = target_of(name)
        for number, octets in enumerate((*target.samples, *corpora.load(name))):
            (found / f"sample-{number}").write_bytes(octets)
        command = [sys.executable, "-m", "tests.fuzz", "--child", folder, "--target", name]
        command += ["--seconds", str(max(1, round(seconds))), "--seed", str(seed)]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace")
        fault = next(faults.iterdir(), None)
        if ended.returncode or fault is not None:
            octets = b"" if fault is None else fault.read_bytes()
            return told_fault(name, octets, ended.stdout + ended.stderr[-4000:])
        new = [path.read_bytes() for path in found.iterdir() if not path.name.startswith("sample-")]
        print(f"{name}: {counted(ended.stderr)} inputs, {corpora.keep(name, new)} kept", flush=True)
        return True


def counted(said: str) -> str:
    """Return the number of inputs from libFuzzer's last line."""
    lines = [line for line in said.splitlines() if line.startswith("Done ")]
    return lines[-1].split()[1] if lines else "?"


def guided(name: str, folder: Path, seconds: float, seed: int) -> None:
    """Run a target under atheris, and end the process."""
    import atheris

    with atheris.instrument_imports(include=PACKAGES):
        target = target_of(name)
    run: Callable[[bytes], None] = target.run
    options: Sequence[str] = [
        sys.argv[0],
        str(folder / "corpus"),
        f"-artifact_prefix={folder / 'faults'}/",
        f"-max_total_time={round(seconds)}",
        f"-seed={seed & 0xFFFFFFFF}",
        "-max_len=4096",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=0",
    ]
    atheris.Setup(list(options), run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
