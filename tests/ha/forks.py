"""Nodes forked from a process that has imported what they need, which takes a second of processor time for each else.

start ──> "start", folder, log, program ──> fork ──> its id              code ──> "code", id ──> exit code, or null
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOK_S = 0.01
IMPORTED = (
    "leveret.server.cli",
    "leveret.server.cluster.process",
    "leveret.protocols.amqp010.broker.adapter",
    "leveret.protocols.amqp091.broker.adapter",
    "leveret.protocols.amqp10.broker.adapter",
    "leveret.protocols.http.server.adapter",
)


class Fork:
    """A node's process."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self._forks = forks
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; negative: the signal that has ended it. None: it runs."""
        if self._code is None:
            self._code = self._forks.ask("code", self.pid)
        return self._code

    def wait(self, timeout_s: float = 30.0) -> int:
        end = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            assert time.monotonic() < end, "it does not end"
            time.sleep(LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Forks:
    """The process that others are forked from. For one thread."""

    def __init__(self) -> None:
        path = [each for each in (os.environ.get("PYTHONPATH"), str(ROOT)) if each]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-m", "tests.ha.forks"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=pipe, stdout=pipe)

    def start(self, folder: Path, log: Path, module: str, *arguments: str) -> Fork:
        """Run a module with these arguments in a folder, as `python -m` does; what it prints goes to the log."""
        pid = self.ask("start", str(folder), str(log), module, *arguments)
        assert pid is not None
        return Fork(self, pid)

    def ask(self, *words: str | int) -> int | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()
        found: int | None = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def started(folder: str, log: str, program: list[str]) -> int:
    """Return the id of a fork, in which this function does not return."""
    if pid := os.fork():
        return pid
    os.chdir(folder)
    opened = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(opened, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = program
    code: object = 1
    try:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def code_of(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        word, *rest = json.loads(line)
        answer = started(rest[0], rest[1], rest[2:]) if word == "start" else code_of(rest[0])
        sys.__stdout__.write(json.dumps(answer) + "\n")
        sys.__stdout__.flush()
