"""Who may come in now: addresses, names and the time to yes, or no for a while. No socket, no clock.

Three things are counted. Connections, in a second, in all and from one address: what comes too fast is hung up on.
Strangers, who have connected and not logged in: one too many in all ends the one that has been there longest, one too
many from an address is hung up on. Logins that failed, from one address, by one name, and by both: after some there
is no other try for a second, then two, then four, up to half a minute; it is forgotten after five minutes. Nobody
shuts out anybody else for good like that: where a user has logged in from before, his name goes on being welcome, and
that a name waits wherever it comes from takes failures from several networks.

An address is one of IPv4, or the first half of one of IPv6: its other half its owner has for himself. Clients on this
machine are counted in all, not by their address: they may be everybody, behind a proxy. What is remembered is bounded:
whoever has not been heard of for longest is forgotten first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from broker_core.config.sections import LimitsSettings

KEYS_MAX: Final = 10_000  # addresses, names and acquaintances that are remembered, of each
BURST_S: Final = 2.0  # for so long twice as many may come
REFUSED_MAX_S: Final = 30.0
FORGOTTEN_S: Final = 300.0  # after the last failure
TOLD_EVERY_S: Final = 10.0  # refusals in the log
NETWORKS_MIN: Final = 4  # that it takes to have a name wait everywhere
HEX_OF_NETWORK: Final = 19  # characters of the first half of a whole IPv6 address

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def network(host: str) -> str:
    """What an address is counted by."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.exploded[:HEX_OF_NETWORK]


class Bucket:
    """So many in a second, and a few more at once. Full at first."""

    __slots__ = ("_at", "_left")

    def __init__(self, rate: float, now: float) -> None:
        self._left = rate * BURST_S
        self._at = now

    def take(self, rate: float, now: float) -> bool:
        """One more: whether there is room. The rate may have changed."""
        self._left = min(rate * BURST_S, self._left + (now - self._at) * rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Recent(dict[K, T]):
    """What is known of those heard of last; the first is the one not heard of for longest."""

    def note(self, key: K, known: T) -> None:
        self.pop(key, None)
        self[key] = known
        if len(self) > KEYS_MAX:
            del self[next(iter(self))]


class Rates:
    """Connections in a second."""

    def __init__(self) -> None:
        self._all: Bucket | None = None
        self._by_network: Recent[str, Bucket] = Recent()

    def take(self, limit: int | None, now: float) -> bool:
        """One more in all: whether it may be."""
        if limit is None:
            return True
        if self._all is None:
            self._all = Bucket(limit, now)
        return self._all.take(limit, now)

    def take_from(self, key: str, limit: int | None, now: float) -> bool:
        """One more from a network."""
        if limit is None:
            return True
        bucket = self._by_network.get(key) or Bucket(limit, now)
        self._by_network.note(key, bucket)
        return bucket.take(limit, now)


class Strangers(Generic[K]):
    """Connections whose users have not logged in, the one that has been there longest first."""

    def __init__(self) -> None:
        self._networks: dict[K, str] = {}  # empty: not counted by it
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._networks)

    def enter(self, who: K) -> None:
        self._networks[who] = ""

    def came_from(self, who: K, key: str) -> None:
        """Where one is from is known now."""
        if self._networks.get(who) == "":
            self._networks[who] = key
            self._held[key] += 1

    def held_by(self, key: str) -> int:
        """How many are from there."""
        return self._held.get(key, 0)

    def leave(self, who: K) -> None:
        """He has logged in, or gone. Twice does no harm."""
        key = self._networks.pop(who, "")
        if key:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    def surplus(self, limit: int | None) -> K | None:
        """Who has to go, if there are too many."""
        too_many = limit is not None and len(self._networks) > limit
        return next(iter(self._networks)) if too_many else None


class Door(Generic[K]):
    """Where connections come in."""

    def __init__(self) -> None:
        self.refused = 0  # that were hung up on
        self.strangers: Strangers[K] = Strangers()
        self._rates = Rates()
        self._told_at: float | None = None  # the last refusal in the log
        self._untold = 0

    def refusal(self, limits: LimitsSettings, now: float) -> str:
        """Why one more connection cannot be, wherever it comes from; empty: it can."""
        fits = self._rates.take(limits.connection_rate, now)
        return "" if fits else f"more than {limits.connection_rate} connections in a second"

    def refusal_from(self, host: str, loopback: bool, limits: LimitsSettings, now: float) -> str:
        """Why one more from there cannot be; empty: it can."""
        if loopback:
            return ""
        key = network(host)
        rate, most = limits.connection_rate_per_address, limits.strangers_per_address_max
        if not self._rates.take_from(key, rate, now):
            return f"more than {rate} connections in a second from {host}"
        if most is not None and self.strangers.held_by(key) >= most:
            return f"{most} connections from {host} have not logged in"
        return ""

    def enter(self, who: K, limits: LimitsSettings) -> K | None:
        """One has connected. Who has to go, if that is one stranger too many."""
        self.strangers.enter(who)
        return self.strangers.surplus(limits.strangers_max)

    def came_from(self, who: K, host: str, loopback: bool) -> None:
        """It is known where somebody is, who has been let in."""
        if not loopback:
            self.strangers.came_from(who, network(host))

    def refuse(self, why: str, now: float) -> str:
        """Count a refusal; the line for the log, if it is time for one."""
        self.refused += 1
        if self._told_at is not None and now < self._told_at + TOLD_EVERY_S:
            self._untold += 1
            return ""
        others, self._untold, self._told_at = self._untold, 0, now
        return f"{why} (and {others} others since the last time)" if others else why


@attrs.frozen
class Failed:
    """How often logging in has failed, and until when nobody tries again."""

    count: int
    at: float
    until: float


NEVER: Final = Failed(0, 0.0, 0.0)


class Failures:
    """Logins that failed, by address or by name."""

    def __init__(self) -> None:
        self._failed: Recent[str, Failed] = Recent()

    def refused_s(self, key: str, now: float) -> float:
        """For how long from now nobody tries; 0: go on."""
        return max(0.0, self._failed.get(key, NEVER).until - now)

    def failed(self, key: str, free: int, now: float) -> int:
        """Once more. The first `free` are for nothing. Returns how often that was."""
        before = self._failed.get(key, NEVER)
        count = 1 if now > before.at + FORGOTTEN_S else before.count + 1
        beyond = min(count - free, 10)
        refused_s = min(2.0 ** (beyond - 1), REFUSED_MAX_S) if beyond > 0 else 0.0
        self._failed.note(key, Failed(count, now, now + refused_s))
        return count


class Logins:
    """Who may try to log in."""

    def __init__(self) -> None:
        self.per_address: int | None = None  # failures that are free
        self.per_user: int | None = None
        self.refused = 0  # attempts that were not looked at
        self._networks = Failures()
        self._names = Failures()
        self._pairs = Failures()  # by name and network
        self._known: Recent[str, None] = Recent()  # those of them that belong together

    def refused_s(self, name: str, host: str, loopback: bool, now: float) -> float:
        """For how long from now this name may not be tried from there; 0: go on."""
        wait_s = max(failures.refused_s(key, now) for failures, key in self._concerned(name, host, loopback))
        self.refused += wait_s > 0
        return wait_s

    def failed(self, name: str, host: str, loopback: bool, now: float) -> None:
        """The password, or token, was wrong, whether or not there is such a user."""
        both = pair(name, host)
        count = self._count(self._pairs, both, self.per_user, now)
        if both in self._known:
            return
        if count * NETWORKS_MIN <= max(self.per_user or 0, NETWORKS_MIN):
            self._count(self._names, name, self.per_user, now)
        if not loopback:
            self._count(self._networks, network(host), self.per_address, now)

    def _count(self, failures: Failures, key: str, free: int | None, now: float) -> int:
        return 0 if free is None else failures.failed(key, free, now)

    def succeeded(self, name: str, host: str) -> None:
        """The user is known there from now on. His address is not forgiven: he could be trying others' names."""
        self._known.note(pair(name, host), None)

    def _concerned(self, name: str, host: str, loopback: bool) -> tuple[tuple[Failures, str], ...]:
        """What counts: who is known there has failures of his own, and suffers from nobody else's."""
        both = pair(name, host)
        if both in self._known:
            return ((self._pairs, both),)
        by_name = (self._pairs, both), (self._names, name)
        return by_name if loopback else (*by_name, (self._networks, network(host)))


def pair(name: str, host: str) -> str:
    return f"{network(host)} {name}"
