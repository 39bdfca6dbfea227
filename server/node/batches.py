"""Process the batches of input of a node: a front-end takes them, the broker settles, and outboxes are sent.

    read ─> hear: Intake.receive ─> conclude: Broker.settle ─> flush every outbox with something in it

Nothing here waits, and it is compiled, as it is done for each message of a client that writes one at a time.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.broker import Broker
from leveret.durable.store.contract import StoreError
from leveret.errors import MISTAKES
from leveret.outbox import Outbox
from leveret.server.node.socket_io import READ_SIZE_MIN, SocketIO

if TYPE_CHECKING:
    from leveret.config.config import Config
    from leveret.server.node.feeds import Feeds
    from leveret.server.node.persistence import Persistence
    from leveret.server.node.term import Term
    from leveret.server.node.transport import Transport

log: Final = logging.getLogger("leveret.node")

CHECK_OCTETS: Final = 16 << 20  # bytes between checks of the memory, besides one each second: 500 MB


@mypyc_attr(allow_interpreted_subclasses=True)
class Batches:
    """The part of a node that processes batches of input."""

    broker: Broker  # set before any input

    def __init__(self, config: Config, owns_loop: bool, term: Term | None) -> None:
        self.config = config
        self.owns_loop = owns_loop
        self.term = term
        self.persistence: Persistence | None = None  # None: everything is in memory only
        self.feeds: Feeds | None = None  # those of the persistence
        # Called in the place of `hear`, by tests of programs that ask for faults (leveret.testing.faults).
        self.hears_instead: Callable[[Transport, bytes], float] | None = None
        self.ready: list[Outbox] = []  # outboxes with something to send
        self.transports: dict[Outbox, Transport] = {}
        self.fed: Transport | None = None  # the connection whose input is being processed
        self.suspended = False  # nothing is read, delivered or confirmed: another node may serve by now
        self.sending = 0  # connections whose backlog is being sent by a task
        self.octets_heard = 0  # bytes that front-ends were given
        self.unchecked = 0  # bytes read since the alarms were last checked because of them,
        self.unchecked_max = CHECK_OCTETS  # which they are after so many

    @abstractmethod
    def wake(self) -> None:
        """Have the task that keeps the time look again, soon."""

    @abstractmethod
    def has_lapsed(self) -> bool:
        """Return whether another node may serve by now, and suspend this one if so."""

    def read(self, transport: Transport) -> float:
        """Read from a connection once, and process what has come. Return when that began, in monotonic seconds.

        A connection whose front-end has halted goes on with what it has left; nothing is read from it.
        """
        line: SocketIO = transport
        data = b"" if line.halted else SocketIO.read(line)
        if not data and not line.halted:
            return self.broker.now
        instead = self.hears_instead
        now = Batches.hear(self, transport, data) if instead is None else instead(transport, data)
        if len(data) >= READ_SIZE_MIN:
            SocketIO.processed(line, len(data))
        return now

    def hear(self, transport: Transport, data: bytes) -> float:
        """Process bytes from one peer; `conclude` follows, perhaps after others. Returns when it began (monotonic)."""
        line: SocketIO = transport
        broker, feeds, intake = self.broker, self.feeds, line.intake
        assert intake is not None
        now = broker.tick()
        if feeds is not None:
            feeds.begins()
        broker.events.actor = ""
        self.fed = transport
        held = broker.held_input
        try:
            if held is None:
                intake.receive(data, now)
            else:
                front = line.front
                assert front is not None
                held.receive(front, data, now)
        except MISTAKES:
            line.end_by_mistake()
        SocketIO.watch_deadline(line)
        if feeds is not None:
            feeds.ends(transport)
        self.unchecked += len(data)
        self.octets_heard += len(data)
        return now

    def conclude(self, of_one: bool = True) -> None:
        """Settle the broker and send what a batch of input has caused; logged as its peer's if it is `of_one`."""
        if not of_one:
            self.fed = None
        feeds = self.feeds
        if feeds is not None and feeds.fed:
            feeds.conclude(self.settle_only)
        else:
            Batches.settle_only(self)
        self.fed = None
        Batches._flush(self)
        if self.unchecked >= self.unchecked_max:
            self.unchecked = 0
            self.unchecked_max = self.portion()
            self.broker.alarms.check_soon()
            self.broker.alarms.check(self.broker.now)

    def portion(self) -> int:
        """Return how many bytes may come before memory and disk are looked at again."""
        return CHECK_OCTETS if self.persistence is None else min(CHECK_OCTETS, self.persistence.portion())

    def hear_report(self, report: Callable[[], None]) -> None:
        """Handle a report of the store; an exception in it must not end the loop."""
        assert self.persistence is not None, "what reports is a store"
        try:
            report()
        except MISTAKES:
            log.exception("a mistake of ours while the store reported")
            self.persistence.journal.fail(StoreError("a report of it could not be handled"))
        self.work()

    def work(self) -> None:
        """Settle and send after something other than input has changed."""
        self.broker.tick()
        self.settle()

    def settle(self) -> None:
        """Settle the broker, and hand every outbox to the operating system."""
        self.settle_only()
        self._flush()

    def settle_only(self) -> None:
        """Settle the broker; what this causes is sent later."""
        if self.term is not None and self.has_lapsed():
            return
        try:
            self.broker.settle()
        except MISTAKES:
            log.exception("a mistake of ours while delivering")

    def _flush(self) -> None:
        if self.ready:
            ready = self.ready[:]
            self.ready.clear()
            # A publisher comes before the consumer that gets its message: it waits for the confirm, which is the last
            # that is said.
            if len(ready) == 2:
                ready.reverse()
            for outbox in ready:
                transport = self.transports.get(outbox)
                if transport is not None:
                    line: SocketIO = transport
                    SocketIO.flush(line)
        if self.broker.touched and not self.suspended:  # for an outbox with room; others come first
            self.wake()

    def has_work_left(self) -> bool:
        """Return whether a task of the node's has something to do now."""
        return self.sending > 0 or bool(self.broker.touched)
