"""Guards against floods and guessing: from addresses, names and the time to an admission or a refusal.

There is no socket and no clock here. Three things are counted:

* Connections in a second, in all and from one address: those beyond the rate are hung up on.
* Strangers: connections that have not logged in. One too many in all ends the one that has been there longest, one too
  many from an address is hung up on.
* Failed logins, by address, by name, and by both. After some, no further try is allowed for a second, then two, then
  four, up to half a minute; failures are forgotten after five minutes. A client cannot lock out a user for good like
  this: where a user has logged in from before, the name stays welcome, and it takes failures from several networks
  before a name has to wait wherever it comes from. Somebody who guesses from the user's own address, or on this
  machine, is slowed to TRIES passwords a second for that name, so that the right one gets its turn among them.

An address is an IPv4 address, or the first half of an IPv6 address, because one owner has the whole other half. Clients
on this machine are counted in all but not by their address: behind a proxy they may be all clients. Memory is bounded:
what was seen longest ago is forgotten first.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from leveret.config.sections import LimitsSettings

KEYS_MAX: Final = 10_000  # addresses, names and known pairs that are remembered, of each
BURST_S: Final = 2.0  # a full bucket holds the connections of so many seconds
REFUSED_MAX_S: Final = 30.0
TRIES: Final = 20.0  # in a second, for a name at its user's own address, after too many failures
FORGOTTEN_S: Final = 300.0  # after the last failure
RESERVED_MAX: Final = 256  # descriptors: the databases, the log, and files of streams that are open at once
TOLD_EVERY_S: Final = 10.0  # between refusals in the log
NETWORKS_MIN: Final = 4  # failing networks that it takes before a name has to wait everywhere
HEX_OF_NETWORK: Final = 19  # characters of the first half of a whole IPv6 address

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def network(host: str) -> str:
    """Return the key that an address is counted by."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.exploded[:HEX_OF_NETWORK]


class Bucket:
    """A token bucket: `rate` in a second, and at most `BURST_S` seconds' worth at once. It begins full."""

    __slots__ = ("_at", "_left")

    def __init__(self, rate: float, now: float) -> None:
        self._left = rate * BURST_S
        self._at = now

    def take(self, rate: float, now: float) -> bool:
        """Take one token and return whether there was one. The rate may differ from call to call."""
        self._left = min(rate * BURST_S, self._left + (now - self._at) * rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Recent(dict[K, T]):
    """A dict that drops the entry that was noted longest ago when it has more than `most`."""

    def note(self, key: K, known: T, most: int = KEYS_MAX) -> None:
        self.pop(key, None)
        self[key] = known
        if len(self) > most:
            del self[next(iter(self))]


class Rates:
    """The connections in a second."""

    def __init__(self) -> None:
        self._all: Bucket | None = None
        self._by_network: Recent[str, Bucket] = Recent()

    def take(self, limit: int | None, now: float) -> bool:
        """Count a connection, and return whether the rate of all permits it."""
        if limit is None:
            return True
        if self._all is None:
            self._all = Bucket(limit, now)
        return self._all.take(limit, now)

    def take_from(self, key: str, limit: int | None, now: float) -> bool:
        """Count a connection from a network, and return whether the network's rate permits it."""
        if limit is None:
            return True
        bucket = self._by_network.get(key) or Bucket(limit, now)
        self._by_network.note(key, bucket)
        return bucket.take(limit, now)


class Strangers(Generic[K]):
    """Connections whose users have not logged in, the one that has been there longest first."""

    def __init__(self) -> None:
        self._networks: dict[K, str] = {}  # empty: not counted by a network
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._networks)

    def enter(self, who: K) -> None:
        self._networks[who] = ""

    def came_from(self, who: K, key: str) -> None:
        """Count a connection by its network, which has become known."""
        if self._networks.get(who) == "":
            self._networks[who] = key
            self._held[key] += 1

    def held_by(self, key: str) -> int:
        """Return how many strangers are from a network."""
        return self._held.get(key, 0)

    def leave(self, who: K) -> None:
        """Remove a connection that has logged in or ended. A second call does nothing."""
        key = self._networks.pop(who, "")
        if key:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    def surplus(self, limit: int | None) -> K | None:
        """Return the connection to end if there are too many, otherwise None."""
        too_many = limit is not None and len(self._networks) > limit
        return next(iter(self._networks)) if too_many else None


class SeldomLines:
    """Thins out lines of the log that strangers may cause: one in `TOLD_EVERY_S` seconds, with the number of others."""

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._untold = 0

    def line(self, text: str, now: float) -> str:
        """Return a line for the log, or an empty text if one was written just before."""
        if self._told_at is not None and now < self._told_at + TOLD_EVERY_S:
            self._untold += 1
            return ""
        others, self._untold, self._told_at = self._untold, 0, now
        return f"{text} (and {others} others since the last time)" if others else text


class Admission(Generic[K]):
    """Decides which new connections are admitted.

    `descriptors` is how many the process may have open; None: there is no limit. A part of them is kept from
    connections, since the store and the streams cannot do without.
    """

    def __init__(self, descriptors: int | None = None) -> None:
        self._descriptors = descriptors
        self.refused = 0  # connections that were hung up on
        self.strangers: Strangers[K] = Strangers()
        self._rates = Rates()
        self._refusals = SeldomLines()
        self.lines = SeldomLines()  # about connections that were admitted, and did not come as far as a login

    def refusal(self, limits: LimitsSettings, now: float) -> str:
        """Return why one more connection is refused, wherever it comes from; empty if it is not."""
        fits = self._rates.take(limits.connection_rate, now)
        return "" if fits else f"more than {limits.connection_rate} connections in a second"

    def refusal_of(self, descriptor: int) -> str:
        """Return why a connection with this descriptor, the lowest free one, is refused; empty if it is not."""
        limit = self._descriptors
        if limit is None or descriptor < limit - reserved(limit):
            return ""
        return f"only {reserved(limit)} of {limit} file descriptors (ulimit -n) are left for the data"

    def refusal_from(self, host: str, loopback: bool, limits: LimitsSettings, now: float) -> str:
        """Return why one more connection from an address is refused; empty if it is not."""
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
        """Add a stranger. Returns the connection to end, if that is one stranger too many."""
        self.strangers.enter(who)
        most, descriptors = limits.strangers_max, self._descriptors
        if descriptors is not None:  # strangers alone cannot keep users out
            most = min(descriptors // 2, descriptors if most is None else most)
        return self.strangers.surplus(most)

    def came_from(self, who: K, host: str, loopback: bool) -> None:
        """Count an admitted connection by its network, which has become known."""
        if not loopback:
            self.strangers.came_from(who, network(host))

    def refuse(self, why: str, now: float) -> str:
        """Count a refusal, and return the line for the log, or an empty text if one was logged just before."""
        self.refused += 1
        return self._refusals.line(why, now)


def descriptors_max() -> int | None:
    """Return how many file descriptors the process may have open; None: there is no limit."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if most == resource.RLIM_INFINITY else most


def reserved(descriptors: int) -> int:
    """Return how many of so many descriptors are kept from connections."""
    return min(RESERVED_MAX, descriptors // 4)


@attrs.frozen
class Failed:
    """The number of failed logins, the time of the last one, and the time until which no other try is allowed."""

    count: int
    at: float
    until: float


NEVER: Final = Failed(0, 0.0, 0.0)


class Failures:
    """Failed logins, by address or by name."""

    def __init__(self) -> None:
        self._failed: Recent[str, Failed] = Recent()

    def refused_s(self, key: str, now: float) -> float:
        """Return for how many seconds from now no try is allowed; 0: it is."""
        return max(0.0, self._failed.get(key, NEVER).until - now)

    def failed(self, key: str, free: int, now: float) -> int:
        """Count a failure, and return how many there were. The first `free` have no consequence."""
        before = self._failed.get(key, NEVER)
        count = 1 if now > before.at + FORGOTTEN_S else before.count + 1
        beyond = min(count - free, 10)
        refused_s = min(2.0 ** (beyond - 1), REFUSED_MAX_S) if beyond > 0 else 0.0
        self._failed.note(key, Failed(count, now, now + refused_s))
        return count


class Logins:
    """Decides which login attempts are checked at all."""

    def __init__(self) -> None:
        self.per_address: int | None = None  # failures without consequence; None: all
        self.per_user: int | None = None
        self.refused = 0  # attempts that were not checked
        self._networks = Failures()
        self._names = Failures()
        self._pairs = Failures()  # by name and network
        self._known: Recent[str, None] = Recent()  # pairs that have logged in
        self._tries: Recent[str, Bucket] = Recent()  # of pairs at home, while they would have to wait

    def refused_s(self, name: str, host: str, loopback: bool, now: float) -> float:
        """Return for how many seconds from now this name may not be tried from there; 0: it may.

        Where the user may be at home the name may be tried at a rate, and each call counts.
        """
        wait_s = max(failures.refused_s(key, now) for failures, key in self._concerned(name, host, loopback))
        both = pair(name, host)
        if wait_s and (loopback or both in self._known) and self._has_try(both, now):
            return 0.0
        self.refused += wait_s > 0
        return wait_s

    def _has_try(self, both: str, now: float) -> bool:
        bucket = self._tries.get(both) or Bucket(TRIES, now)
        self._tries.note(both, bucket)
        return bucket.take(TRIES, now)

    def failed(self, name: str, host: str, loopback: bool, now: float) -> None:
        """Count a wrong password or token, whether or not there is such a user."""
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
        """Remember that the user logged in from there. The address keeps its failures: it may be trying other names."""
        self._known.note(pair(name, host), None)

    def _concerned(self, name: str, host: str, loopback: bool) -> tuple[tuple[Failures, str], ...]:
        """Return the counters that apply: a known pair has its own failures, and does not suffer from others'."""
        both = pair(name, host)
        if both in self._known:
            return ((self._pairs, both),)
        by_name = (self._pairs, both), (self._names, name)
        return by_name if loopback else (*by_name, (self._networks, network(host)))


def pair(name: str, host: str) -> str:
    return f"{network(host)} {name}"
