"""Compare this version with an earlier one, on messages that need no disk: the store must not slow them down.

git worktree add ../earlier 44547d8
python -m benchmarks --against ../earlier versions
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.brokers import leveret
from benchmarks.flood import flood
from benchmarks.tables import head, row

LOADS: tuple[tuple[str, int, dict[str, int | bool]], ...] = (
    ("100 B, confirms and acks", 100_000, {}),
    ("100 B, neither", 200_000, {"confirms": False, "acks": False}),
    ("100 B, one at a time", 3_000, {"window": 1, "prefetch": 1}),
)


def versions(against: Path, rounds: int) -> None:
    """Measure transient messages: with nothing on disk at all, and with a data folder that they do not use."""
    print("\n## Transient messages per second, beside an earlier version\n")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        earlier = stack.enter_context(leveret(name="earlier", tree=against))
        memory = stack.enter_context(leveret("--memory", name="now, in memory"))
        disk = stack.enter_context(leveret("--data", folder, name="now, with a data folder"))
        for now in (memory, disk):
            head("transient messages", [now, earlier])
            for title, messages, load in LOADS:
                measure = partial(flood, messages=messages, **load)  # type: ignore[arg-type]
                row(title, [now, earlier], rounds, lambda broker, run=measure: run(broker.port))  # type: ignore[misc]
            print()
