"""Questions to the broker's HTTP front-end and its answers: streams, offsets, blocks (docs/bulk-access.md).

A client keeps one connection. Whatever may be over in a while (nobody listens, a connection breaks, the broker is busy)
is asked again, at the next endpoint, after a pause that grows; everything else is an error that names the stream or the
option. Questions change nothing on the broker, so asking twice does no harm.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn, TypeAlias, cast
from urllib.parse import quote, urlencode, urlsplit

import attrs

from pipeline.errors import (
    Ahead,
    BadOption,
    Expired,
    Missing,
    PipelineError,
    Refused,
    Remade,
    Unreachable,
)
from pipeline.options import Options

Json: TypeAlias = Mapping[str, object]

SOON: Final = frozenset((408, 429, 502, 503, 504))  # over in a while, perhaps
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
TEXT_MAX: Final = 16 << 20  # octets of an answer that is no blocks
BLOCKS_MAX: Final = (1 << 31) + (16 << 20)  # a block, and what was asked for
PASSWORD_MAX: Final = 64 << 10
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


def password_of(options: Options, environ: Mapping[str, str]) -> str:
    """Raises BadOption."""
    if options.password_file is None:
        return environ.get("LEVERET_PASSWORD", "guest")
    try:
        with Path(options.password_file).open("rb") as file:
            line = file.read(PASSWORD_MAX).partition(b"\n")[0]
        return line.rstrip(b"\r").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(
            f"option passwordFile: '{options.password_file}' cannot be read here ({error});"
            " it must be there on the driver and on every executor"
        ) from None


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
        said = password_of(options, os.environ) if password is None else password
        credentials = base64.b64encode(f"{options.username}:{said}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}"}
        self._sleep = sleep
        self._now = now
        self._endpoint = 0  # index
        self._connection: http.client.HTTPConnection | None = None
        self._base = f"/api/leveret/streams/{quote(options.vhost, safe='')}"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
        response, octets = self._answer(path, asked, name, BLOCKS_MAX)
        if response.getheader("Content-Type", "").partition(";")[0] != BLOCKS_TYPE:
            raise _strange("blocks")
        try:
            return Fetched(octets, int(response.getheader("Leveret-Next", "")))
        except ValueError:
            raise _strange("the header Leveret-Next") from None

    # Asking, and asking again.

    def _answer(
        self, path: str, asked: Mapping[str, object], stream: str | None, most: int = TEXT_MAX
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer to a GET, its body read. Raises PipelineError."""
        target = self._base + path + ("?" + urlencode(asked) if asked else "")
        give_up = self._now() + self._options.retry_s
        pause = PAUSE_S
        while True:
            try:
                response, octets = self._asked_once(target, most)
                if response.status not in SOON:
                    break
                trouble = f"it answers {response.status}: {_reason(octets)}"
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise Unreachable(
                        f"{self._url}: {error.verify_message}; see the option tls.caFile"
                    ) from None
                trouble = str(error) or type(error).__name__
            self.close()
            if self._now() + pause > give_up:
                raise Unreachable(
                    f"no broker answers at {', '.join(self._options.endpoints)} (option endpoints), asked for"
                    f" {self._options.retry_s} s (option retrySeconds); the last trouble at {self._url}: {trouble}"
                )
            self._endpoint = (self._endpoint + 1) % len(self._options.endpoints)
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
        if response.status != 200:
            self._refuse(response.status, octets, stream)
        return response, octets

    def _asked_once(self, target: str, most: int) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connected()
        connection.request("GET", urlsplit(self._url).path + target, headers=self._headers)
        response = connection.getresponse()
        if (response.length or 0) > most:
            self.close()
            raise PipelineError(
                f"{self._url} answers with {response.length} octets, where {most} are the most"
            )
        octets = response.read(most + 1) if response.length is None else response.read()
        if len(octets) > most:
            self.close()
            raise PipelineError(f"{self._url} answers with more than {most} octets")
        return response, octets

    @property
    def _url(self) -> str:
        return self._options.endpoints[self._endpoint]

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._options.timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._options.ca_file)
        except OSError as error:
            raise BadOption(
                f"option tls.caFile: '{self._options.ca_file}' cannot be used here ({error})"
            ) from None
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=self._options.timeout_s, context=context
        )

    def _refuse(self, status: int, octets: bytes, stream: str | None) -> NoReturn:
        """Raise what an answer other than 200 means."""
        where = f"stream '{stream}' in virtual host '{self._options.vhost}'"
        reason = _reason(octets)
        if status == 401:
            raise Refused(
                f"{self._url} does not let '{self._options.username}' in: see the options username and passwordFile"
            )
        if status == 403:
            raise Refused(f"user '{self._options.username}' may not read {where}: {reason}")
        if status == 404:
            raise Missing(f"there is no {where} that '{self._options.username}' may read: {reason}")
        if status == 409:
            raise Remade(f"{where} was deleted, and made anew")
        if status == 410:
            first = _whole(_mapping(_loaded(octets)), "first")
            raise Expired(f"{where} begins at offset {first} now: what was before is gone", first)
        if status == 416:
            raise Ahead(f"{where} ends before the offset that was asked for: {reason}")
        raise Refused(f"{self._url} answers {status} for {where}: {reason}")


# What answers hold.


def _content(answer: tuple[http.client.HTTPResponse, bytes]) -> object:
    return _loaded(answer[1])


def _loaded(octets: bytes) -> object:
    try:
        return json.loads(octets)
    except (ValueError, RecursionError):
        raise _strange("JSON") from None


def _mapping(found: object) -> Json:
    if not isinstance(found, dict):
        raise _strange("an object")
    return found


def _reason(octets: bytes) -> str:
    """In the broker's words, as far as they are any."""
    try:
        found = json.loads(octets)
        return str(found.get("reason") or found.get("error") or "no reason given")[:1000]
    except (ValueError, RecursionError, AttributeError):
        return octets[:200].decode("utf-8", "backslashreplace") or "no reason given"


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
