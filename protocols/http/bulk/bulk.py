"""Answer one request for blocks of a stream or a lease: wait for messages if need be, wait for room, read, and answer.

    asked ──there are messages──────────────────────> in line for room ──> read ──(made Arrow)──> answered
      └─none yet──> looks out ──told of more────────────┘
                          └─wait_ms are over──> answered with nothing

Nothing runs while a request looks out: the stream or lease tells it. What is read counts against the room that all bulk
answers share (`memory_budget.py`) until most of it has been sent.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from leveret.durable.store import block
from leveret.durable.store.contract import DamagedError
from leveret.errors import Failure
from leveret.message import Encoding
from leveret.protocols.http.bulk import arrow
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.server.memory_budget import MemoryShare, room_of
from leveret.protocols.http.server.replies import mistake, refused_response
from leveret.protocols.http.server.request import Refused
from leveret.security.users import Permission, User

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.queues.stream_log import Log

log: Final = logging.getLogger("leveret.http")

BLOCKS: Final = "application/vnd.leveret.blocks"
ARROW: Final = "application/vnd.apache.arrow.stream"
ROOM_WAIT_S: Final = 30.0  # in line; after that the client may ask again
RETRY_AFTER_S: Final = 5
# Without a store, blocks and Arrow are made in the broker's own thread: only so much at once, in some ms.
PACKED_OCTETS: Final = 1 << 20
ARROW_OCTETS: Final = 1 << 18


@attrs.frozen
class Wanted:
    """The parameters of a request."""

    offset: int
    until: int | None  # as far as there are messages, if None
    octets: int
    incarnation: str | None  # any, if None
    wait_s: float
    arrow: tuple[str, ...] = ()  # columns, if Arrow is wanted


class Readable(Protocol):
    """An object that has a log, and tells when there is more in it."""

    log: Log

    @property
    def described(self) -> str:
        """Return the object's name for error texts."""

    def look_out(self, tell: Callable[[], None]) -> None:
        """Have `tell` called once, when there is more to read, or when there will be no more."""

    def look_away(self, tell: Callable[[], None]) -> None:
        """Have `tell` not called any more."""


class Source(ABC):
    """A stream or a lease that blocks are made of. `queue` names the queue whose permissions count."""

    def __init__(self, readable: Readable, host: str, queue: str, incarnation: str) -> None:
        self.readable = readable
        self.host = host
        self.queue = queue
        self.incarnation = incarnation

    @property
    @abstractmethod
    def first(self) -> int:
        """Return the first offset that may be asked for."""

    @abstractmethod
    def require_there(self) -> None:
        """Check that the source may still be read. Raises NotFound if it has been deleted, or Refused."""


class BulkAnswer:
    """The state of one request from the question to the answer."""

    __slots__ = (
        "_broker",
        "_ended",
        "_readable",
        "_reading",
        "_share",
        "_source",
        "_timer",
        "_user",
        "_wanted",
        "later",
    )

    def __init__(self, broker: Broker, user: User, source: Source, wanted: Wanted) -> None:
        self.later = Later()
        self._broker = broker
        self._user = user
        self._source = source
        self._readable = source.readable
        self._wanted = wanted
        self._timer: Timer | None = None
        self._share: MemoryShare | None = None
        self._reading = False  # a thread reads, or is about to
        self._ended = False  # answered, or the connection has ended

    def begin(self) -> Later:
        """Begin to answer. Raises Refused, or a Failure, if the request cannot be answered."""
        self._require_right_place()
        self.later.dropped = self._drop
        if self._has_more or not self._wanted.wait_s:
            self._guarded(self._ask_for_room)
        else:
            self._readable.look_out(self._told)
            self._timer = self._broker.timers.at(self._broker.now + self._wanted.wait_s, self._time_is_over)
        return self.later

    @property
    def _has_more(self) -> bool:
        return self._readable.log.committed > self._wanted.offset

    def _require_right_place(self) -> None:
        """Check the source's incarnation, and that it has the offset or will have it. Raises Refused or a Failure."""
        source, wanted = self._source, self._wanted
        self._broker.access.check(self._user, source.host, Permission.READ, "queue", source.queue)
        source.require_there()
        described, first, following = self._readable.described, source.first, self._readable.log.committed
        if wanted.incarnation not in (None, source.incarnation):
            reason = f"{described} has another incarnation than '{wanted.incarnation}'"
            raise Refused(HTTPStatus.CONFLICT, reason, {"incarnation": source.incarnation})
        bounds = {"first": first, "next": following}
        if wanted.offset < first:
            reason = f"offset {wanted.offset} of {described} is gone; the first is {first}"
            raise Refused(HTTPStatus.GONE, reason, bounds)
        if wanted.offset > following:
            reason = f"{described} has no offset {wanted.offset} yet; its next is {following}"
            raise Refused(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, reason, bounds)

    # Looking out for messages.

    def _told(self) -> None:
        self._guarded(self._look_again)

    def _look_again(self) -> None:
        self._require_right_place()
        if self._has_more:
            self._ask_for_room()
        else:
            self._readable.look_out(self._told)

    def _time_is_over(self, now: float) -> None:
        self._readable.look_away(self._told)
        self._guarded(self._take, b"")

    # Reading.

    def _ask_for_room(self) -> None:
        self._broker.timers.cancel(self._timer)
        octets = self._wanted.octets * (2 if self._wanted.arrow else 1)
        self._timer = self._broker.timers.at(self._broker.now + ROOM_WAIT_S, self._no_room)
        self._share = MemoryShare(room_of(self._broker), self._broker, octets, self._let_in)
        self._share.ask()

    def _no_room(self, now: float) -> None:
        reason = "other bulk answers take up the memory for them; ask again later"
        headers = (("Retry-After", str(RETRY_AFTER_S)),)
        self._answer(refused_response(Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=headers)))

    def _let_in(self) -> None:
        self._broker.timers.cancel(self._timer)
        self._reading = True
        self._guarded(self._read)

    def _read(self) -> None:
        self._require_right_place()
        wanted, found = self._wanted, self._readable.log
        until = found.committed if wanted.until is None else min(wanted.until, found.committed)
        octets = wanted.octets
        if self._broker.journal is None:
            octets = min(octets, ARROW_OCTETS if wanted.arrow else PACKED_OCTETS)
        found.raw(wanted.offset, until, octets, self._on_read)

    def _on_read(self, result: bytes | Exception) -> None:
        self._guarded(self._take, result)

    def _take(self, result: bytes | Exception) -> None:
        if self._ended:
            self._give_back()
            return
        if not isinstance(result, bytes) or not result:
            self._require_right_place()  # retention may have dropped it meanwhile
        if isinstance(result, Exception):
            raise self._unreadable(result)
        if self._wanted.arrow:
            self._make_arrow(result)
        else:
            self._respond(result)

    def _unreadable(self, error: Exception) -> Exception:
        """Return the failure for a read error. A damaged block counts as gone: the answer tells where the next
        begins."""
        if not isinstance(error, DamagedError) or error.next is None:
            log.error("%s cannot be read: %s", self._readable.described, error)
            return Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{self._readable.described} cannot be read: {error}"
            )
        reason = f"offset {self._wanted.offset} of {self._readable.described} is damaged: {error}"
        return Refused(HTTPStatus.GONE, reason, {"first": error.next, "next": self._readable.log.committed})

    def _make_arrow(self, blocks: bytes) -> None:
        wanted, journal = self._wanted, self._broker.journal

        encoding_of = self._encodings_at_hand().get if journal is None else journal.encoding

        def job() -> tuple[bytes, int]:
            return arrow.made(blocks, wanted.offset, wanted.until, wanted.octets, encoding_of, wanted.arrow)

        def then(made: tuple[bytes, int] | Exception) -> None:
            self._guarded(self._take_arrow, made)

        if journal is None:
            then(job())
        else:
            journal.work_soon(job, then)

    def _encodings_at_hand(self) -> dict[str, Encoding]:
        """Return the encodings of what was read, without a store: the messages are in memory and have them."""
        found = self._readable.log.read(self._wanted.offset, ARROW_OCTETS, ARROW_OCTETS)
        messages = () if found is None else found[1]
        return {each.encoding.name: each.encoding for each in messages}

    def _take_arrow(self, made: tuple[bytes, int] | Exception) -> None:
        if isinstance(made, Exception):
            raise made
        if self._ended:
            self._give_back()
        else:
            self._respond(*made)

    # The answer.

    def _respond(self, octets: bytes, following: int | None = None) -> None:
        """Answer with blocks or Arrow. `following` is the offset to ask for next, where the bytes do not tell."""
        first = self._wanted.offset
        if following is None:
            first, following = block.range_of(octets) if octets else (first, first)
        headers = (
            ("Leveret-First", str(first)),
            ("Leveret-Next", str(following)),
            ("Leveret-Committed", str(self._readable.log.committed)),
            ("Leveret-Incarnation", self._source.incarnation),
        )
        kind = ARROW if self._wanted.arrow else BLOCKS
        self._answer(Response(HTTPStatus.OK, octets, kind, headers), keep_share=True)

    def _answer(self, response: Response, keep_share: bool = False) -> None:
        if self._ended:
            return
        self._end()
        if self._share is not None:
            if keep_share:
                self._share.settle(len(response.body))
                response = attrs.evolve(response, sent=self._give_back)
            else:
                self._give_back()
        self.later.answer(response, self._broker.now)

    def _drop(self) -> None:
        """Called when the connection has ended. What a thread is reading still takes up room."""
        self._end()
        if not self._reading:
            self._give_back()

    def _end(self) -> None:
        self._ended = True
        self._broker.timers.cancel(self._timer)
        self._readable.look_away(self._told)

    def _give_back(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.end()

    def _guarded(self, step: Callable[..., None], *arguments: object) -> None:
        """Run a step and turn its exceptions into the answer, for its caller must go on."""
        try:
            step(*arguments)
        except (Failure, Refused) as refused:
            self._answer(refused_response(refused))
        except Exception:
            log.exception("a mistake of ours while answering with blocks of %s", self._readable.described)
            if self._ended:  # no other step will give it back
                self._give_back()
            self._answer(mistake())
