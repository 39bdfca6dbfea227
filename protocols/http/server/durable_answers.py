"""Give answers when everything that was done for them is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker import Publisher
from leveret.protocols.http.connection import Response
from leveret.protocols.http.server.replies import json_response

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.protocols.http.connection import Later
    from leveret.values import Json


class DurableAnswer(Publisher):
    """A publisher that gives one answer once the changes made, or noted again, in this turn are on disk."""

    __slots__ = ("_broker", "_content", "_later")
    persistent = True

    def __init__(self, broker: Broker, later: Later, content: Json | Response) -> None:
        self._broker = broker
        self._later = later
        self._content = content
        broker.publishers.append(self)

    def mark(self) -> int:
        return 0

    def taken(self, mark: int) -> None:
        content = self._content
        self._later.answer(
            content if isinstance(content, Response) else json_response(content), self._broker.now
        )
