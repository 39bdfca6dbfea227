"""A node as a process, with a data folder: started, killed, started again."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from leveret.server.node.threaded import ThreadedNode, embedded

ROOT = Path(__file__).parents[2]
SERVE = ("-m", "leveret")
END_TIMEOUT_S = 90


class NodeFailed(Exception):  # noqa: N818 - said like what it tells
    """The node has ended before it listened. The text is what it wrote."""


class Node:
    """`leveret serve` on a folder. `before` is put in front of the command (strace and its arguments)."""

    def __init__(
        self,
        folder: Path,
        program: Sequence[str] = SERVE,
        before: Sequence[str] = (),
        settings: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        # what the node writes there; the last start's only
        self.errors = folder.with_name(f"{folder.name}.log")
        command = [*before, sys.executable, *program, "serve", "--data", str(folder)]
        if "LEVERET_LISTENERS" not in (settings or {}):
            command += ["--listen", "127.0.0.1:0"]
        command += ["--http", "127.0.0.1:0"]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **(settings or {})},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that what is put in front of it can be killed with it
            )
        screen = self._screen()
        self.port = _port(screen, "AMQP")
        self.http = _port(screen, "HTTP")

    def _screen(self) -> str:
        """What it prints at its start, to the last line."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                return "".join(lines)
        self.ended()
        raise NodeFailed("".join(lines) + self.log)

    @property
    def log(self) -> str:
        return self.errors.read_text(errors="replace")

    def kill(self) -> None:
        """As when the power of the process fails, but not that of the machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.ended()

    def stop(self) -> int:
        """Ask it to end, and wait: its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end: its exit code."""
        try:
            code = self.process.wait(END_TIMEOUT_S)
        finally:
            self.process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def damage_in(folder: Path) -> list[str]:
    """What `leveret store verify` does not like."""
    command = [sys.executable, *SERVE, "store", "verify", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [f"DAMAGE: {done.stdout}{done.stderr}"] if done.returncode else []


class Inside(ThreadedNode):
    """A node in this process, for looks at many folders: it starts ten times as fast."""

    def __init__(self, folder: Path) -> None:
        settings = {"node": {"data_dir": str(folder)}, "http": {"enabled": True, "address": "127.0.0.1:0"}}
        super().__init__(embedded(settings), closing_s=0)

    @property
    def http(self) -> int:
        return int(self.node.listening[-1].address.rpartition(":")[2])


def _port(screen: str, what: str) -> int:
    found = re.search(rf"127\.0\.0\.1:(\d+) +{what}", screen)
    assert found is not None, screen
    return int(found[1])
