"""Selectors: an SQL condition on a message's properties, as text, to a yes or no for each message."""

from __future__ import annotations

from broker_core.message import Message


class Selector:
    """A compiled condition."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text  # as the client wrote it

    def matches(self, message: Message) -> bool:
        """Whether the condition is true of the message; unknown is no. Raises nothing, whatever is in the message."""
        raise NotImplementedError


def compile_selector(text: str) -> Selector:
    """The condition that `text` states. Raises PreconditionFailed, with the place of what is wrong."""
    raise NotImplementedError
