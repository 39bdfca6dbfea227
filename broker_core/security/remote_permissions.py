"""Permissions about which a server decides: asked when they are needed, the answers remembered for a while.

    decide ─ remembered ────────────────────────────> yes, or no
           └ asked, and the input stands still ─────> yes, no, or no answer, which means no

The check of a permission needs its answer before the caller goes on. So the connection's input stands still in the
middle of the check (`Access.held_input`), while the node serves everybody else. An answer is remembered for `cache_s`,
a refusal only where that is wanted. Whatever a connection remembers of its checks is stale when an answer has expired.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from leveret.errors import LimitReached
from leveret.security.guards import Recent
from leveret.security.scopes import Grants

if TYPE_CHECKING:
    from leveret.clock import Clock, Timers
    from leveret.security.users import Accounts

log: Final = logging.getLogger("leveret.security")

ASKED_MAX: Final = 1000  # questions that the server is being asked
ANSWERS_MAX: Final = 10_000  # remembered; the oldest is dropped
# At least, between two times at which answers expire for connections that rely on them.
BETWEEN_S: Final = 1.0
VIRTUAL_HOST: Final = "vhost"
TOPIC: Final = "topic"


@attrs.frozen
class Question:
    """A question about what a user may do. `about` is `vhost`, `exchange`, `queue` or `topic`."""

    user: str
    virtual_host: str
    about: str
    name: str = ""  # of the exchange or queue
    permission: str = ""
    key: str = ""  # the routing key, of a topic
    address: str = ""  # of the client that enters a virtual host

    @property
    def shown(self) -> str:
        """The question in words, for the log."""
        if self.about == VIRTUAL_HOST:
            return f"may user '{self.user}' enter vhost '{self.virtual_host}'"
        key = f" with key '{self.key}'" if self.about == TOPIC else ""
        what = "exchange" if self.about == TOPIC else self.about
        return (
            f"has user '{self.user}' {self.permission} access to {what} '{self.name}'{key} "
            f"in vhost '{self.virtual_host}'"
        )


class PendingAnswer:
    """An answer that is being asked for. At its end `allowed` says whether the server has said yes."""

    __slots__ = ("_told", "allowed", "is_there")

    def __init__(self) -> None:
        self.is_there = self.allowed = False
        self._told: list[Callable[[], None]] = []

    def tell(self, told: Callable[[], None]) -> None:
        """Have `told` called in the broker's thread when the answer is there; at once if it is."""
        if self.is_there:
            told()
        else:
            self._told.append(told)

    def end(self, allowed: bool) -> None:
        self.is_there, self.allowed = True, allowed
        told, self._told = self._told, []
        for each in told:
            each()


class HeldInputs(Protocol):
    """The contract of the node, which lets the input of a connection stand still in the middle of a call."""

    def wait(self, pending: PendingAnswer, /) -> None:
        """Return when the answer is there. Raises LimitReached where nothing can stand still."""


class RemotePermissions(ABC):
    """The permissions that one server knows."""

    def __init__(
        self, access: Accounts, clock: Clock, timers: Timers, cache_s: float, cache_refusals: bool
    ) -> None:
        self.asked = self.failed = self.hits = 0
        self._access = access
        self._clock = clock
        self._timers = timers
        self._cache_s = cache_s
        self._cache_refusals = cache_refusals
        self._answers: Recent[Question, tuple[bool, float]] = Recent()  # with when each expires
        self._pending: dict[Question, PendingAnswer] = {}
        self._expires = False  # a timer runs

    @abstractmethod
    def ask(self, question: Question, then: Callable[[bool | None], None]) -> None:
        """Ask the server, and call `then` with its answer, or None if there is none, and the log says why."""

    def applies(self, about: str) -> bool:
        """Return whether the server is asked about such things at all; else they are allowed."""
        return True

    @property
    def remembered(self) -> int:
        """The number of answers that are remembered, some of which may be too old."""
        return len(self._answers)

    def forget(self) -> int:
        """Forget every answer, and return how many there were."""
        forgotten = len(self._answers)
        self._answers.clear()
        self._access.forget_answers()
        return forgotten

    def decide(self, question: Question) -> bool:
        """Return whether the server allows it; no answer means no. Raises LimitReached if it may not be asked now."""
        known = self._answers.get(question)
        if known is not None and self._clock.now() < known[1]:
            self.hits += 1
            return known[0]
        pending = self._pending.get(question) or self._begin(question)
        if not pending.is_there:
            self._access.require_held_inputs().wait(pending)
        return pending.allowed

    def _begin(self, question: Question) -> PendingAnswer:
        if len(self._pending) >= ASKED_MAX:
            raise LimitReached("too many permissions are being asked for; try again later")
        pending = self._pending[question] = PendingAnswer()
        self.asked += 1
        self.ask(question, partial(self._answered, question))
        return pending

    def _answered(self, question: Question, answer: bool | None) -> None:
        pending = self._pending.pop(question)
        if answer is None:
            self.failed += 1
        else:
            self._remember(question, answer)
        pending.end(answer is True)

    def _remember(self, question: Question, answer: bool) -> None:
        expires_at = self._clock.now() + self._cache_s
        if answer or self._cache_refusals:
            self._answers.note(question, (answer, expires_at), ANSWERS_MAX)
        if answer and not self._expires:
            self._expires = True
            self._timers.at(expires_at, self._expire)

    def _expire(self, now: float) -> None:
        """Forget what has expired, and make stale whatever connections remember."""
        self._expires = False
        while self._answers and self._answers[first := next(iter(self._answers))][1] <= now:
            del self._answers[first]
        self._access.forget_answers()
        if self._answers:
            self._expires = True
            oldest = self._answers[next(iter(self._answers))][1]
            self._timers.at(max(oldest, now + BETWEEN_S), self._expire)


class RemoteGrants(Grants):
    """The grants of one user, as the server says."""

    is_lasting = False

    def __init__(self, permissions: RemotePermissions, user: str) -> None:
        self._permissions = permissions
        self._user = user

    def enter(self, virtual_host: str, address: str = "") -> bool:
        return self._decide(Question(self._user, virtual_host, VIRTUAL_HOST, address=address))

    def allow(self, permission: str, virtual_host: str, name: str, kind: str = "queue") -> bool:
        return self._decide(Question(self._user, virtual_host, kind, name, permission))

    def allow_key(self, permission: str, virtual_host: str, exchange: str, key: str) -> bool:
        return self._decide(Question(self._user, virtual_host, TOPIC, exchange, permission, key))

    def guard_keys(self, virtual_host: str, exchange: str) -> bool:
        return self._permissions.applies(TOPIC)

    def _decide(self, question: Question) -> bool:
        return not self._permissions.applies(question.about) or self._permissions.decide(question)
