"""Gather long answers piece by piece, within a limit of memory for all of them together.

An answer that grows beyond a short page takes its share of the room for lists, and keeps it until it has been sent.
"""

from __future__ import annotations

from http import HTTPStatus
from types import TracebackType
from typing import Final

from leveret.broker import Broker
from leveret.protocols.http.connection import HeaderList, Response
from leveret.protocols.http.server.memory_budget import MemoryShare, lists_of, taken_now
from leveret.protocols.http.server.request import Refused
from leveret.protocols.shared.machine.pieces import Pieces

FREE_OCTETS: Final = 256 << 10  # bytes of an answer that need no share
STEP_OCTETS: Final = 1 << 20  # bytes that a share grows by
MOST_OCTETS: Final = 256 << 20  # bytes of an answer when there is no other


class LongAnswer:
    """An answer that is being gathered. Left by an exception, or when its generator is closed, it gives back its share.

    with LongAnswer(broker) as made:
        made.add(b"[]")
        return made.response()
    """

    __slots__ = ("_broker", "_made", "_share")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made = Pieces()
        self._share: MemoryShare | None = None

    def __enter__(self) -> LongAnswer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._end()

    @property
    def octets(self) -> int:
        return self._made.octets

    def expect(self, octets: int) -> None:
        """Claim room for about as many bytes before any work is done. Raises Refused if there is not enough."""
        if octets > FREE_OCTETS:
            self._claim(octets)

    def add(self, part: bytes) -> None:
        """Append a part. Raises Refused if there is no room for more."""
        self._made.add(part)
        octets = self._made.octets
        if octets > (FREE_OCTETS if self._share is None else self._share.octets):
            self._claim(octets + STEP_OCTETS)

    def response(self, headers: HeaderList = ()) -> Response:
        """Return the response with everything that was added. Its `sent` gives back the share."""
        return Response(HTTPStatus.OK, headers=headers, sent=self._end, pieces=self._made.pieces())

    def _claim(self, octets: int) -> None:
        if octets > MOST_OCTETS:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "this is too long for one answer; ask for a page of it"
            )
        room, share = lists_of(self._broker), self._share
        others = room.taken - (0 if share is None else share.octets)
        if others and others + octets > room.octets:
            reason = "other long lists take up the memory for them; ask for a page, or again later"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=(("Retry-After", "1"),))
        if share is None:
            self._share = taken_now(room, self._broker, octets)
        else:
            share.settle(octets)

    def _end(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.end()


class JsonRows(LongAnswer):
    """A JSON list that is gathered row by row."""

    __slots__ = ("count",)

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.count = 0
        self.add(b"[")

    def __enter__(self) -> JsonRows:
        return self

    def append(self, row: bytes) -> None:
        """Append a row, which is JSON already. Raises Refused if there is no room for more."""
        if self.count:
            self.add(b",")
        self.add(row)
        self.count += 1

    def response(self, headers: HeaderList = ()) -> Response:
        self._made.add(b"]")  # not by `add`, which may refuse: the rows' data has been settled already
        return super().response(headers)
