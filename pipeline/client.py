"""A client of the broker's HTTP API for reading: streams, leases, blocks (docs/bulk-access.md).

Errors name the stream, the queue or the option. Requests about streams change nothing on the broker, and those about
leases may be repeated without further effect.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias, cast
from urllib.parse import quote

import attrs

from leveret.pipeline.broker_client import TEXT_MAX, Answer, BrokerClient
from leveret.pipeline.errors import (
    Ahead,
    Expired,
    Fenced,
    Missing,
    NoStream,
    PipelineError,
    Refused,
    Remade,
    Unauthorized,
)
from leveret.pipeline.options import Options

Json: TypeAlias = Mapping[str, object]

BLOCKS_MAX: Final = (1 << 31) + (16 << 20)  # the largest block, and the bytes asked for
NO_FENCE: Final = -1  # reads blocks of a lease, whoever has opened it
BLOCKS_TYPE: Final = "application/vnd.leveret.blocks"


@attrs.frozen
class Stream:
    """The present state of one stream, or of one partition of a super stream, by the broker's answer."""

    name: str
    incarnation: str
    first: int  # offset of the oldest message
    next: int  # offset behind the newest message that may be read
    messages: int
    octets: int  # of their bodies


@attrs.frozen
class Lease:
    """The present state of a reader's lease of a queue, by the broker's answer. Messages below `first` are settled."""

    queue: str
    incarnation: str
    first: int
    next: int  # the offset behind the last message that is reserved
    messages: int  # reserved ones
    octets: int  # of their bodies
    ready: int  # messages that wait in the queue


@attrs.frozen
class Listed:
    """An entry of the list of streams. `partitions` holds their names if it is a super stream."""

    name: str
    partitions: tuple[str, ...] | None


@attrs.frozen
class Fetched:
    """The answer to a request for blocks: whole ones, of which the first may begin before the requested offset."""

    octets: bytes
    next: int  # the offset to request next


class Client:
    """Makes a reader's requests to the broker. Not to be shared by threads."""

    def __init__(
        self,
        options: Options,
        password: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._asker = BrokerClient(options, password, sleep, now)
        host = quote(options.vhost, safe="")
        self._streams, self._leases = f"/api/leveret/streams/{host}", f"/api/leveret/leases/{host}"

    def close(self) -> None:
        self._asker.close()

    # Streams.

    def listed(self) -> list[Listed]:
        """Return all streams that the user may read, by name."""
        found = _content(self._answer("GET", self._streams, {}, "streams"))
        if not isinstance(found, list):
            raise _strange("a list of streams")
        return sorted(map(_listed, found), key=lambda each: each.name)

    def partitions(self, name: str) -> list[Stream]:
        """Return the partitions of a super stream in order, or the one stream. Raises Missing, NoStream."""
        answer = self._asker.ask("GET", self._stream_path(name), most=TEXT_MAX)
        if answer.status == 400 and _more(answer).get("is_queue") is True:
            raise NoStream(answer.reason)
        what = self._stream(name) if self._options.reader_name is None else f"stream or {self._queue(name)}"
        found = _mapping(_content(self._good(answer, what)))
        partitions = found.get("partitions")
        if partitions is None:
            return [_stream(found)]
        return [_stream(_mapping(each)) for each in cast("list[object]", partitions)]

    def offset_since(self, name: str, timestamp: int) -> int:
        """Return the first offset of messages that arrived at `timestamp` (ms since 1970) or later; else the end."""
        path = self._stream_path(name) + "/offset"
        found = self._answer("GET", path, {"timestamp": timestamp}, self._stream(name))
        return _whole(_mapping(_content(found)), "offset")

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        """Fetch some of the messages [first, until). Raises Expired, Remade, Ahead, Missing."""
        query: dict[str, object] = {"from": first, "until": until}
        return self._blocks(self._stream_path(name), incarnation, query, self._stream(name))

    def _stream_path(self, name: str) -> str:
        return f"{self._streams}/{quote(name, safe='')}"

    def _stream(self, name: str) -> str:
        return f"stream '{name}' in virtual host '{self._options.vhost}'"

    # Leases, in the name of the option readerName.

    def open_lease(self, queue: str) -> tuple[Lease, int]:
        """Open or create the lease; return it with its fence, which shuts out earlier readers. Raises Missing."""
        found = self._asked_of_lease("PUT", queue, "", {})
        return _lease(found), _whole(found, "fence")

    def lease(self, queue: str) -> Lease:
        """Return the lease as it is. Raises Missing if there is none."""
        return _lease(self._asked_of_lease("GET", queue, "", {}))

    def release(self, queue: str, fence: int) -> Lease:
        """Put all messages of the lease back into the queue. Raises Fenced, Missing."""
        return _lease(self._asked_of_lease("POST", queue, "/release", {"fence": fence}))

    def settle(self, queue: str, fence: int, until: int) -> Lease:
        """Settle the messages below `until`. Raises Fenced, Ahead, Missing."""
        return _lease(self._asked_of_lease("POST", queue, "/settle", {"fence": fence, "to": until}))

    def reserve(self, queue: str, fence: int, begin: int, messages: int, octets: int) -> Lease:
        """Settle the messages below `begin`, and reserve up to so many messages and bytes of those that follow.

        Raises Fenced, Expired, Ahead, Missing.
        """
        query = {"fence": fence, "from": begin, "messages": messages, "octets": octets}
        return _lease(self._asked_of_lease("POST", queue, "/reserve", query))

    def leased_blocks(self, queue: str, fence: int, incarnation: str, first: int, until: int) -> Fetched:
        """Fetch some of the messages [first, until). Raises Fenced, Expired, Remade, Ahead, Missing."""
        query: dict[str, object] = {"from": first, "until": until}
        if fence != NO_FENCE:
            query["fence"] = fence
        return self._blocks(self._lease_path(queue), incarnation, query, self._queue(queue))

    def _asked_of_lease(self, method: str, queue: str, verb: str, query: Mapping[str, object]) -> Json:
        answer = self._answer(method, self._lease_path(queue) + verb, query, self._queue(queue))
        return _mapping(_content(answer))

    def _lease_path(self, queue: str) -> str:
        assert self._options.reader_name is not None
        return f"{self._leases}/{quote(queue, safe='')}/{quote(self._options.reader_name, safe='')}"

    def _queue(self, name: str) -> str:
        return f"queue '{name}' in virtual host '{self._options.vhost}'"

    # Answers.

    def _blocks(self, path: str, incarnation: str, query: dict[str, object], what: str) -> Fetched:
        query["max_octets"] = self._options.fetch_octets
        if incarnation:
            query["incarnation"] = incarnation
        answer = self._answer("GET", path + "/blocks", query, what, BLOCKS_MAX)
        if answer.headers.get("content-type", "").partition(";")[0] != BLOCKS_TYPE:
            raise _strange("blocks")
        try:
            return Fetched(answer.octets, int(answer.headers.get("leveret-next", "")))
        except ValueError:
            raise _strange("the header Leveret-Next") from None

    def _answer(
        self, method: str, path: str, query: Mapping[str, object], what: str, most: int = TEXT_MAX
    ) -> Answer:
        """Make a request; `what` is its subject, for errors. Raises PipelineError."""
        return self._good(self._asker.ask(method, path, query, most=most), what)

    def _good(self, answer: Answer, what: str) -> Answer:
        if answer.status not in (200, 201):
            self._refuse(answer, what)
        return answer

    def _refuse(self, answer: Answer, what: str) -> NoReturn:
        """Raise the error that an answer other than 200 means."""
        status, reason, user = answer.status, answer.reason, self._options.username
        if status == 401:
            raise Unauthorized(
                f"{self._asker.url} does not let '{user}' in: see the options username and passwordFile"
            )
        if status == 403:
            raise Refused(f"user '{user}' may not read {what}: {reason}")
        if status == 404:
            raise Missing(f"there is no {what} that '{user}' may read: {reason}")
        more = _more(answer)
        if status == 409 and more.get("fenced") is True:
            raise Fenced(
                f"another query reads {what} as '{self._options.reader_name}' now (option readerName)"
            )
        if status == 409 and "incarnation" in more:
            raise Remade(f"{what} was deleted, and made anew")
        if status == 410:
            first = _whole(more, "first")
            raise Expired(f"{what} begins at offset {first} now: what was before is gone", first)
        if status == 416:
            raise Ahead(f"{what} ends before the offset that was asked for: {reason}")
        raise Refused(f"{self._asker.url} answers {status} for {what}: {reason}")


# Contents of answers.


def _content(answer: Answer) -> object:
    return _loaded(answer.octets)


def _loaded(octets: bytes) -> object:
    try:
        return json.loads(octets)
    except (ValueError, RecursionError):
        raise _strange("JSON") from None


def _more(answer: Answer) -> Json:
    """Return the members of a refusal's JSON object."""
    try:
        content = json.loads(answer.octets)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _mapping(value: object) -> Json:
    if not isinstance(value, dict):
        raise _strange("an object")
    return value


def _listed(content: object) -> Listed:
    value = _mapping(content)
    partitions = value.get("partitions")
    names = tuple(map(str, partitions)) if isinstance(partitions, list) else None
    return Listed(_text(value, "name"), names)


def _stream(value: Json) -> Stream:
    numbers = (_whole(value, name) for name in ("first", "next", "messages", "octets"))
    return Stream(_text(value, "name"), _text(value, "incarnation"), *numbers)


def _lease(value: Json) -> Lease:
    numbers = (_whole(value, name) for name in ("first", "next", "messages", "octets", "ready"))
    return Lease(_text(value, "queue"), _text(value, "incarnation"), *numbers)


def _text(content: Json, name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise _strange(name)
    return value


def _whole(content: Json, name: str) -> int:
    value = content.get(name)
    if type(value) is not int or value < 0:
        raise _strange(name)
    return value


def _strange(what: str) -> PipelineError:
    return PipelineError(
        f"the answer lacks {what}: is there a broker with bulk access at each URL of the option endpoints?"
    )
