"""Run programs in processes of their own: read what they tell, and have them end with the node."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from leveret.operations import Program

GRACE_S: Final = 30.0  # for a program that was asked to end
READ: Final = 65_536  # bytes at a time
LINE_MAX: Final = 8192  # bytes of a line that are told

Turn = Callable[[Callable[[], object]], None]  # calls in the broker's thread, as a batch of its own


class RunningProgram:
    """A program, from its start to its end."""

    def __init__(self, program: Program, turn: Turn) -> None:
        self._program = program
        self._turn = turn
        self._is_to_end = trio.Event()

    def end(self) -> None:
        """Close its standard input, and kill it if it goes on regardless."""
        self._is_to_end.set()

    async def run(self) -> None:
        """Run the program until it ends. If this is cancelled, the program is killed."""
        try:
            process = await trio.lowlevel.open_process(
                list(self._program.arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._turn(partial(self._program.on_end, f"it cannot be started: {error.strerror or error}"))
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._have_end, process)
                await self._read(process)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            if process.returncode is None:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
        self._turn(partial(self._program.on_end, _how(code)))

    async def _have_end(self, process: trio.Process) -> None:
        await self._is_to_end.wait()
        assert process.stdin is not None
        await process.stdin.aclose()
        await trio.sleep(GRACE_S)
        process.kill()

    async def _read(self, process: trio.Process) -> None:
        """Tell each line of its standard error."""
        assert isinstance(process.stderr, trio.abc.ReceiveStream)
        rest = b""
        async for octets in process.stderr:
            *lines, rest = (rest + octets).split(b"\n")
            for line in lines:
                self._tell(line)
            rest = rest[:LINE_MAX]
        if rest:
            self._tell(rest)

    def _tell(self, line: bytes) -> None:
        self._turn(partial(self._program.on_line, line[:LINE_MAX].decode("utf-8", "backslashreplace")))


def _how(code: int) -> str:
    if code >= 0:
        return f"its process has ended with exit code {code}"
    return f"its process was ended by signal {-code} ({signal.strsignal(-code)})"
