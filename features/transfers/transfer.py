"""A transfer of messages: it opens its ends, moves messages from one to the other, and begins anew after a failure.

    starting ── both ends are open ──> running ── an end fails ──> terminated ── after a while ──> starting

Message n of the source is message n of the destination, so that a confirm names what the source may remove. With
`on-confirm` a message leaves the source when the destination has it, on disk where it has to be: a failure at any time
brings some messages twice, and loses none. What the ends report is noted, and done in a step of its own soon after,
because they report in the middle of a settle. Shovels and links of a federation are such transfers.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.errors import Failure, Unsupported
from leveret.features.transfers.definition import AMQP091, AckMode
from leveret.features.transfers.ends import (
    DestinationEnd,
    EndListener,
    Journey,
    RemoteEnds,
    SourceEnd,
    settles,
)
from leveret.message import Message

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.config.amqp_uri import Uri

TURN_S: Final = 0.001  # between a report of an end and the step that deals with it
START_S: Final = 0.01
GRACE_S: Final = 1.0  # for the confirms of the other messages, when one is refused
LOOK_S: Final = 0.05  # between two looks at a destination without room
ARRIVALS_MAX: Final = 1 << 20  # bytes that have arrived and wait for room at the destination
DOUBLED_MAX: Final = 6  # how often the delay between two attempts doubles at most
DELAY_MAX_S: Final = 60.0  # to which it grows, unless it began longer
STARTING, RUNNING, TERMINATED = "starting", "running", "terminated"


def delay_s(base_s: float, failures: int) -> float:
    """Return how long to wait after as many failures in a row."""
    return min(base_s * float(1 << min(failures - 1, DOUBLED_MAX)), max(base_s, DELAY_MAX_S))


class Transfer(EndListener):
    """A transfer from a source to a destination, which goes on until it is stopped."""

    log: ClassVar[logging.Logger]

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.definition = journey.definition
        self.state = STARTING
        self._last_reason = ""  # why it has failed, the last time
        self.is_blocked = False  # the destination has no room
        self.changed_at = journey.broker.clock.wall()
        self.forwarded = 0  # messages that the destination has
        self.remaining: int | None = None  # messages until it is complete; None: it goes on
        self._broker = journey.broker
        self._attempts = 0
        self._running_since = 0.0
        self._failures = 0  # in a row
        self._timer: Timer | None = None
        self._step_at: Timer | None = None
        self._forget()

    @abstractmethod
    def _ends(self, source: Uri, destination: Uri) -> tuple[SourceEnd, DestinationEnd]:
        """Return the ends at these addresses, which are not open yet. Raises Failure if no protocol can."""

    def _remote_ends(self, protocol: str = AMQP091) -> RemoteEnds:
        """Return what makes ends on other brokers that speak a protocol. Raises Unsupported if this node does not."""
        makers = self._broker.remote_ends
        if protocol not in makers:
            raise Unsupported(f"this node connects to no other broker with the protocol {protocol}")
        ends = makers[protocol]()
        assert isinstance(ends, RemoteEnds), "a protocol promises this"
        return ends

    @property
    @abstractmethod
    def described(self) -> str:
        """The transfer for people, without passwords."""

    def _marked(self, message: Message) -> Message:
        """Return the message as it is to be published."""
        return message

    def _complete(self) -> None:
        """Called once it has moved all that it was to move."""

    def _forget(self) -> None:
        self._source: SourceEnd | None = None
        self._destination: DestinationEnd | None = None
        self._open = 0  # ends
        self._arrived: deque[Message] = deque()
        self._octets = 0  # of what has arrived
        self._confirms: list[tuple[int, bool]] = []
        self._failure = ""
        self._number = 0  # of the last message published
        self._unconfirmed: dict[int, None] = {}
        self._refused: dict[int, str] = {}  # messages, and why
        self._gives_up_at: float | None = None  # if the others are not confirmed by then
        self._to_publish: int | None = self.remaining

    # Beginning and end.

    def begin(self) -> None:
        """Start soon: at the start of a node, when everything else is there."""
        self._timer = self._broker.timers.at(self._broker.now + START_S, self.start)

    def start(self, _now: float = 0.0) -> None:
        """Open both ends, each at the next of its URIs."""
        definition = self.definition
        source = definition.source.uris[self._attempts % len(definition.source.uris)]
        destination = definition.destination.uris[self._attempts % len(definition.destination.uris)]
        self._attempts += 1
        self._set(STARTING)
        try:
            self._source, self._destination = self._ends(source, destination)
        except Failure as failure:
            self._failure = str(failure)
            self._soon()
            return
        for end in (self._destination, self._source):
            end.open()

    def stop(self) -> None:
        """Close both ends, and do nothing more."""
        timers = self._broker.timers
        timers.cancel(self._timer)
        timers.cancel(self._step_at)
        self._timer = self._step_at = None
        self._close()

    def restart(self) -> None:
        self.stop()
        self._failures = 0
        self.start()

    @property
    def reason(self) -> str:
        """The reason why it has failed, until it runs again."""
        return "" if self.is_running else self._last_reason

    @property
    def is_running(self) -> bool:
        """Return whether both ends are open."""
        return self.state is RUNNING

    def _close(self) -> None:
        source, destination = self._source, self._destination
        self._forget()
        for end in (source, destination):
            if end is not None:
                end.close()

    def _set(self, state: str) -> None:
        self.state, self.changed_at = state, self._broker.clock.wall()

    # What the ends report.

    def opened(self, waiting: int | None) -> None:
        self._open += 1
        if waiting is not None and self.remaining is None and self.definition.delete_after is not None:
            bound = self.definition.delete_after
            self.remaining = self._to_publish = waiting if isinstance(bound, str) else bound
        self._soon()

    def arrived(self, message: Message) -> None:
        self._arrived.append(message)
        self._octets += message.size
        self._soon()

    def room(self) -> int:
        return ARRIVALS_MAX - self._octets

    def confirmed(self, number: int, multiple: bool) -> None:
        self._confirms.append((number, multiple))
        self._soon()

    def refused(self, number: int, reason: str) -> None:
        self._refused[number] = reason
        self._soon()

    def failed(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._soon()

    def go_on(self) -> None:
        self._soon()

    def _soon(self, after_s: float = TURN_S) -> None:
        at = self._broker.now + after_s
        if self._step_at is None or self._step_at.at > at:
            self._broker.timers.cancel(self._step_at)
            self._step_at = self._broker.timers.at(at, self._step)

    # A step.

    def _step(self, now: float) -> None:
        self._step_at = None
        try:
            if not self._failure:
                self._go_on()
        except Failure as failure:
            self._failure = self._failure or str(failure)
        except Exception:
            self.log.exception("a mistake of ours in %s", self.described)
            self._failure = self._failure or "a mistake of ours, which the log has"
        if self._failure:
            self._fail(now)
        elif self.remaining == 0 and self.state is RUNNING:
            self.log.info("%s has moved what it was to move, and is deleted", self.described)
            self._complete()

    def _go_on(self) -> None:
        source, destination = self._source, self._destination
        if source is None or destination is None:
            return
        for number, multiple in self._taken_confirms():
            self._confirm(source, number, multiple)
        if self._open < 2:
            return
        if self.state is not RUNNING:
            self._set(RUNNING)
            self._running_since = self._broker.now
            if not self._failures:
                self.log.info("%s runs", self.described)
        while self._arrived and not self._failure and not self._refused and destination.has_room():
            self._forward(source, destination, self._arrived.popleft())
        if self._refused:
            self._conclude()
            return
        self.is_blocked = bool(self._arrived)
        if self.is_blocked:
            source.pause()
            self._soon(LOOK_S)
        else:
            source.resume()

    def _conclude(self) -> None:
        """Fail because of a refused message, once the others on their way are confirmed, or were given time for it."""
        if self._gives_up_at is None:
            self._gives_up_at = self._broker.now + GRACE_S
        if self._unconfirmed.keys() <= self._refused.keys() or self._broker.now >= self._gives_up_at:
            self._failure = next(iter(self._refused.values()))
        else:
            self._soon(LOOK_S)

    def _taken_confirms(self) -> list[tuple[int, bool]]:
        confirms, self._confirms = self._confirms, []
        return confirms

    def _forward(self, source: SourceEnd, destination: DestinationEnd, message: Message) -> None:
        self._octets -= message.size
        if self._to_publish == 0:
            return  # it returns to the source at the end
        if self._to_publish is not None:
            self._to_publish -= 1
        self._number += 1
        destination.publish(self._marked(message))
        if self.definition.ack_mode is AckMode.ON_CONFIRM:
            self._unconfirmed[self._number] = None
            return
        if not settles(self.journey):
            source.accept(self._number, False)
        self._done(1)

    def _confirm(self, source: SourceEnd, number: int, multiple: bool) -> None:
        if self._refused and multiple:
            for each in [each for each in self._unconfirmed if each <= number]:
                self._confirm(source, each, False)
            return
        if not multiple:
            if number in self._unconfirmed and number not in self._refused:
                del self._unconfirmed[number]
                source.accept(number, False)
                self._done(1)
            return
        count = 0
        while self._unconfirmed and (first := next(iter(self._unconfirmed))) <= number:
            del self._unconfirmed[first]
            count += 1
        if count:
            source.accept(number, True)
            self._done(count)

    def _done(self, count: int) -> None:
        self.forwarded += count
        if self._failures:
            self.log.info("%s goes on", self.described)
            self._failures = 0
        if self.remaining is not None:
            self.remaining -= count

    # Failures.

    def _fail(self, now: float) -> None:
        reason, base_s = self._failure, self.definition.reconnect_s
        if self.state is RUNNING and now - self._running_since >= DELAY_MAX_S:
            self._failures = 0
        is_news = reason != self._last_reason or not self._failures
        self._close()
        self._failures += 1
        self._last_reason = reason
        self.is_blocked = False
        self._set(TERMINATED)
        if is_news:
            after = "" if base_s is not None else "; it does not try again"
            self.log.warning("%s has failed: %s%s", self.described, reason, after)
        if base_s is not None:
            self._timer = self._broker.timers.at(now + delay_s(base_s, self._failures), self.start)
