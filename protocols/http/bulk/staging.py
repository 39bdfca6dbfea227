"""Publish in stages over HTTP (`features/staging/`): parts arrive in pieces, and a commit publishes a batch, once.

A staging belongs to the user that staged first under its name. Only this user and administrators have access to it.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from leveret.errors import PreconditionFailed
from leveret.features.staging.batch import NUMBER_MAX, BatchPart
from leveret.features.staging.staging import (
    NAME_MAX,
    NOTES_MAX,
    Full,
    NotStaged,
    OutOfOrder,
    Staging,
    forget_staging,
    new_staging,
    no_staging,
    stagings_of,
)
from leveret.protocols.http.bulk.input_blocks import InputBlocks
from leveret.protocols.http.bulk.publish import RETRY_AFTER, require_no_alarm, require_routes
from leveret.protocols.http.bulk.streams import entered
from leveret.protocols.http.connection import Later
from leveret.protocols.http.server.durable_answers import DurableAnswer
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.replies import refused_response
from leveret.protocols.http.server.request import Level, Refused, Request, Route

if TYPE_CHECKING:
    from leveret.features.staging.batch import Batch
    from leveret.values import Json
    from leveret.virtual_host import VirtualHost

BASE: Final = "/api/leveret/staging/{vhost}/{name}"
ADMINISTRATOR: Final = "administrator"  # the tag
PATIENCE_S: Final = 25.0  # until a batch is published; after that the client may ask again


def state(request: Request) -> Json:
    request.only()
    staging = staging_named(request)
    return {
        "name": staging.name,
        "batch": staging.committed,
        "publishing": staging.publishing,
        "staged": {str(batch): rows for batch, rows in staging.staged.items()},
        "octets": staging.log.octets,
    }


# Staging.


def stage(request: Request) -> Later:
    """Stage a piece of a part."""
    request.only("piece", "mandatory")
    part = BatchPart(*(request.place(name, NUMBER_MAX) for name in ("batch", "partition", "attempt")))
    number = request.number("piece", None, 0, NOTES_MAX)
    mandatory = request.flag("mandatory")
    host, name = entered(request), name_of(request)
    require_own(request, stagings_of(host).get(name))
    return PortionedAnswer(request.broker, stage_steps(request, host, part, number, mandatory)).begin()


def stage_steps(
    request: Request, host: VirtualHost, part: BatchPart, number: int, mandatory: bool
) -> Generator[float, None, Json]:
    """Check all rows before the first is kept. A piece that is staged already is not checked again."""
    staging = stagings_of(host).get(request.arguments["name"])
    try:
        if staging is not None and not staging.expects(part, number):
            staging.use(part.batch)
        else:
            require_no_alarm(request.broker)
            incoming = InputBlocks(request, host)
            yield from incoming.check()
            if mandatory:
                yield from require_routes(incoming, host)
            staging = staging or found_or_made(request, host)
            packed = incoming.packed() if request.broker.journal is not None else None
            yield from staging.take(part, number, incoming.messages(), packed)
    except OutOfOrder as early:
        raise Refused(HTTPStatus.CONFLICT, str(early), {"piece": early.expected}) from None
    except Full as full:
        raise Refused(HTTPStatus.INSUFFICIENT_STORAGE, str(full)) from None
    if staging.is_committed(part.batch):
        return {"rows": 0, "repeated": True}
    return {"rows": staging.rows_of(part)}


def found_or_made(request: Request, host: VirtualHost) -> Staging:
    """Return the staging, made if need be. Raises Refused, NotFound if the virtual host is gone, or Full."""
    name = request.arguments["name"]
    if request.broker.virtual_host(host.name) is not host:
        raise no_staging(name, host.name)
    return require_own(request, stagings_of(host).get(name)) or new_staging(host, name, request.user.name)


def drop(request: Request) -> Later:
    """Drop what is staged of a batch."""
    request.only()
    return on_disk(request, {"dropped": staging_named(request).drop(request.place("batch", NUMBER_MAX))})


def forget(request: Request) -> Later:
    """Forget the name, and all that is staged under it."""
    request.only()
    staging = staging_named(request)
    rows = sum(staging.staged.values())
    forget_staging(staging)
    return on_disk(request, {"dropped": rows})


# Committing.


def commit(request: Request) -> Later:
    """Commit a batch, and answer when all of it is in its queues and on disk."""
    request.only()
    number = request.place("batch", NUMBER_MAX)
    parts = parts_in(request.body, number)
    host, name = entered(request), name_of(request)
    staging = require_own(request, stagings_of(host).get(name))
    try:
        if staging is None:  # the first batch may have no rows
            require_none(parts)
            staging = found_or_made(request, host)
        repeated = staging.is_committed(number)
        batch = staging.commit(number, parts)
    except NotStaged as missing:
        part: Json = [missing.part.partition, missing.part.attempt]
        raise Refused(HTTPStatus.CONFLICT, str(missing), {"missing": part}) from None
    except Full as full:
        raise Refused(HTTPStatus.INSUFFICIENT_STORAGE, str(full)) from None
    return Committing(request, staging, batch, repeated).later


def require_none(parts: list[tuple[BatchPart, int]]) -> None:
    """Check that the parts have no rows, because nothing has been staged. Raises NotStaged otherwise."""
    for part, rows in parts:
        if rows:
            raise NotStaged(part, rows, 0)


class Committing:
    """A commit that answers when its batch is published."""

    __slots__ = ("_asked", "_batch", "_repeated", "_staging", "_timer", "later")

    def __init__(self, request: Request, staging: Staging, batch: Batch | None, repeated: bool) -> None:
        """`batch` is None if it was published long ago."""
        self.later = Later()
        self._asked = request
        self._staging = staging
        self._batch = batch
        self._repeated = repeated
        broker = request.broker
        self._timer = broker.timers.at(broker.now + PATIENCE_S, self._time_is_over)
        if batch is None or batch.is_published:
            self._published()
        else:
            batch.waiting.append(self._published)
            self.later.dropped = self._end

    def _published(self) -> None:
        self._end()
        if self._staging.ended:
            gone = no_staging(self._staging.name, self._staging.virtual_host.name)
            self.later.answer(refused_response(gone), self._asked.broker.now)
            return
        batch = self._batch
        content: Json = {
            "published": batch.published if batch is not None else 0,
            "unroutable": batch.unroutable if batch is not None else 0,
            "repeated": self._repeated,
        }
        DurableAnswer(self._asked.broker, self.later, content)

    def _time_is_over(self, now: float) -> None:
        self._end()
        assert self._batch is not None
        reason = (
            f"{self._batch.rows} rows of batch {self._batch.number} of {self._staging.described} are still to be"
            " published, and will be; ask again later"
        )
        refused = Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=RETRY_AFTER)
        self.later.answer(refused_response(refused), now)

    def _end(self) -> None:
        self._asked.broker.timers.cancel(self._timer)
        if self._batch is not None and self._published in self._batch.waiting:
            self._batch.waiting.remove(self._published)


def parts_in(body: bytes, batch: int) -> list[tuple[BatchPart, int]]:
    """Return the parts to publish, each with its number of rows. Raises PreconditionFailed if the body is malformed."""
    wanted = 'a commit says {"parts": [[partition, attempt, rows], ...]}'
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PreconditionFailed(f"{wanted}, and this is no JSON: {error}") from None
    if not isinstance(content, dict) or set(content) != {"parts"} or not isinstance(content["parts"], list):
        raise PreconditionFailed(wanted)
    parts: dict[int, tuple[BatchPart, int]] = {}
    for each in content["parts"]:
        if not isinstance(each, list) or len(each) != 3 or not all(map(is_number, each)):
            raise PreconditionFailed(f"{wanted}, each a whole number from 0 to {NUMBER_MAX}")
        partition, attempt, rows = each
        if partition in parts:
            raise PreconditionFailed(f"partition {partition} is given twice")
        parts[partition] = BatchPart(batch, partition, attempt), rows
    return list(parts.values())


def is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


# The staging, and its owner.


def staging_named(request: Request) -> Staging:
    """Return the staging in the path. Raises Refused or NotFound."""
    host, name = entered(request), name_of(request)
    found = require_own(request, stagings_of(host).get(name))
    if found is None:
        raise no_staging(name, host.name)
    return found


def name_of(request: Request) -> str:
    name = request.arguments["name"]
    octets = len(name.encode())
    if not 0 < octets <= NAME_MAX:
        raise PreconditionFailed(f"the name of a staging has {octets} octets, not 1 to {NAME_MAX}")
    return name


def require_own(request: Request, staging: Staging | None) -> Staging | None:
    """Return the staging if it is the user's, or the user an administrator. Raises Refused otherwise."""
    user = request.user
    if staging is not None and staging.user != user.name and ADMINISTRATOR not in user.tags:
        raise Refused(HTTPStatus.FORBIDDEN, f"{staging.described} is not of user '{user.name}'")
    return staging


def on_disk(request: Request, content: Json) -> Later:
    later = Later()
    DurableAnswer(request.broker, later, content)
    return later


ROUTES: Final = (
    Route("GET", BASE, Level.USER, state),
    Route("POST", BASE + "/{batch}/{partition}/{attempt}", Level.USER, stage, large=True),
    Route("POST", BASE + "/{batch}/commit", Level.USER, commit, large=True),
    Route("DELETE", BASE + "/{batch}", Level.USER, drop),
    Route("DELETE", BASE, Level.USER, forget),
)
