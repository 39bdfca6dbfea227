"""The recordings of a node: begins and ends them, and bounds what they take.

One virtual host has one recording at a time. Its file is in the folder of the settings, and only its owner can read it.
Whoever begins a recording over HTTP can ask for less than the settings allow, and for more to be redacted, not for
less. Beginning and end are events, which the audit log has.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote

import attrs

from leveret.errors import NotFound, PreconditionFailed
from leveret.features.recording.recorder import NOTE_OCTETS, Recorder
from leveret.features.recording.redaction import Redaction
from leveret.features.recording.writer import RecordingWriter, Spawn
from leveret.guests import Guest
from leveret.observability.events import Event, EventListener
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.virtual_host import VirtualHost

log: Final = logging.getLogger("leveret.node")

SUFFIX: Final = ".leveretrec"
ROTATE: Final = "rotate"
STOP: Final = "stop"
SIZE_LEAST: Final = 1 << 20  # bytes of a recording


@attrs.frozen
class Plan:
    """The way in which a virtual host is recorded. Sizes are in bytes."""

    folder: Path | None
    max_bytes: int
    when_full: str = ROTATE  # go on in a new file, and keep the one before; or STOP
    redaction: Redaction = attrs.field(factory=Redaction)

    @property
    def part_max(self) -> int:
        """The bytes of one file: two of them are kept when they are rotated."""
        return self.max_bytes // 2 if self.when_full == ROTATE else self.max_bytes


class Recordings(EventListener, Guest):
    """The recordings of one broker."""

    rank: ClassVar[int] = 10  # what it notes at the end is there still

    def __init__(self, broker: Broker, spawn: Spawn) -> None:
        """`spawn` starts the thread that writes a recording."""
        self._broker = broker
        self._spawn = spawn
        self._running: dict[str, tuple[Recorder, Plan]] = {}
        # Of recordings that are over, as far as they may still write.
        self._ending: list[RecordingWriter] = []
        broker.events.listeners.append(self)

    def begin(self, host: VirtualHost, plan: Plan) -> dict[str, Json]:
        """Record a virtual host from now on, and return what `status` says of it.

        Raises PreconditionFailed if it is recorded already, there is no folder, the folder cannot be written to, or
        what is in its queues would take more than half of a file.
        """
        if host.name in self._running:
            raise PreconditionFailed(f"vhost '{host.name}' is being recorded already")
        if plan.folder is None:
            raise PreconditionFailed("there is no folder for recordings: set record.folder, or node.data_dir")
        queues = host.queues.values()
        octets = sum(each.ready_bytes + NOTE_OCTETS * (each.ready + each.delayed) for each in queues)
        if octets > plan.part_max // 2:
            raise PreconditionFailed(
                f"the queues of vhost '{host.name}' have some {octets} bytes of messages, which a recording begins "
                f"with; that is more than half of a file of {plan.part_max} bytes (max_bytes)"
            )
        wall = datetime.fromtimestamp(self._broker.clock.wall(), UTC)
        name = f"{quote(host.name, safe='')[:100]}-{wall:%Y%m%dT%H%M%S%f}{SUFFIX}"
        try:
            plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            writer = RecordingWriter(plan.folder / name, plan.part_max, plan.redaction, self._spawn)
        except OSError as failure:
            raise PreconditionFailed(f"cannot write to {plan.folder}: {failure.strerror}") from None
        operations = self._broker.operations
        fields: dict[str, Json] = {
            "node": "" if operations is None else operations.name,
            "redacted": plan.redaction.to_json(),
        }
        recorder = Recorder(host, writer, fields, lambda: self._full(host.name))
        self._running[host.name] = (recorder, plan)
        recorder.start()
        self._tell("recording.started", recorder)
        log.info("vhost '%s' is recorded to %s", host.name, writer.path)
        return self.status(host.name)

    def end(self, virtual_host: str, is_gone: bool = False) -> dict[str, Json]:
        """End the recording of a virtual host, and return what `status` says of it. Raises NotFound.

        The file is complete a moment later. `is_gone`: the virtual host has been deleted.
        """
        told = self.status(virtual_host)
        recorder, _ = self._running.pop(virtual_host)
        recorder.stop(is_gone)
        self._ending = [each for each in self._ending if not each.has_ended]
        self._ending.append(recorder.writer)
        self._tell("recording.stopped", recorder)
        log.info("vhost '%s' is not recorded any more", virtual_host)
        return told

    def close(self) -> None:
        """End all recordings, and wait until their files are complete. Called when the node ends."""
        for name in list(self._running):
            self.end(name)
        for writer in self._ending:
            writer.wait()

    def status(self, virtual_host: str) -> dict[str, Json]:
        """Return where a virtual host is recorded, and how far. Raises NotFound if it is not."""
        if virtual_host not in self._running:
            raise NotFound(f"vhost '{virtual_host}' is not being recorded")
        recorder, plan = self._running[virtual_host]
        writer = recorder.writer
        return {
            "vhost": virtual_host,
            "file": str(writer.path),
            "bytes": writer.size,
            "bytes_written": writer.total,
            "max_bytes": plan.max_bytes,
            "when_full": plan.when_full,
            "records": writer.records,
            "lost": recorder.lost,
            "gaps": recorder.gaps,
            "failure": writer.failure,
            "redacted": plan.redaction.to_json(),
        }

    def all(self) -> list[Json]:
        """Return the status of each recording."""
        return [self.status(name) for name in sorted(self._running)]

    def on_event(self, event: Event) -> None:
        if event.name == "vhost.deleted" and event.virtual_host in self._running:
            self.end(event.virtual_host, is_gone=True)

    def _full(self, virtual_host: str) -> None:
        recorder, plan = self._running[virtual_host]
        if plan.when_full == ROTATE and recorder.writer.has_begun:
            recorder.renew()
            return
        if not recorder.writer.has_begun:
            log.error("what is in the queues of vhost '%s' does not fit into a recording", virtual_host)
        self.end(virtual_host)

    def _tell(self, name: str, recorder: Recorder) -> None:
        facts: dict[str, Json] = {"name": recorder.host.name, "file": str(recorder.writer.path)}
        self._broker.events.happened(name, recorder.host.name, facts)
