"""Backends of passwords in order: the next one is asked if one has refused.

check ─> internal ─ refused ─> http ─ refused ─> None
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from leveret.errors import LimitReached
from leveret.security.password_checks import CheckOrigin, Waiting

if TYPE_CHECKING:
    from leveret.security.users import User

Backend: TypeAlias = "Callable[[str, bytes, CheckOrigin], User | Waiting | None]"


class BackendChain:
    """A password that backends are asked about, one after the other."""

    __slots__ = ("_answered", "_asked", "_backends", "_name", "_password", "_place")

    def __init__(self, backends: Sequence[Backend], name: str, password: bytes, place: CheckOrigin) -> None:
        self._backends = list(backends)
        self._name = name
        self._password = password
        self._place = place
        self._asked: Waiting | None = None  # the answer of the backend whose turn it is
        self._answered: Waiting | None = None  # our own

    def begin(self) -> User | Waiting | None:
        """Return the user, None if every backend refuses, or `Waiting`. Raises LimitReached."""
        found = self._next()
        if not isinstance(found, Waiting):
            return found
        self._answered = Waiting(self._drop)
        self._asked = found
        found.tell(self._go_on)
        return self._answered

    def _next(self) -> User | Waiting | None:
        while self._backends:
            found = self._backends.pop(0)(self._name, self._password, self._place)
            if found is not None:
                return found
        return None

    def _go_on(self) -> None:
        """Take a backend's answer, or ask the next one."""
        question, answered = self._asked, self._answered
        assert question is not None
        assert answered is not None
        found: User | Waiting | None = question.user
        if found is None and question.was_tried:
            try:
                found = self._next()
            except LimitReached:
                answered.was_tried = False
        answered.was_tried = answered.was_tried and question.was_tried
        answered.has_answer = answered.has_answer and question.has_answer
        if isinstance(found, Waiting):
            self._asked = found
            found.tell(self._go_on)
        else:
            answered.end(found)

    def _drop(self, waiting: Waiting) -> None:
        if self._asked is not None:
            self._asked.drop()
