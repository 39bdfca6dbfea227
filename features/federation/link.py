"""The links of federated exchanges and queues: transfers from one upstream to one exchange or queue here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.config.amqp_uri import parse
from leveret.exchanges.routing import ask
from leveret.features.federation.local import LocalExchangeFeed, LocalQueueFeed
from leveret.features.transfers.definition import Definition, EndSettings
from leveret.features.transfers.ends import (
    DestinationEnd,
    ExchangeFeedEnd,
    FeedEnds,
    Journey,
    QueueFeedEnd,
    SourceEnd,
)
from leveret.features.transfers.local import LocalDestination
from leveret.features.transfers.transfer import TURN_S, Transfer

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.config.amqp_uri import Uri
    from leveret.exchanges.exchange_type import Binding, Exchange
    from leveret.features.federation.feed import ExchangeFeed, QueueFeed
    from leveret.features.federation.upstream import Upstream
    from leveret.message import Message

HERE: Final = parse("amqp://")


class FederationLink(Transfer):
    """A link. `feed` says what it asks of its upstream."""

    log: ClassVar[logging.Logger] = logging.getLogger("leveret.federation")
    kind: ClassVar[str]

    def __init__(self, broker: Broker, feed: ExchangeFeed | QueueFeed, virtual_host: str, user: str) -> None:
        """The link acts on this node as `user`, who has set the upstream."""
        self.upstream: Upstream = feed.upstream
        self.there = feed.name
        self.unwanted = 0  # messages that were dropped, since no binding here asks for them any more
        title = f"Federation link (upstream: {feed.upstream.name})"
        super().__init__(Journey(broker, feed.upstream.name, title, virtual_host, user, self._definition()))

    @property
    def name(self) -> str:
        """The exchange or queue here."""
        raise NotImplementedError

    def _definition(self) -> Definition:
        upstream = self.upstream
        is_queue = self.kind == "queue"
        here, there = (self.name, self.there) if is_queue else (None, None)
        exchange, other = (None, None) if is_queue else (self.name, self.there)
        return Definition(
            EndSettings(upstream.uris, there, other, None, {}, predeclared=False),
            EndSettings((HERE,), here, exchange, None, {}, predeclared=True),
            upstream.ack_mode,
            upstream.prefetch,
            consumer_arguments={},
            delete_after=None,
            reconnect_s=upstream.reconnect_s,
            trusts_user_id=True,  # the feed has dropped it, unless it is trusted
        )

    def _feed_ends(self) -> FeedEnds:
        """Return what makes the sources of links. Raises Unsupported if no protocol can."""
        ends = self._remote_ends()
        assert isinstance(ends, FeedEnds), "AMQP 0-9-1 has them"
        return ends

    @property
    def names(self) -> tuple[str, ...]:
        """The virtual host, the kind, the exchange or queue here, the upstream, and the exchange or queue there."""
        return self.journey.virtual_host, self.kind, self.name, self.upstream.name, self.there

    @property
    def id(self) -> str:
        """Eight digits by which the link is named in the API; the same for as long as its names are."""
        return blake2b("\0".join(self.names).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()

    def end(self, removes: bool) -> None:
        """Stop; `removes`: what the link has upstream is not needed any more."""
        self.stop()

    @property
    def described(self) -> str:
        host, upstream = self.journey.virtual_host, self.upstream
        there = "" if self.there == self.name else f", {self.kind} '{self.there}' there"
        return f"link of {self.kind} '{self.name}' in vhost '{host}' (upstream '{upstream.name}'{there})"


class LinkDestination(LocalDestination):
    """The exchange here that a link publishes to."""

    def __init__(self, link: FederationLink, uri: Uri) -> None:
        super().__init__(link.journey, uri, link)
        self._link = link

    def _keeps(self, exchange: Exchange, message: Message) -> bool:
        """Return whether a binding here still asks for a message; one that none asks for any more is dropped."""
        answer, error = ask(exchange, message, None)
        if answer or error:
            return True
        self._link.unwanted += 1
        return False


class ExchangeLink(FederationLink):
    """A link of a federated exchange."""

    kind: ClassVar[str] = "exchange"

    def __init__(self, broker: Broker, feed: ExchangeFeed, virtual_host: str, user: str) -> None:
        self.feed = feed
        self._changes: list[tuple[Binding, bool]] = []  # that have not gone upstream yet; True: it is there
        self._change_at: Timer | None = None
        super().__init__(broker, feed, virtual_host, user)

    @property
    def name(self) -> str:
        return self.feed.exchange.name

    def _ends(self, source: Uri, destination: Uri) -> tuple[SourceEnd, DestinationEnd]:
        make: Callable[[ExchangeFeed, Journey, Uri, ExchangeLink], ExchangeFeedEnd]
        make = LocalExchangeFeed if source.is_local else self._feed_ends().exchange_feed
        return make(self.feed, self.journey, source, self), LinkDestination(self, destination)

    def bound(self, binding: Binding) -> None:
        self._change(binding, True)

    def unbound(self, binding: Binding) -> None:
        self._change(binding, False)

    def _change(self, binding: Binding, is_there: bool) -> None:
        """Have a change go upstream soon: now is in the middle of a change of the topology."""
        self._changes.append((binding, is_there))
        if self._change_at is None:
            self._change_at = self._broker.timers.at(self._broker.now + TURN_S, self._propagate)

    def _propagate(self, _now: float) -> None:
        self._change_at = None
        changes, self._changes = self._changes, []
        source = self._source
        if not isinstance(source, ExchangeFeedEnd):
            return
        for binding, is_there in changes:
            change = source.bound if is_there else source.unbound
            change(binding)

    def end(self, removes: bool) -> None:
        if isinstance(self._source, ExchangeFeedEnd) and removes and self.upstream.cleans_up:
            self._source.remove()
        self._broker.timers.cancel(self._change_at)
        self._change_at = None
        self.stop()


class QueueLink(FederationLink):
    """A link of a federated queue. It consumes upstream while the queue here wants messages."""

    kind: ClassVar[str] = "queue"

    def __init__(self, broker: Broker, feed: QueueFeed, virtual_host: str, user: str) -> None:
        self.feed = feed
        self._is_wanted = False
        super().__init__(broker, feed, virtual_host, user)

    @property
    def name(self) -> str:
        return self.feed.queue.name

    def _ends(self, source: Uri, destination: Uri) -> tuple[SourceEnd, DestinationEnd]:
        make: Callable[[QueueFeed, Journey, Uri, QueueLink], QueueFeedEnd]
        make = LocalQueueFeed if source.is_local else self._feed_ends().queue_feed
        feed = make(self.feed, self.journey, source, self)
        feed.run(self._is_wanted)
        return feed, LocalDestination(self.journey, destination, self)

    def run(self, wanted: bool) -> None:
        """Consume upstream, or consume no more."""
        self._is_wanted = wanted
        if isinstance(self._source, QueueFeedEnd):
            self._source.run(wanted)
