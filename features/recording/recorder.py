"""Notes what happens in one virtual host, and hands it to the thread that writes it.

    publish ───> Tracer ─────────> published ───────────────┐
    queues ────> QueueObserver ──> entered, returned, left ─┼─> a list, some times a second ─> RecordingWriter
    dispatch ──> Tracer ─────────> delivered ───────────────┤
    topology ──> Events ─────────> on_event ────────────────┘

A recording begins with the topology and with the messages that are in queues, so that what follows leads from there
to any later moment. It begins anew like that after a gap, in the same file, and in each file when these are rotated. A
gap comes about where the writer cannot follow: then records are left out, and no client waits.

A virtual host that is not recorded pays nothing: what is told here goes through the tracer, and through the observer of
each queue, which are absent then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from leveret.durable.store.typed_json import written_table, written_text
from leveret.features.recording import description
from leveret.features.recording.records import RecordKind
from leveret.features.recording.writer import Contents, Noted, RecordingWriter
from leveret.features.xa.branches import Branches
from leveret.observability.events import Event, EventListener
from leveret.queues.counted_queue import CountedQueue
from leveret.queues.observer import QueueObserver
from leveret.queues.work_queue import WorkQueue
from leveret.values import Json
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.delivery import Delivery
    from leveret.message import Message
    from leveret.observability.connection_stats import ConsumerFacts
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost

RECORDING: Final = "recording"
log: Final = logging.getLogger("leveret.node")

FLUSH_S: Final = 0.1  # what was noted is handed over after so long at the latest
FLUSH_OCTETS: Final = 1 << 20
AGAIN_S: Final = 5.0  # after the disk has refused something
MEMORY_MAX: Final = 32 << 20  # bytes that may wait for the disk
NOTE_OCTETS: Final = 400  # of memory for one thing that is noted, besides its message
OF_INTEREST: Final = (
    "queue.",
    "exchange.",
    "binding.",
    "policy.",
    "vhost.limits.",
    "consumer.",
    "connection.",
)


class Recorder(EventListener):
    """The recording of one virtual host."""

    def __init__(
        self,
        host: VirtualHost,
        writer: RecordingWriter,
        fields: dict[str, Json],
        on_full: Callable[[], None],
        memory_max: int = MEMORY_MAX,
    ) -> None:
        """`fields` is what the first record of each file tells besides. `memory_max` is in bytes.

        `on_full` is called when the file is full: to call `renew`, or `stop`.
        """
        self.host = host
        self.writer = writer
        self.lost = 0  # things that were not noted, or left out by the writer
        self.gaps = 0
        self._said = fields
        self._on_full = on_full
        self._memory_max = memory_max
        self._broker = host.broker
        self._batch: list[Noted] = []
        self._octets = 0
        self._serial = 0
        self._last: Message | None = None  # the message that was published last
        self._watched: dict[str, tuple[Queue, RecordedQueue]] = {}
        self._timer: Timer | None = None
        self._is_broken = False  # nothing is noted until everything is described anew
        self._lost_before = 0  # of the writer's
        self._renewals = 0  # that the writer was asked for
        self._again_at = 0.0  # when to try again after a gap, in monotonic seconds
        self._ahead_s = 0.0  # of the time of day before the monotonic one

    # Start and end.

    def start(self) -> None:
        """Describe everything, and note what happens from now on."""
        self._read_clock()
        self._describe()
        self._broker.events.listeners.append(self)
        self.host.observe(RECORDING, self)
        self._timer = self._broker.timers.at(self._broker.now + FLUSH_S, self._on_time)

    def stop(self, is_gone: bool = False) -> None:
        """Note what there is at the end, and stop. The writer goes on until all is written. `is_gone`: deleted."""
        self._read_clock()
        self._broker.timers.cancel(self._timer)
        self._broker.events.listeners.remove(self)
        self.host.observe(RECORDING, None)
        for queue, _ in self._watched.values():
            queue.observe(None)
        if not self._is_broken and not is_gone:
            self._note(RecordKind.TOPOLOGY, description.topology_json(self.host))
            for queue in self.host.queues.values():
                self._note(RecordKind.LISTING, self._fields_at_end(queue), _contents(queue))
        self._note(RecordKind.END, {"complete": not self._is_broken and not is_gone})
        self._hand_over()
        self._watched.clear()
        self.writer.close()

    def _fields_at_end(self, queue: Queue) -> dict[str, Json]:
        # What a prepared branch holds is not told apart.
        count = None if len(self.host.guest(Branches)) else self._unsettled(queue)
        return {"queue": written_text(queue.name), "unsettled": count}

    def _unsettled(self, queue: Queue) -> int:
        """Return how many messages are unacknowledged, without those that a lease has: these have left the queue."""
        return queue.unsettled - self.host.reserved(queue)

    def _describe(self) -> None:
        """Note the topology and all messages in queues."""
        host = self.host
        self._last = None
        self._note(RecordKind.BEGIN, {"vhost": written_text(host.name), "version": VERSION, **self._said})
        self._note(RecordKind.TOPOLOGY, description.topology_json(host))
        unsettled: dict[str, Json] = {}
        for queue in host.queues.values():
            self._watch(queue)
            if count := self._unsettled(queue):
                unsettled[queue.name] = count
            self._note(RecordKind.CONTENT, {"queue": written_text(queue.name)}, _contents(queue))
        self._note(RecordKind.READY, {"unsettled": unsettled})

    def _watch(self, queue: Queue) -> None:
        observer = RecordedQueue(self, queue, self._broker.now)
        self._watched[queue.name] = (queue, observer)
        queue.observe(observer)

    # Noting.

    def note(self, kind: RecordKind, fields: dict[str, Json], message: Message | None = None) -> None:
        """Note one thing that happened now, and the message that it was about."""
        if self._is_broken:
            self.lost += 1
            return
        self._note(kind, fields, message)
        if self._octets > FLUSH_OCTETS:
            self._hand_over()

    def _note(
        self, kind: RecordKind, fields: dict[str, Json], about: Message | Contents | None = None
    ) -> None:
        self._batch.append((kind, int((self._broker.now + self._ahead_s) * 1e6), fields, about))
        self._octets += NOTE_OCTETS
        if isinstance(about, Contents):
            # their bodies are there anyway
            self._octets += NOTE_OCTETS * (len(about.waiting) + len(about.delayed))
        elif about is not None:
            self._octets += about.size + len(about.properties)

    def serial_of(self, message: Message) -> int | None:
        """Return the number of a message that was just published; None if it came another way."""
        return self._serial if message is self._last else None

    def _hand_over(self) -> None:
        batch, octets, self._batch, self._octets = self._batch, self._octets, [], 0
        if not batch:
            return
        if self.writer.backlog and self.writer.backlog + octets > self._memory_max:
            self._break(len(batch), "the disk cannot follow")
            return
        self.writer.put(batch, octets)

    def _break(self, lost: int, why: str) -> None:
        """Note nothing more until the writer has caught up."""
        self.lost += lost
        if not self._is_broken:
            self._is_broken = True
            self.gaps += 1
            self._again_at = self._broker.now + (AGAIN_S if self.writer.failure else 0.0)
            log.warning("the recording of vhost '%s' has a gap: %s", self.host.name, why)

    def _on_time(self, now: float) -> None:
        self._read_clock()
        self._hand_over()
        writer = self.writer
        if writer.is_full and writer.renewals == self._renewals:
            self._timer = self._broker.timers.at(now + FLUSH_S, self._on_time)
            self._on_full()
            return
        if lost := writer.lost - self._lost_before:
            self._lost_before += lost
            self._break(lost, writer.failure or "records were left out")
        if self._is_broken and not writer.backlog and now >= self._again_at:
            self._is_broken = False
            self._note(RecordKind.GAP, {"lost": self.lost})
            self._describe()
            self._hand_over()
        self._timer = self._broker.timers.at(now + FLUSH_S, self._on_time)

    def renew(self) -> None:
        """Go on in a new file, which begins with a description of everything."""
        self._hand_over()
        self.lost += self.writer.lost - self._lost_before
        self._lost_before = self.writer.lost
        self._is_broken = False
        self._describe()
        batch, octets, self._batch, self._octets = self._batch, self._octets, [], 0
        self._renewals += 1
        self.writer.put(batch, octets, renews=True)

    def _read_clock(self) -> None:
        clock = self._broker.clock
        self._ahead_s = clock.wall() - clock.now()

    # What is told here.

    def wants(self, message: Message) -> bool:
        return True

    def published(self, message: Message, queues: tuple[Queue, ...]) -> None:
        self._serial += 1
        self._last = message
        operations = self._broker.operations
        fed = None if operations is None else operations.fed
        names: list[Json] = [written_text(queue.name) for queue in queues]
        fields: dict[str, Json] = {"serial": self._serial, "queues": names}
        if fed is not None:
            fields["connection"] = fed.peer.name
        self.note(RecordKind.PUBLISHED, fields, message)

    def delivered(self, queue: CountedQueue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        taken = list(deliveries)
        again: list[Json] = [each.position for each in taken if each.redelivered]
        fields: dict[str, Json] = {
            "queue": written_text(queue.name),
            "positions": [each.position for each in taken],
            "connection": who.connection,
            "channel": who.channel,
            "consumer": who.tag,
        }
        if again:
            fields["redelivered"] = again
        self.note(RecordKind.DELIVERED, fields)

    def on_event(self, event: Event) -> None:
        if event.virtual_host != self.host.name or not event.name.startswith(OF_INTEREST):
            return
        facts = written_table(event.facts)
        assert isinstance(facts, dict), "a table is an object"
        name = event.facts.get("name")
        if event.name == "queue.created" and isinstance(name, str):
            queue = self.host.queues[name]
            self._watch(queue)
            facts = description.queue_json(queue)
        elif event.name == "exchange.created" and isinstance(name, str):
            facts = description.exchange_json(self.host.exchanges[name])
        elif event.name == "queue.deleted" and isinstance(name, str) and name in self._watched:
            self._watched.pop(name)[0].observe(None)
        self.note(RecordKind.EVENT, {"event": event.name, "actor": event.actor, "facts": facts})


class RecordedQueue(QueueObserver):
    """Notes what comes into one queue and leaves it."""

    def __init__(self, recorder: Recorder, queue: Queue, since: float) -> None:
        self._recorder = recorder
        self._name = written_text(queue.name)
        self._since = since  # deliveries from before that are not answered are not known
        self._reason = ""

    def entered(self, delivery: Delivery) -> None:
        self._entered(delivery.position, delivery.message)

    def entered_all(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._entered(delivery.position, delivery.message)

    def appended(self, offset: int, message: Message) -> None:
        self._entered(offset, message)

    def _entered(self, position: int, message: Message) -> None:
        serial = self._recorder.serial_of(message)
        fields: dict[str, Json] = {"queue": self._name, "position": position}
        if serial is not None:
            fields["serial"] = serial
        self._recorder.note(RecordKind.ENTERED, fields, message if serial is None else None)

    def acquired(self, delivery: Delivery) -> None:
        self._recorder.note(RecordKind.DELIVERED, {"queue": self._name, "positions": [delivery.position]})

    def returned(self, delivery: Delivery) -> None:
        fields: dict[str, Json] = {
            "queue": self._name,
            "position": delivery.position,
            "redelivered": delivery.redelivered,
        }
        self._recorder.note(
            RecordKind.RETURNED, fields, delivery.message if delivery.given_at <= self._since else None
        )

    def dies(self, delivery: Delivery, reason: str) -> None:
        self._reason = reason

    def left(self, delivery: Delivery) -> None:
        fields: dict[str, Json] = {"queue": self._name, "position": delivery.position}
        if self._reason:
            fields["reason"], self._reason = self._reason, ""
        self._recorder.note(RecordKind.LEFT, fields)

    def purged(self) -> None:
        self._recorder.note(RecordKind.PURGED, {"queue": self._name})


def _contents(queue: Queue) -> Contents:
    """Return the messages in a queue, read from disk where they are there only."""
    later = queue.schedule.look() if isinstance(queue, WorkQueue) and queue.schedule is not None else []
    return Contents(list(queue.waiting()), later)
