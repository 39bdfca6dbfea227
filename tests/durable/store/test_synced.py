"""What the system is asked to do, as strace sees it: nothing is called durable that was not synced before."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.tracing import why_not
from tests.durable.store.shelf import Shelf

pytestmark = pytest.mark.system

COMMITS = 20
# Commits of every kind; what the store says goes to standard output by one system call each.
PROGRAM = f"""
import os, sys, threading
from pathlib import Path
from leveret.durable.store.contract import Commit
from leveret.durable.store.sqlite import SqliteStore
from tests.durable.store.shelf import entries

store, said, failed = SqliteStore(Path(sys.argv[1])), threading.Event(), []

def say(what):
    os.write(1, b"durable %d\\n" % what if isinstance(what, int) else b"failed %s\\n" % str(what).encode())
    failed.extend([] if isinstance(what, int) else [what])
    said.set()

store.start(lambda function: function(), say, say)
for number in range(1, {COMMITS} + 1):
    commit = Commit(number)
    commit.chunks.append(entries(number, b"x" * (number % 3 * 20_000)))
    if number % 4 == 0:
        commit.objects[str(number)] = "x"
        commit.dropped.append(number - 1)
    elif number % 4 == 1 and number > 1:
        commit.settled[number - 1] = b"\\0"
    said.clear()
    store.append(commit)
    if not failed:
        said.wait()
store.close(None)
"""
CALL = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?:\(\d+<([^>]*)>| resumed>)(.*)", re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with nothing in it, made beforehand: what is made is not counted."""
    if reason := why_not():
        pytest.skip(reason)
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.store.close(shelf.new_commit())
    return tmp_path / "data"


def traced(folder: Path, *arguments: str) -> tuple[list[str], str]:
    """What a store in a process of its own said, and the trace."""
    trace = folder.with_name("trace")
    command = ["strace", "-f", "-y", "-o", str(trace), *arguments]
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), trace.read_text()


def calls(trace: str) -> Iterator[tuple[str, str, bool]]:
    """Name and file of each call that has ended, and whether it succeeded; of a `write`, what was written."""
    begun: dict[str, str] = {}  # what each thread is about
    for line in trace.splitlines():
        found = CALL.match(line)
        if found is None:
            continue
        thread, name, file, rest = found.groups()
        if file is not None:
            begun[thread] = rest if name == "write" else file
        if "<unfinished" not in rest:
            yield name, begun.pop(thread, ""), " = -1 " not in rest


def test_a_commit_is_durable_when_it_has_been_synced(folder: Path):
    said, trace = traced(folder, "-e", "trace=pwrite64,fdatasync,fsync,write")
    assert said == [f"durable {number}" for number in range(1, COMMITS + 1)]
    not_synced: set[str] = set()
    durable = 0
    for name, what, _ in calls(trace):
        if name == "pwrite64" and what.endswith("-wal"):
            not_synced.add(what)
        elif name in ("fdatasync", "fsync"):
            not_synced.discard(what)
        elif name == "write" and "durable" in what:
            durable += 1
            assert not_synced == set()
    assert durable == COMMITS


@pytest.mark.parametrize("when", [10, 11, 12, 13, 14])
def test_a_sync_that_fails_is_the_end_of_all_promises(folder: Path, when: int):
    """It is not tried again: what the second try says would mean nothing."""
    said, trace = traced(
        folder, "-e", "trace=pwrite64,fdatasync", "-e", f"inject=fdatasync:error=EIO:when={when}"
    )
    durable = [line for line in said if line.startswith("durable")]
    assert 3 < len(durable) < COMMITS
    assert durable == [f"durable {number}" for number in range(1, len(durable) + 1)]
    assert len(said) == len(durable) + 1, "it says no more, whatever it is given"
    assert said[-1].startswith("failed a commit could not be written: disk I/O error")
    done = list(calls(trace))
    failed = next(at for at, (name, _, succeeded) in enumerate(done) if name == "fdatasync" and not succeeded)
    assert not any(name == "pwrite64" and file.endswith("-wal") for name, file, _ in done[failed:])
    shelf = Shelf.of(folder)
    last = len(durable)
    needed = {number for number in range(1, last + 1) if number % 4 != 3 or number == last}
    assert needed <= set(shelf.found().chunks) <= set(range(1, last + 2))
    assert not shelf.store.was_clean
    shelf.store.close(None)
