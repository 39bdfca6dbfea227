"""Questions to the broker's HTTP front-end and its answers: streams, offsets, blocks (docs/bulk-access.md).

Errors name the stream or the option. Questions change nothing on the broker, so asking twice does no harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias, cast
from urllib.parse import quote

import attrs

from pipeline.asking import TEXT_MAX, Answer, Asker
from pipeline.errors import Ahead, Expired, Missing, PipelineError, Refused, Remade
from pipeline.options import Options

Json: TypeAlias = Mapping[str, object]

BLOCKS_MAX: Final = (1 << 31) + (16 << 20)  # a block, and what was asked for
BLOCKS_TYPE: Final = "application/vnd.leveret.blocks"


@attrs.frozen
class Stream:
    """One stream, or one partition of a super stream, as the broker says it is now."""

    name: str
    incarnation: str
    first: int  # offset of the oldest message
    next: int  # and that behind the newest that may be read
    messages: int
    octets: int  # of their bodies


@attrs.frozen
class Listed:
    """A name in the list of streams. `partitions`: their names, if it is a super stream."""

    name: str
    partitions: tuple[str, ...] | None


@attrs.frozen
class Fetched:
    """Whole blocks, of which the first may begin before the offset that was asked for."""

    octets: bytes
    next: int  # to ask for next


class Client:
    """What a reader asks of the broker. Not for several threads at once."""

    def __init__(
        self,
        options: Options,
        password: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._asker = Asker(options, password, sleep, now)
        self._base = f"/api/leveret/streams/{quote(options.vhost, safe='')}"

    def close(self) -> None:
        self._asker.close()

    # Questions.

    def listed(self) -> list[Listed]:
        """All streams that the user may read, by name."""
        found = _content(self._answer("", {}, None))
        if not isinstance(found, list):
            raise _strange("a list of streams")
        return sorted(map(_listed, found), key=lambda each: each.name)

    def partitions(self, name: str) -> list[Stream]:
        """The partitions of a super stream in order, or the one stream. Raises Missing."""
        found = _mapping(_content(self._answer("/" + quote(name, safe=""), {}, name)))
        partitions = found.get("partitions")
        if partitions is None:
            return [_stream(found)]
        return [_stream(_mapping(each)) for each in cast("list[object]", partitions)]

    def offset_since(self, name: str, timestamp: int) -> int:
        """The first offset of what arrived at `timestamp` (ms since 1970) or later; behind the last, if nothing did."""
        path = f"/{quote(name, safe='')}/offset"
        found = _mapping(_content(self._answer(path, {"timestamp": timestamp}, name)))
        return _whole(found, "offset")

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        """Some of the messages [first, until). Raises Expired, Remade, Ahead, Missing."""
        asked: dict[str, object] = {"from": first, "until": until, "max_octets": self._options.fetch_octets}
        if incarnation:
            asked["incarnation"] = incarnation
        path = f"/{quote(name, safe='')}/blocks"
        answer = self._answer(path, asked, name, BLOCKS_MAX)
        if answer.headers.get("content-type", "").partition(";")[0] != BLOCKS_TYPE:
            raise _strange("blocks")
        try:
            return Fetched(answer.octets, int(answer.headers.get("leveret-next", "")))
        except ValueError:
            raise _strange("the header Leveret-Next") from None

    # Answers.

    def _answer(
        self, path: str, asked: Mapping[str, object], stream: str | None, most: int = TEXT_MAX
    ) -> Answer:
        """The answer to a GET. Raises PipelineError."""
        answer = self._asker.ask("GET", self._base + path, asked, most=most)
        if answer.status != 200:
            self._refuse(answer, stream)
        return answer

    def _refuse(self, answer: Answer, stream: str | None) -> NoReturn:
        """Raise what an answer other than 200 means."""
        where = f"stream '{stream}' in virtual host '{self._options.vhost}'"
        status, reason = answer.status, answer.reason
        if status == 401:
            raise Refused(
                f"{self._asker.url} does not let '{self._options.username}' in:"
                " see the options username and passwordFile"
            )
        if status == 403:
            raise Refused(f"user '{self._options.username}' may not read {where}: {reason}")
        if status == 404:
            raise Missing(f"there is no {where} that '{self._options.username}' may read: {reason}")
        if status == 409:
            raise Remade(f"{where} was deleted, and made anew")
        if status == 410:
            first = _whole(_mapping(_loaded(answer.octets)), "first")
            raise Expired(f"{where} begins at offset {first} now: what was before is gone", first)
        if status == 416:
            raise Ahead(f"{where} ends before the offset that was asked for: {reason}")
        raise Refused(f"{self._asker.url} answers {status} for {where}: {reason}")


# What answers hold.


def _content(answer: Answer) -> object:
    return _loaded(answer.octets)


def _loaded(octets: bytes) -> object:
    try:
        return json.loads(octets)
    except (ValueError, RecursionError):
        raise _strange("JSON") from None


def _mapping(found: object) -> Json:
    if not isinstance(found, dict):
        raise _strange("an object")
    return found


def _listed(found: object) -> Listed:
    said = _mapping(found)
    partitions = said.get("partitions")
    names = tuple(map(str, partitions)) if isinstance(partitions, list) else None
    return Listed(_text(said, "name"), names)


def _stream(found: Json) -> Stream:
    numbers = (_whole(found, name) for name in ("first", "next", "messages", "octets"))
    return Stream(_text(found, "name"), _text(found, "incarnation"), *numbers)


def _text(found: Json, name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise _strange(name)
    return value


def _whole(found: Json, name: str) -> int:
    value = found.get(name)
    if type(value) is not int or value < 0:
        raise _strange(name)
    return value


def _strange(what: str) -> PipelineError:
    return PipelineError(
        f"the answer lacks {what}: is there a broker with bulk access at each URL of the option endpoints?"
    )
