"""The contract between a transfer and its two ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from leveret.features.transfers.definition import AckMode
from leveret.message import Message

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.amqp_uri import Uri
    from leveret.exchanges.exchange_type import Binding
    from leveret.features.federation.feed import ExchangeFeed, QueueFeed
    from leveret.features.transfers.definition import Definition, EndSettings

NOBODY: Final = ""  # the user of a transfer whose user was deleted
REFUSES: Final = "the destination refuses messages"


@attrs.frozen
class Journey:
    """The facts of a transfer that both of its ends need: its name, its settings, and whose permissions it has."""

    broker: Broker
    name: str
    title: str  # the name of its connections and of its consumers on this node
    virtual_host: str
    user: str  # whose permissions hold on this node
    definition: Definition

    def virtual_host_at(self, uri: Uri) -> str:
        """Return the virtual host of an address; it is that of the transfer if the address names none."""
        return self.virtual_host if uri.virtual_host is None else uri.virtual_host


class EndListener(ABC):
    """The transfer, as its ends see it. Each method may be called at any time while the broker settles; none raises."""

    @abstractmethod
    def opened(self, waiting: int | None) -> None:
        """Called when an end is ready; `waiting` is the number of messages at the source, None at the destination."""

    @abstractmethod
    def arrived(self, message: Message) -> None:
        """Called by the source with each message, in order; the first is number 1."""

    @abstractmethod
    def room(self) -> int:
        """Return how many more bytes may arrive now; at 0 or less the source waits for `resume`."""

    @abstractmethod
    def confirmed(self, number: int, multiple: bool) -> None:
        """Called when the destination has message `number`, and with `multiple` all before it."""

    @abstractmethod
    def refused(self, number: int, reason: str) -> None:
        """Called when the destination refuses message `number`. The transfer publishes no more, and begins anew."""

    @abstractmethod
    def failed(self, reason: str) -> None:
        """Called when an end has failed; the transfer closes both. The reason has no password."""

    @abstractmethod
    def go_on(self) -> None:
        """Called when the destination may have room again."""


class TransferEnd(ABC):
    """One end. Nothing may be called after `close`."""

    @abstractmethod
    def open(self) -> None:
        """Begin; `opened` or `failed` follows, perhaps at once."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. What the source has delivered and was not accepted waits there again."""


class SourceEnd(TransferEnd):
    """The end that messages come from."""

    @abstractmethod
    def accept(self, number: int, multiple: bool) -> None:
        """Remove message `number` from the source, and with `multiple` all before it."""

    @abstractmethod
    def pause(self) -> None:
        """Deliver nothing until `resume`; a few messages that are on their way may still come."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver again."""


class DestinationEnd(TransferEnd):
    """The end that messages go to."""

    @abstractmethod
    def publish(self, message: Message) -> None:
        """Publish a message, with the next number. On confirm, `confirmed` follows, `refused` or `failed`."""

    @abstractmethod
    def has_room(self) -> bool:
        """Return whether it takes more now."""


class ExchangeFeedEnd(SourceEnd):
    """The source of a link of a federated exchange. It reads the bindings that there are when it opens."""

    @abstractmethod
    def bound(self, binding: Binding) -> None:
        """Bind the exchange upstream as this new binding asks for."""

    @abstractmethod
    def unbound(self, binding: Binding) -> None:
        """Remove the binding upstream that this one, which has been removed, no longer asks for."""

    @abstractmethod
    def remove(self) -> None:
        """Delete the queue and the exchange that the link has upstream, and close. Nothing may be called after it."""


class QueueFeedEnd(SourceEnd):
    """The source of a link of a federated queue. It consumes while it is asked to."""

    @abstractmethod
    def run(self, wanted: bool) -> None:
        """Begin to consume, or consume no more. What is on its way still comes."""


@attrs.frozen
class RemoteEnds:
    """Functions that make the ends of shovels on other brokers; `Uri` is the one to use this time."""

    source: Callable[[Journey, Uri, EndListener], SourceEnd]
    destination: Callable[[Journey, Uri, EndListener], DestinationEnd]


@attrs.frozen
class FeedEnds(RemoteEnds):
    """The same with those of links of a federation."""

    exchange_feed: Callable[[ExchangeFeed, Journey, Uri, EndListener], ExchangeFeedEnd]
    queue_feed: Callable[[QueueFeed, Journey, Uri, EndListener], QueueFeedEnd]


def end_named(end: EndSettings) -> str:
    """Return the address, queue or exchange of an end, for people."""
    if end.address is not None:
        return f"address '{end.address}'"
    if end.queue is not None:
        return f"queue '{end.queue}'"
    return "the exchanges of the messages" if end.exchange is None else f"exchange '{end.exchange}'"


def goes_nowhere(end: EndSettings, exchange: str, key: str) -> str:
    """Return the reason why a destination cannot have a message that gets into no queue there."""
    if end.queue is not None:
        return "the destination queue is not there"
    return f"exchange '{exchange}' of the destination routes a message with the key '{key[:100]}' to no queue"


def settles(journey: Journey) -> bool:
    """Return whether messages leave the source as they are delivered.

    Not if a number of them is to be moved: those beyond it would be lost.
    """
    definition = journey.definition
    return definition.ack_mode is AckMode.NO_ACK and definition.delete_after is None
