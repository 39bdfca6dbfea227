"""The selectors of bindings, applied to the answer of an exchange's type.

    exchange ──type──> Selected(queue, "price > 10") ──Selection──> queue, if the message meets the condition

A message that no selector lets through is unrouted, so that it takes the alternate exchange.
"""

from __future__ import annotations

from collections.abc import Iterable

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Selected
from leveret.message import Message


class Selection:
    """The selectors of bindings for one message: each text is asked once, however many bindings have it."""

    __slots__ = ("_answers", "_message")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._answers: dict[str, bool] = {}

    def lets(self, destination: Destination) -> bool:
        """Return whether the message may go there: the destination has no selector, or the message meets it."""
        if not isinstance(destination, Selected):
            return True
        selector = destination.selector
        answer = self._answers.get(selector.text)
        if answer is None:
            answer = self._answers[selector.text] = selector.matches(self._message)
        return answer

    def divided(self, answer: list[Destination]) -> tuple[list[Destination], list[Destination]]:
        """Return the destinations that the message may go to, and the others. Those with selectors stay `Selected`."""
        met: list[Destination] = []
        unmet: list[Destination] = []
        for each in answer:
            (met if self.lets(each) else unmet).append(each)
        return met, unmet


def ends(answer: Iterable[Destination]) -> list[Destination]:
    """Return the real ends of destinations."""
    return [each.end if isinstance(each, Selected) else each for each in answer]


def has_selectors(answer: Iterable[Destination]) -> bool:
    """Return whether the answer depends on a selector."""
    return any(isinstance(each, Selected) for each in answer)
