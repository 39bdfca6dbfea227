"""A condition on messages that a function decides, for what no text can say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.selectors.conditions import AllOf
from leveret.selectors.parser import Selector

if TYPE_CHECKING:
    from leveret.message import Message


class Predicate(Selector):
    """A selector without a text: `function` returns whether a message suits, and never raises."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Message], bool]) -> None:
        super().__init__("", AllOf([]))
        self._function = function

    def matches(self, message: Message) -> bool:
        """Return what the function says of the message."""
        return self._function(message)
