"""Readers over HTTP in threads of their own: a lease of a queue, a stream again and again, and an archive of a queue.

What they have read goes into an inbox, from which the thread with the books takes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import attrs

from leveret.durable.store import block
from leveret.protocols.amqp091.broker.encoding import ENCODING
from tests.crash.node import ROOT, SERVE
from tests.ha.scene import LOGIN

BULK: Final = "/api/leveret"
RESERVED: Final = 700  # messages of a lease at a time
WAIT_MS: Final = 200
OCTETS: Final = 100_000  # of a stream at a time
TIMEOUT_S: Final = 60.0
REDELIVERED: Final = 1  # a bit of a position


@attrs.frozen
class Read:
    """A message as a reader got it."""

    queue: str
    body: bytes
    redelivered: bool | None  # None: the reader is not told


class BulkReader(ABC):
    """Reads one queue in a thread, until it is asked to end and has read what there was then."""

    def __init__(self, http: int, queue: str, inbox: SimpleQueue[Read]) -> None:
        self.failure: BaseException | None = None
        self._queue = queue
        self._inbox = inbox
        self._line = HTTPConnection("127.0.0.1", http, timeout=TIMEOUT_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._over.set()

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)
        self._line.close()

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as failure:
            self.failure = failure

    @abstractmethod
    def _read(self) -> None:
        """Read until `_over` is set, and what there is then."""

    def _ask(self, method: str, path: str) -> tuple[bytes, int]:
        """Return the answer, and the offset that it says to go on with, or 0."""
        self._line.request(method, f"{BULK}/{path}", headers=LOGIN)
        answer = self._line.getresponse()
        octets = answer.read()
        assert answer.status == 200, f"{method} {path}: {octets.decode(errors='replace')}"
        return octets, int(answer.headers.get("Leveret-Next", "0"))


class LeaseReader(BulkReader):
    """Reserves, reads and settles."""

    def _read(self) -> None:
        path = f"leases/%2F/{self._queue}/reader"
        fence = json.loads(self._ask("PUT", path)[0])["fence"]
        at, is_last = 0, False
        while not is_last:
            is_last = self._over.is_set()
            asked = f"fence={fence}&from={at}&messages={RESERVED}&wait_ms={WAIT_MS}"
            state = json.loads(self._ask("POST", f"{path}/reserve?{asked}")[0])
            end = state["next"]
            is_last = is_last and at == end and not state["ready"] and at == self._reserved(path)
            while at < end:
                octets, _ = self._ask("GET", f"{path}/blocks?from={at}&until={end}&fence={fence}")
                for offset, read in messages_in(octets, self._queue):
                    if at <= offset < end:
                        self._inbox.put(read)
                        at = offset + 1
        self._ask("DELETE", path)

    def _reserved(self, path: str) -> int:
        """Return the offset behind what is reserved, once more: what was being reserved may have come since."""
        return int(json.loads(self._ask("GET", path)[0])["next"])


class StreamReader(BulkReader):
    """Reads a stream from its beginning to its end, again and again; only what it reads the last time counts."""

    def _read(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.is_set()
            for read in self._whole():
                if is_last:
                    self._inbox.put(read)

    def _whole(self) -> Iterator[Read]:
        at = 0
        while True:
            octets, following = self._ask(
                "GET", f"streams/%2F/{self._queue}/blocks?from={at}&max_octets={OCTETS}"
            )
            if following == at:
                return
            for offset, read in messages_in(octets, self._queue):
                if at <= offset < following:
                    yield attrs.evolve(read, redelivered=None)
            at = following


class Archiver:
    """Archives a queue without Spark, in processes that follow each other, and reads the table."""

    def __init__(self, http: int, queue: str, folder: Path) -> None:
        self.queue = queue
        self._table = folder / "table"
        arguments = (queue, str(self._table), "--reader", "archive", "--once", "--format", "delta")
        where = ("--endpoint", f"http://127.0.0.1:{http}")
        self._command = [sys.executable, *SERVE, "pipeline", "archive", *arguments, *where]
        self._log = folder / "archive.log"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Begin to archive what there is."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)

    @property
    def is_done(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def check(self) -> None:
        """Wait for the end of the run, which must not fail."""
        assert self._process is not None
        assert self._process.wait(TIMEOUT_S) == 0, self._log.read_text(errors="replace")

    def read(self) -> Iterator[Read]:
        """Yield what is in the table, if there is one."""
        from deltalake import DeltaTable

        if not self._table.exists():
            return
        rows = DeltaTable(str(self._table)).to_pyarrow_table(columns=["body"])["body"]
        for body in rows.to_pylist():
            yield Read(self.queue, body, None)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def messages_in(octets: bytes, queue: str) -> Iterator[tuple[int, Read]]:
    """Yield the messages of blocks with their offsets."""
    at = 0
    while at < len(octets):
        read = block.Block(octets, at)
        at += read.header.octets
        places = read.positions
        for number, message in enumerate(block.messages_of(read, lambda name: ENCODING)):
            again = None if places is None else bool(places[number] & REDELIVERED)
            yield read.header.first + number, Read(queue, message.body, again)
