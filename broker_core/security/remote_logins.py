"""Logins about which a server decides: it is asked, and its answers are remembered for a while.

    check ─ remembered ──────────────────> user, or None
          ├ the same is being asked ─────> Waiting
          └ a question, within the rate ─> Waiting ─> user, or None; the answer is remembered

An answer is remembered by an HMAC of what was shown, under a key that never leaves this process, and for `cache_s` at
most; refusals are, too, unless `cache_refusals` is false. No answer (an error, a silence) is a refusal that is not
remembered. Each place that logins come from has a rate of its own: a stranger who guesses cannot have the server asked
for every guess, and holds up nobody elsewhere.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import attrs

from leveret.clock import Clock
from leveret.errors import LimitReached
from leveret.security.guards import Bucket, Recent
from leveret.security.http_requests import Ask, HttpRequest, Outcome
from leveret.security.password_checks import ANYWHERE, CheckOrigin, SharedCheck, Waiting, mark_of
from leveret.security.scopes import Grants
from leveret.security.users import Accounts, User

log: Final = logging.getLogger("leveret.security")

ASKED_MAX: Final = 1000  # logins about which the server is being asked
ANSWERS_MAX: Final = 10_000  # remembered; the oldest is dropped
RATE: Final = 10.0  # requests in a second because of one place; twice as many at once
A = TypeVar("A")


class NoAnswer(Exception):  # noqa: N818 - what a server did
    """Raised if the server has given no answer; the text says why, for the log."""


@attrs.frozen
class KnownLogin:
    """An answer of the server, and until when it holds (monotonic seconds)."""

    user: User | None
    until: float


class RemoteLogins(ABC, Generic[A]):
    """The logins of one server, which gives answers of one type."""

    def __init__(self, clock: Clock, key: bytes, cache_s: float, cache_refusals: bool) -> None:
        self.asked = self.failed = self.hits = 0
        self._clock = clock
        self._key = key
        self._cache_s = cache_s
        self._cache_refusals = cache_refusals
        self._answers: Recent[bytes, KnownLogin] = Recent()  # by mark
        self._questions: dict[bytes, SharedCheck] = {}  # by mark
        self._rates: Recent[str, Bucket] = Recent()  # by place

    @abstractmethod
    def ask(self, name: str, secret: bytes, then: Callable[[A], None]) -> None:
        """Ask the server about a login, and call `then` with its answer in the broker's thread."""

    @abstractmethod
    def decided(self, name: str, answer: A) -> User | None:
        """Return the user whom the server lets in, or None. Raises NoAnswer."""

    @property
    def remembered(self) -> int:
        """The number of answers that are remembered, some of which may be too old."""
        return len(self._answers)

    def forget(self) -> int:
        """Forget every answer, and return how many there were."""
        forgotten = len(self._answers)
        self._answers.clear()
        return forgotten

    def check(self, name: str, secret: bytes, place: CheckOrigin = ANYWHERE) -> User | Waiting | None:
        """Return the user if the login is right, None if not, or `Waiting` while the server is asked.

        Raises LimitReached if it may not be asked now.
        """
        mark, now = mark_of(self._key, name, secret), self._clock.now()
        known = self._answers.get(mark)
        if known is not None and now < known.until:
            self.hits += 1
            return known.user
        question = self._questions.get(mark)
        if question is None:
            self._require_room(place, now)
            question = self._questions[mark] = SharedCheck(name)
            self.asked += 1
            waiting = question.join()
            self.ask(name, secret, partial(self._answered, mark))
            return waiting.user if waiting.is_there else waiting
        return question.join()

    def _require_room(self, place: CheckOrigin, now: float) -> None:
        bucket = self._rates.get(place.name) or Bucket(RATE, now)
        self._rates.note(place.name, bucket)
        if len(self._questions) >= ASKED_MAX or not bucket.take(RATE, now):
            raise LimitReached("too many logins are being checked; try again later")

    def _answered(self, mark: bytes, answer: A) -> None:
        question = self._questions.pop(mark)
        user, has_answer = None, True
        try:
            user = self.decided(question.name, answer)
        except NoAnswer as why:
            self.failed += 1
            has_answer = False
            log.warning("login of user '%s': no answer from the server: %s", question.name, why)
        else:
            self._remember(mark, user)
        question.end(user, has_answer=has_answer)

    def _remember(self, mark: bytes, user: User | None) -> None:
        """Remember an answer, of a user with a token no longer than that is valid."""
        if user is None and not self._cache_refusals:
            return
        lasts_s = self._cache_s
        if user is not None and user.expires_at is not None:
            lasts_s = min(lasts_s, user.expires_at - self._clock.wall())
        if lasts_s <= 0:
            return
        self._answers.note(mark, KnownLogin(user, self._clock.now() + lasts_s), ANSWERS_MAX)


def admitted(access: Accounts, name: str, tags: Sequence[str], grants: Grants | None) -> User:
    """Return a user whom a server lets in, with the limits of the account of that name here, if there is one."""
    account = access.user(name)
    if account is None:
        return User(name, tags, scopes=grants)
    return User(name, tags, limits=account.limits, scopes=grants)


class HttpLogins(RemoteLogins[Outcome]):
    """The logins of a server that is asked over HTTP."""

    def __init__(self, clock: Clock, ask: Ask, key: bytes, cache_s: float, cache_refusals: bool) -> None:
        super().__init__(clock, key, cache_s, cache_refusals)
        self._ask = ask

    def ask(self, name: str, secret: bytes, then: Callable[[Outcome], None]) -> None:
        self._ask(self.request(name, secret), then)

    @abstractmethod
    def request(self, name: str, secret: bytes) -> HttpRequest:
        """Return the request about a login."""
