"""What links leave behind, and for how long (AMQP 1.0 part 3, section 3.5.6).

    in use ──its link detaches──> waits for the end of what its expiry-policy names ──> its timeout runs ──> expired
       ^                             └──────────── a link of that name attaches ───────────┘
       └─────────────────────────────────────────────────────┘

A virtual host keeps them by the container and the link's name, so that they are found again from another connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, TypeAlias

from broker_core.virtual_host import FrontEndState
from protocols.amqp10.codec import performatives as p

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from broker_core.virtual_host import VirtualHost
    from protocols.amqp10.broker.session import ServedSession

SWEEP_FROM: Final = 100  # sources; then those whose queues somebody has deleted are forgotten
# Kept for senders in one virtual host; then the oldest goes. Each has some hundred outcomes.
TARGETS_MAX: Final = 1000

Key: TypeAlias = tuple[str, str, str]  # whose names these are, container, link


class Terminus(ABC):
    """One end of a link, ours, when the link has gone."""

    __slots__ = ("_termini", "_timer", "_waits_for", "key", "policy", "timeout_s")

    policy: str  # when its timeout begins to run
    timeout_s: int

    def __init__(self, termini: Termini, key: Key) -> None:
        self.key = key
        self._termini = termini
        self._waits_for: object = None  # a session or a connection
        self._timer: Timer | None = None

    @property
    @abstractmethod
    def has_gone(self) -> bool:
        """Whether somebody else has put an end to it."""

    @abstractmethod
    def expire(self) -> None:
        """Nobody has come back for it: forget it, and let go of what it holds."""

    def leave(self, session: ServedSession) -> None:
        """The link has gone, which was on this session: wait, as the policy says."""
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
        """A link has come back to it."""
        if self._waits_for is not None:
            waiting = self._termini.waiting[self._waits_for]
            del waiting[self]
            if not waiting:
                del self._termini.waiting[self._waits_for]
            self._waits_for = None
        self._termini.broker.timers.cancel(self._timer)
        self._timer = None

    def outlive_all(self) -> None:
        """Link, session and connection ended with the node."""
        if self.policy != p.TERMINUS_EXPIRY_POLICY_NEVER:
            self._run_out()

    def has_ended(self) -> None:
        """What it waited for has ended."""
        self._waits_for = None
        self._run_out()

    def _run_out(self) -> None:
        if not self.timeout_s:
            self.expire()
            return
        broker = self._termini.broker
        self._timer = broker.timers.at(broker.now + self.timeout_s, lambda now: self.expire())


class Termini(FrontEndState):
    """What is kept in one virtual host."""

    def __init__(self, host: VirtualHost) -> None:
        super().__init__(host)
        self.broker = host.broker
        self.sources: dict[Key, Terminus] = {}
        self.targets: dict[Key, Terminus] = {}
        self.waiting: dict[object, dict[Terminus, None]] = {}  # by the session or connection they wait for
        self._sweep_at = SWEEP_FROM

    def keep_source(self, terminus: Terminus) -> None:
        """Find it by its key from now on."""
        if len(self.sources) >= self._sweep_at:
            for key in [key for key, each in self.sources.items() if each.has_gone]:
                del self.sources[key]
            self._sweep_at = max(SWEEP_FROM, 2 * len(self.sources))
        self.sources[terminus.key] = terminus

    def forget_source(self, terminus: Terminus) -> None:
        if self.sources.get(terminus.key) is terminus:
            del self.sources[terminus.key]

    def keep_target(self, terminus: Terminus) -> None:
        """Find it by its key from now on."""
        if len(self.targets) >= TARGETS_MAX:
            next(iter(self.targets.values())).expire()
        self.targets[terminus.key] = terminus

    def forget_target(self, terminus: Terminus) -> None:
        if self.targets.get(terminus.key) is terminus:
            del self.targets[terminus.key]


def termini_of(host: VirtualHost) -> Termini:
    return host.kept(Termini)


def ended(host: VirtualHost, whose: object) -> None:
    """A session, or a connection, has ended; its links have before."""
    for terminus in termini_of(host).waiting.pop(whose, ()):
        terminus.has_ended()
