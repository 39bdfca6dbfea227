"""Write batches of what happened to the files of a recording, in a thread: the broker never waits for this disk.

    Recorder ── put(batch) ──> queue of at most MEMORY_MAX bytes ── thread: redact, encode, deflate ──> FILE

A file takes no more than its share of the recording's `max_bytes`. What is beyond that, and what the disk refuses, is
left out and counted in `lost`; the recorder then describes everything anew. A block that could be written in part only
is cut off again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from leveret.durable.store.chunk import record_of
from leveret.features.recording.records import MAGIC, RecordKind, SessionRecord, block, written
from leveret.features.recording.redaction import Redaction, digest
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.message import Message

log: Final = logging.getLogger("leveret.node")

PAYLOAD: Final = 1 << 18  # bytes of a block before it is deflated
LISTED: Final = 10_000  # messages in one record of a listing
END_SHARE: Final = 16  # a sixteenth of a file is kept free for its end
CLOSING_S: Final = 10.0
MODE: Final = 0o600


@attrs.frozen
class Contents:
    """The messages of one queue, in the order of their delivery, and those that wait for a time."""

    waiting: list[Delivery]
    delayed: list[Delivery]


Spawn: TypeAlias = "Callable[[str, Callable[[], None]], Callable[[float], None]]"
"""Runs a function in a thread of a name; returns what waits for its end, for so many seconds at most."""

Noted: TypeAlias = "tuple[RecordKind, int, dict[str, Json], Message | Contents | None]"
"""What becomes a record: its kind, time and fields, and a message; or the contents of a queue, many records."""


class RecordingWriter:
    """The thread that writes one recording. All methods but those with an underscore are for the broker's thread."""

    def __init__(self, path: Path, part_max: int, redaction: Redaction, spawn: Spawn) -> None:
        """Begin a file, which must not exist. `part_max` is in bytes. Raises OSError."""
        self.path = path
        self.size = len(MAGIC)  # bytes of the file
        self.total = 0  # of all files since the start
        self.records = 0  # that were written
        self.lost = 0  # that were left out
        self.backlog = 0  # bytes that wait
        self.is_full = False  # the file has no room for more
        self.renewals = 0  # how often a new file was begun, or tried
        self.has_begun = False  # the file has all of what there was when it began
        self.has_ended = False  # all is written, and the file is closed
        self.failure = ""  # why nothing can be written now
        self._part_max = part_max
        self._redaction = redaction
        self._file = self._opened(path, os.O_EXCL)
        self._batches: SimpleQueue[tuple[list[Noted], int, bool] | None] = SimpleQueue()
        self._wait = spawn("recording", self._run)

    def put(self, batch: list[Noted], octets: int, renews: bool = False) -> None:
        """Have these written. `renews`: to a new file; the one so far is renamed to FILE.1, in place of one there."""
        self.backlog += octets
        self._batches.put((batch, octets, renews))

    def close(self) -> None:
        """End the file when all is written. Returns at once."""
        self._batches.put(None)

    def wait(self) -> None:
        """Wait until the file has ended, at most for CLOSING_S. Call `close` before."""
        self._wait(CLOSING_S)

    # In the thread.

    def _opened(self, path: Path, more: int = os.O_TRUNC) -> int:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | more, MODE)
        os.fchmod(file, MODE)
        os.write(file, MAGIC)
        return file

    def _run(self) -> None:
        while (job := self._batches.get()) is not None:
            batch, octets, renews = job
            try:
                if renews:
                    self._renew()
                self._write(batch)
            except Exception:
                self.lost += len(batch)
                log.exception("a mistake of ours while recording to %s", self.path)
            self.backlog -= octets
        os.close(self._file)
        self.has_ended = True

    def _renew(self) -> None:
        """Continue with an empty file. If that fails, nothing more is written until it succeeds."""
        self.renewals += 1
        try:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            fresh = self._opened(self.path)
        except OSError as failure:
            self._failed(failure)
            return
        os.close(self._file)
        self._file, self.size, self.is_full, self.has_begun = fresh, len(MAGIC), False, False

    def _write(self, batch: list[Noted]) -> None:
        payload: list[bytes] = []
        octets = count = 0
        for noted in batch:
            for record in self._records(noted):
                encoded = written(record)
                payload.append(encoded)
                octets += len(encoded)
                count += 1
                if octets >= PAYLOAD:
                    self._append(b"".join(payload), count, record.kind)
                    payload.clear()
                    octets = count = 0
        if payload:
            self._append(b"".join(payload), count, batch[-1][0])
        if any(kind is RecordKind.READY for kind, *_ in batch):
            self.has_begun = not self.is_full and not self.failure

    def _records(self, noted: Noted) -> list[SessionRecord]:
        """Return the records of one thing that happened."""
        kind, at, fields, about = noted
        if about is None:
            return [SessionRecord(kind, at, fields)]
        if not isinstance(about, Contents):
            return [SessionRecord(kind, at, fields, record_of(self._redaction.applied(about)))]
        if kind is RecordKind.LISTING:
            return [SessionRecord(kind, at, {**fields, **part}) for part in self._listed(about)]
        everything = sorted([*about.waiting, *about.delayed], key=lambda each: each.position)
        return [
            SessionRecord(
                kind,
                at,
                {**fields, "position": each.position, "redelivered": each.redelivered},
                record_of(self._redaction.applied(each.message)),
            )
            for each in everything
        ]

    def _listed(self, contents: Contents) -> list[dict[str, Json]]:
        """Return the parts of a listing; the last one has the messages that wait for a time."""
        waiting = contents.waiting
        parts: list[dict[str, Json]] = [
            {"messages": self._digests(waiting[at : at + LISTED])} for at in range(0, len(waiting), LISTED)
        ]
        return [*parts, {"messages": [], "delayed": self._digests(contents.delayed)}]

    def _digests(self, deliveries: list[Delivery]) -> list[Json]:
        return [[each.position, digest(self._redaction.applied(each.message))] for each in deliveries]

    def _append(self, payload: bytes, count: int, kind: RecordKind) -> None:
        """Append a block, unless the file is full or the disk refuses it."""
        octets = block(payload)
        is_end = kind in (RecordKind.LISTING, RecordKind.END)
        room = self._part_max if is_end else self._part_max - self._part_max // END_SHARE
        if self.size + len(octets) > room:
            self.is_full = True
            self.lost += count
            return
        try:
            self._write_all(octets)
        except OSError as failure:
            self._failed(failure)
            self.lost += count
            return
        self.failure = ""
        self.size += len(octets)
        self.total += len(octets)
        self.records += count

    def _write_all(self, octets: bytes) -> None:
        """Write all of a block, or nothing. Raises OSError."""
        try:
            view = memoryview(octets)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise

    def _failed(self, failure: OSError) -> None:
        if not self.failure:
            log.error("cannot write the recording %s: %s", self.path, failure.strerror)
        self.failure = failure.strerror or str(failure)
