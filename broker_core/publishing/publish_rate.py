"""Publish rates of users, virtual hosts and connections, kept by making publishers wait, never by an error.

    input of a connection ──published──> Meter.count ──> each of its PublishRates: a token for each message
                                             │                     │ none left: the meter waits in line
    reading again <── Client.resumed <───────┴── released by all <─┘ a timer, when there are tokens again

A `PublishRate` is a token bucket that holds the messages of one second (`BURST_S`), and begins full. What one read has
brought is published whatever the bucket holds, so that it may go below zero; then the connection waits until its turn
comes, and in the long run the rate is kept to the message.

Turns are fair between the connections of one rate: the next one is the one that has published least since it began to
wait (a start-time fair queue), so that a connection of large batches waits longer between them than one of small ones.
A release lets as many go on as the tokens are expected to suffice for, judged by what each published last.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.client import Client
    from leveret.clock import Timer, Timers
    from leveret.security.users import User
    from leveret.virtual_host import VirtualHost

BURST_S: Final = 1.0  # a full bucket holds the messages of so many seconds, and at least one
TICK_S: Final = 0.01  # the least time between releases
DEBT_S: Final = 10.0  # with more than so many seconds' worth too much published, also new connections wait
READ_S: Final = 0.25  # a read of a metered connection should bring no more than is allowed in this time,
SMALL_OCTETS: Final = 64  # in small messages,
READ_MIN: Final = 4096  # unless that is less than this


class PublishRate:
    """A rate in messages a second that several connections share."""

    __slots__ = ("_at", "_order", "_timer", "_timers", "_tokens", "_turn", "_waiting", "rate")

    def __init__(self, rate: int, timers: Timers, now: float) -> None:
        self.rate = rate
        self._timers = timers
        self._tokens = max(1.0, rate * BURST_S)
        self._at = now  # when the tokens were counted
        self._turn = 0.0  # the place in line of the last meter that was released
        self._order = 0
        self._waiting: list[tuple[float, int, Meter]] = []  # a heap, by place in line
        self._timer: Timer | None = None

    def set_rate(self, rate: int, now: float) -> None:
        """Allow another rate from now on; what is in debt stays so."""
        self._refill(now)
        self.rate = rate
        self._tokens = min(self._tokens, max(1.0, rate * BURST_S))
        self._timers.cancel(self._timer)
        self._timer = None
        self._arm(now)

    def _refill(self, now: float) -> None:
        self._tokens = min(max(1.0, self.rate * BURST_S), self._tokens + (now - self._at) * self.rate)
        self._at = now

    def take(self, count: int, now: float) -> bool:
        """Take tokens for messages that are published by now. Return False if there were too few."""
        self._refill(now)
        self._tokens -= count
        return self._tokens >= 0

    def wait_s(self, now: float) -> float:
        """Return the seconds until something may be published again; 0.0: it may now."""
        self._refill(now)
        return max(0.0, -self._tokens / self.rate)

    def place_after(self, place: float, count: int) -> float:
        """Return the place in line of a meter that has published so many since its last `place`."""
        return max(place, self._turn) + count

    def queue(self, meter: Meter, place: float, now: float) -> None:
        """Let a meter wait at this place in line."""
        self._order += 1
        heappush(self._waiting, (place, self._order, meter))
        self._arm(now)

    def _arm(self, now: float) -> None:
        """Set the timer for the next release, if a meter waits."""
        if self._waiting and self._timer is None:
            portion = max(1.0, self.rate * TICK_S)
            wait_s = max(TICK_S, (portion - self._tokens) / self.rate)
            self._timer = self._timers.at(now + wait_s, self._release)

    def _release(self, now: float) -> None:
        self._timer = None
        self._refill(now)
        if self._tokens <= 0:  # others have published meanwhile
            self._arm(now)
            return
        left, is_first = self._tokens, True
        while self._waiting and (is_first or left >= self._waiting[0][2].last):
            place, _, meter = heappop(self._waiting)
            if not meter.gone:
                self._turn, is_first = place, False
                left -= meter.last
                meter.released(self)
        self._arm(now)

    def let_all_go(self) -> None:
        """Release every meter, as the rate is limited no longer."""
        self._timers.cancel(self._timer)
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for _, _, meter in waiting:
            if not meter.gone:
                meter.released(self)


class Meter:
    """A count of what one connection publishes, for the rates that it shares with others."""

    __slots__ = ("_places", "_resumed", "_waits_for", "gone", "last", "rates")

    def __init__(self, rates: tuple[PublishRate, ...], resumed: Callable[[], None]) -> None:
        self.rates = rates
        self.last = 0  # messages of the last count
        self.gone = False
        self._resumed = resumed
        self._places = dict.fromkeys(rates, 0.0)
        self._waits_for: set[PublishRate] = set()

    @property
    def waits(self) -> bool:
        return bool(self._waits_for)

    @property
    def read_max(self) -> int:
        """The most bytes to read at once, so that the connection need not wait for long after a read."""
        slowest = min(rate.rate for rate in self.rates)
        return max(READ_MIN, int(slowest * READ_S * SMALL_OCTETS))

    def count(self, published: int, now: float) -> None:
        """Count messages of one read. Afterwards `waits` tells whether to read no more for now."""
        self.last = published
        for rate in self.rates:
            place = self._places[rate] = rate.place_after(self._places[rate], published)
            if not rate.take(published, now) and rate not in self._waits_for:
                self._waits_for.add(rate)
                rate.queue(self, place, now)

    def begin(self, now: float) -> None:
        """Wait from the start if there is much debt: else a client could publish a read's worth, and connect anew."""
        for rate in self.rates:
            if rate.wait_s(now) > DEBT_S:
                self._waits_for.add(rate)
                rate.queue(self, rate.place_after(0.0, 0), now)

    def released(self, rate: PublishRate) -> None:
        """Called by a rate that lets it go on. Called for each wait once."""
        self._waits_for.discard(rate)
        if not self._waits_for:
            self._resumed()

    def leave(self) -> None:
        """End: the connection has gone, or its rates have changed. It waits for nothing any more."""
        self.gone = True
        if self._waits_for:
            self._waits_for.clear()
            self._resumed()


class PublishRates:
    """The rates of a broker's users and virtual hosts, and the meters of the clients that they hold for.

    A client without a limited rate has no meter, and costs nothing.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shared: dict[tuple[str, str], PublishRate] = {}  # by kind and name
        self.per_connection: int | None = None

    def of(self, user: User, host: VirtualHost) -> tuple[PublishRate, ...]:
        """Return the rates that a user's publishes in a virtual host share with others."""
        known = self._broker.access.user(user.name) or user  # a token's user is not known
        found = (
            self._rate("user", user.name, known.limits.max_publish_rate),
            self._rate("vhost", host.name, host.limits.max_publish_rate),
        )
        return tuple(rate for rate in found if rate is not None)

    def _rate(self, kind: str, name: str, limit: int | None) -> PublishRate | None:
        """Return the shared rate with this limit; negative is none, as RabbitMQ's limits are."""
        key, now = (kind, name), self._broker.now
        rate = self._shared.get(key)
        if limit is None or limit < 0:
            if rate is not None:
                del self._shared[key]
                rate.let_all_go()
            return None
        if rate is None:
            rate = self._shared[key] = PublishRate(limit, self._broker.timers, now)
        elif rate.rate != limit:
            rate.set_rate(limit, now)
        return rate

    def join(self, client: Client) -> None:
        """Give a client that has entered a virtual host a meter, if a rate is limited for it."""
        own = self.per_connection
        rates = self.of(client.user, client.host)
        if own is not None:
            rates = (*rates, PublishRate(own, self._broker.timers, self._broker.now))
        client.meter = Meter(rates, client.resumed) if rates else None
        if client.meter is not None:
            client.meter.begin(self._broker.now)

    def leave(self, client: Client) -> None:
        if client.meter is not None:
            client.meter.leave()
            client.meter = None

    def changed_of_user(self, name: str) -> None:
        """Called when the limits of a user have changed."""
        self._join_again([client for client in self._broker.clients if client.user.name == name])

    def changed_of_host(self, host: VirtualHost) -> None:
        """Called when the limits of a virtual host have changed."""
        self._join_again([client for client in self._broker.clients if client.host is host])

    def set_per_connection(self, rate: int | None) -> None:
        """Limit what each connection publishes in a second; None is no limit."""
        if rate != self.per_connection:
            self.per_connection = rate
            self._join_again(list(self._broker.clients))

    def _join_again(self, clients: list[Client]) -> None:
        for client in clients:
            self.leave(client)
            self.join(client)
