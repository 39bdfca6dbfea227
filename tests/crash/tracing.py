"""strace: what a node does to its files, read back from the trace; and making its system calls fail, or kill it.

The node is traced from when it listens, so that what it does at its start is not counted. Counts of `when=` are each
thread's own; one thread writes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from .node import Node

WRITING: Final = "pwrite64,fdatasync,fsync,ftruncate,unlink"
FOREVER: Final = "1+"
LINE: Final = re.compile(r"(\d+) +(\d+\.\d+) (?:<\.\.\. )?(\w+)(.*)", re.DOTALL)
FAILED: Final = re.compile(r"\) += (-1 |\?)")
OCTETS_MAX: Final = 1 << 24  # of one call that are written to the trace


class Tracer:
    """strace on a running node."""

    def __init__(self, node: Node, arguments: Sequence[str], output: Path | str = os.devnull) -> None:
        command = ["strace", "-f", "-o", str(output), *arguments, "-p", str(node.process.pid)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        if "attached" not in said:
            self.close()
            raise OSError(f"strace: {said}")

    def close(self) -> None:
        """Let the node go on by itself, if it is still there."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=90)


def injecting(node: Node, call: str, what: str, when: str = FOREVER) -> Tracer:
    """From now on, calls of that name do this (`error=EIO`, `signal=KILL`) at these times."""
    return Tracer(node, ["-e", f"trace={call}", "-e", f"inject={call}:{what}:when={when}"])


def recording(node: Node, trace: Path) -> Tracer:
    """From now on, all that is done to files is written down."""
    return Tracer(node, ["-ttt", "-y", "-xx", "-s", str(OCTETS_MAX), "-e", f"trace={WRITING}"], trace)


def why_not() -> str:
    """Why nothing can be traced here; empty: it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    with tempfile.NamedTemporaryFile() as output:
        command = ["strace", "-o", output.name, "-e", "inject=fsync:error=EIO", "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"strace is not permitted: {done.stderr.strip()}" if done.returncode else ""


# Reading a trace.


@attrs.frozen
class Call:
    """One system call that changes a file, or makes sure that it is changed."""

    at: float  # seconds since 1970, when it began
    name: str
    path: Path
    offset: int = 0  # of the write; the size, if it is truncated
    octets: bytes = b""


def calls_in(trace: Path) -> list[Call]:
    """The successful calls, in the order in which they ended."""
    return list(_calls(trace.read_text()))


def _calls(text: str) -> Iterator[Call]:
    begun: dict[tuple[str, str], tuple[float, str]] = {}  # by thread and name
    for line in text.splitlines():
        matched = LINE.fullmatch(line)
        if matched is None:
            continue
        thread, stamp, name, rest = matched.groups()
        at = float(stamp)
        if rest.endswith("<unfinished ...>"):
            begun[thread, name] = at, rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if rest.startswith(" resumed>"):
            at, start = begun.pop((thread, name))
            rest = start + rest.removeprefix(" resumed>")
        if name in ARGUMENTS and not FAILED.search(rest):
            yield _call(at, name, rest)


QUOTED: Final = r'"((?:\\x[0-9a-f]{2})*)"'
OPEN_FILE: Final = r"\(\d+<((?:\\x[0-9a-f]{2})*)>(?:\(deleted\))?"
ARGUMENTS: Final = {
    "pwrite64": re.compile(OPEN_FILE + ", " + QUOTED + r", \d+, (\d+)\) += (\d+).*"),
    "ftruncate": re.compile(OPEN_FILE + r", (\d+)\) += 0.*"),
    "fdatasync": re.compile(OPEN_FILE + r"\) += 0.*"),
    "fsync": re.compile(OPEN_FILE + r"\) += 0.*"),
    "unlink": re.compile(r"\(" + QUOTED + r"\) += 0.*"),
}


def _call(at: float, name: str, rest: str) -> Call:
    matched = ARGUMENTS[name].fullmatch(rest)
    assert matched is not None, rest[:200]
    path = Path(os.fsdecode(_plain(matched[1])))
    if name == "pwrite64":
        return Call(at, name, path, int(matched[3]), _plain(matched[2])[: int(matched[4])])
    if name == "ftruncate":
        return Call(at, name, path, int(matched[2]))
    return Call(at, name, path)


def _plain(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
