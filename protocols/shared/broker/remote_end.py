"""The ends of transfers on other brokers, whatever protocol they speak: dialling, waiting, and their end.

open ─> dial ─> `_client_on`: the protocol's client ─> it speaks first ─> ... ─> `_failed`, or `close`
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from leveret.features.transfers.ends import EndListener, Journey, TransferEnd
from leveret.front_end import Dial, FrontEnd
from leveret.protocols.shared.machine.client_machine import ClientMachine

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri
    from leveret.outbox import Outbox


C = TypeVar("C", bound=ClientMachine)


class Link(FrontEnd, Generic[C]):
    """A connection that the node has opened to another broker."""

    def __init__(self, client: C, outbox: Outbox, description: str) -> None:
        self.outbox = outbox
        self.client = client
        self.halted = True  # it begins by itself
        self.drain = nothing
        self.description = description

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.client.closed

    def receive(self, data: bytes, now: float) -> None:
        if self.halted:
            self.halted = False
            self.client.begin()
        if data:
            self.client.receive(data, now)

    def lost(self) -> None:
        self.client.lost()

    def deadline(self) -> float | None:
        return self.client.deadline()

    def on_deadline(self, now: float) -> None:
        self.client.on_deadline(now)

    def drained(self) -> None:
        self.drain()

    def shut_down(self, reason: str) -> None:
        self.client.close(reason)

    def pause(self) -> None:
        """Do not read, until `resume`."""
        if not self.throttled:
            self.throttled = True
            self.client.pause_monitor()

    def resume(self, now: float) -> None:
        if self.throttled:
            self.throttled = False
            self.client.resume_monitor(now)
            if self.on_resume is not None:
                self.on_resume()


def nothing() -> None:
    """Do nothing: an end that does not wait for room."""


class RemoteEnd(TransferEnd, Generic[C]):
    """The base of all ends on other brokers."""

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        self._journey = journey
        self._uri = uri
        self._listener = listener
        self._link: Link[C] | None = None
        self._is_closed = False

    @abstractmethod
    def _client_on(self, outbox: Outbox, now: float, body_size_max: int) -> Link[C]:
        """Return the connection with its client."""

    def open(self) -> None:
        operations = self._journey.broker.operations
        if operations is None:
            self._listener.failed("this broker does not run in a node, and cannot connect to another")
        else:
            operations.dial(Dial(self._uri, self._front, self._failed))

    def _front(self, outbox: Outbox, now: float, body_size_max: int) -> FrontEnd | None:
        if self._is_closed:
            return None
        self._link = self._client_on(outbox, now, body_size_max)
        return self._link

    def close(self) -> None:
        self._is_closed = True
        if self._link is not None:
            link, self._link = self._link, None
            link.client.close(f"{self._journey.title} has ended")
            link.resume(self._journey.broker.now)

    def _failed(self, reason: str) -> None:
        if not self._is_closed:
            self._listener.failed(f"{self._uri.shown}: {reason}")

    def on_end(self, reason: str) -> None:
        self._failed(reason)

    def pause(self) -> None:
        """Have a source wait: the connection is not read."""
        if self._link is not None:
            self._link.pause()

    def resume(self) -> None:
        if self._link is not None:
            self._link.resume(self._journey.broker.now)
