"""Termini that links leave behind, and how long they are kept (AMQP 1.0 part 3, section 3.5.6).

    in use ──its link detaches──> waits for the end of the scope in its expiry-policy ──> its timeout runs ──> expired
       ^                             └──────────── a link of that name attaches ────────────┘
       └──────────────────────────────────────────────────────┘

A virtual host keeps them by the container and the link's name, so that they are found again from another connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.guests import Guest
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.wire import MASK

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.protocols.amqp10.broker.session import ServedSession
    from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
    from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
    from leveret.queues.contract import QueueHost
    from leveret.virtual_host import VirtualHost

SWEEP_FROM: Final = 100  # sources; beyond that, sources whose queues were deleted are forgotten
# Targets that are kept for senders in a virtual host; beyond that, the oldest expires. Each has some hundred outcomes.
TARGETS_MAX: Final = 1000

Key: TypeAlias = tuple[str, str, str]  # namespace (a kind of subscription, or a user), container, link


class Terminus(ABC):
    """Our end of a link that has ended."""

    __slots__ = ("_termini", "_timer", "_waits_for", "key", "policy", "timeout_s")

    policy: str  # the event after which its timeout begins
    timeout_s: int

    def __init__(self, termini: Termini, key: Key) -> None:
        self.key = key
        self._termini = termini
        self._waits_for: object = None  # a session or a connection
        self._timer: Timer | None = None

    @property
    @abstractmethod
    def has_gone(self) -> bool:
        """True if it has been ended by other means."""

    @abstractmethod
    def expire(self) -> None:
        """Forget this terminus, and release what it holds. Called at its time-out, and to end it early."""

    def leave(self, session: ServedSession) -> None:
        """Wait as the policy says, after the link on this session has ended."""
        if self.policy == p.TERMINUS_EXPIRY_POLICY_LINK_DETACH:
            self._run_out()
        elif self.policy == p.TERMINUS_EXPIRY_POLICY_SESSION_END:
            self._wait_for(session)
        elif self.policy == p.TERMINUS_EXPIRY_POLICY_CONNECTION_CLOSE:
            self._wait_for(session.connection)

    def _wait_for(self, whose: object) -> None:
        self._waits_for = whose
        self._termini.waiting.setdefault(whose, {})[self] = None

    def stay(self) -> None:
        """Stop waiting, because a link has come back."""
        if self._waits_for is not None:
            waiting = self._termini.waiting[self._waits_for]
            del waiting[self]
            if not waiting:
                del self._termini.waiting[self._waits_for]
            self._waits_for = None
        self._termini.broker.timers.cancel(self._timer)
        self._timer = None

    def outlive_all(self) -> None:
        """Wait after a restart of the node, which ended link, session and connection."""
        if self.policy != p.TERMINUS_EXPIRY_POLICY_NEVER:
            self._run_out()

    def has_ended(self) -> None:
        """Start the timeout, because the session or connection that it waited for has ended."""
        self._waits_for = None
        self._run_out()

    def _run_out(self) -> None:
        if not self.timeout_s:
            self.expire()
            return
        broker = self._termini.broker
        self._timer = broker.timers.at(broker.now + self.timeout_s, lambda now: self.expire())


class Termini(Guest):
    """The termini that are kept in a virtual host."""

    def __init__(self, host: VirtualHost) -> None:
        self.host, self.broker = host, host.broker
        self.sources: dict[Key, Terminus] = {}
        self.targets: dict[Key, Terminus] = {}
        self.receivers: dict[Key, Terminus] = {}  # what receivers had not settled, in the order of leaving
        self.served: dict[Key, OutgoingLink] = {}  # attached links that will leave such
        self.publishing: dict[Key, IncomingLink] = {}  # attached links whose targets outlive the node
        self.octets_kept = 0  # bytes of the messages that `receivers` hold
        # Delivery tags that outlive their link begin with the time of the start, and a number.
        self._tags_from = int(self.broker.clock.wall() * 1000) & MASK
        self._tag_prefix = 0
        # Waiting termini, by the session or connection that they wait for.
        self.waiting: dict[object, dict[Terminus, None]] = {}
        self._sweep_at = SWEEP_FROM

    def user_deleted(self, name: str) -> None:
        """Give back what links of the user have left unsettled. Those that are attached will leave nothing."""
        for kept in (self.receivers, self.targets):
            for terminus in [each for key, each in kept.items() if key[0] == name]:
                terminus.expire()
        self.served = {key: link for key, link in self.served.items() if key[0] != name}
        self.publishing = {key: link for key, link in self.publishing.items() if key[0] != name}

    def keep_source(self, terminus: Terminus) -> None:
        """Keep a source, to be found by its key."""
        if len(self.sources) >= self._sweep_at:
            for key in [key for key, each in self.sources.items() if each.has_gone]:
                del self.sources[key]
            self._sweep_at = max(SWEEP_FROM, 2 * len(self.sources))
        self.sources[terminus.key] = terminus

    def forget_source(self, terminus: Terminus) -> None:
        if self.sources.get(terminus.key) is terminus:
            del self.sources[terminus.key]

    def keep_target(self, terminus: Terminus) -> None:
        """Keep a target, to be found by its key; the oldest expires if there are too many."""
        if len(self.targets) >= TARGETS_MAX:
            next(iter(self.targets.values())).expire()
        self.targets[terminus.key] = terminus

    def next_tag_prefix(self) -> bytes:
        """Return bytes that no delivery tag of this virtual host has begun with before."""
        self._tag_prefix = self._tag_prefix + 1 & MASK
        return (self._tags_from << 32 | self._tag_prefix).to_bytes(8)

    def forget_target(self, terminus: Terminus) -> None:
        if self.targets.get(terminus.key) is terminus:
            del self.targets[terminus.key]


def key_of(session: ServedSession, link: str) -> Key:
    """Return the key of what a link may leave. It includes the user, because every client may use any container-id.

    The links of a client whose user has been deleted leave nothing, and find nothing: they are no user's.
    """
    user = "" if session.client.is_disowned else session.client.user.name
    return user, session.connection.container, link


def termini_of(host: QueueHost) -> Termini:
    return host.guest(Termini)


def ended(host: VirtualHost, whose: object) -> None:
    """Notify the termini that wait for this session or connection, after it and its links have ended."""
    for terminus in termini_of(host).waiting.pop(whose, ()):
        terminus.has_ended()
