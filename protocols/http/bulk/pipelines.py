"""Keep how far pipelines say they are, and tell how far they are behind what there is now.

A pipeline reads streams or queues in micro-batches and keeps its position itself, as a query of Spark does in its
checkpoint. It may report that position here after each micro-batch, under a name. Nothing is read or settled by it, and
nothing is kept on disk: after a restart of the node, the next report tells.

Pipelines of the configuration file, which the node runs, report as any do; of these there is a state as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import attrs

from leveret.config.types import NAME_OCTETS_MAX
from leveret.errors import NotFound, PreconditionFailed
from leveret.exchanges.super_streams import partitions_of
from leveret.guests import Guest
from leveret.observability.metric import COUNTER, GAUGE, Metric
from leveret.protocols.http.bulk.streams import OFFSET_MAX, entered
from leveret.protocols.http.management.request_body import body_of
from leveret.protocols.http.management.requester import visible_hosts
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.queues.stream import StreamQueue
from leveret.security.users import Permission
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.features.pipelines.supervised_pipeline import SupervisedPipeline
    from leveret.virtual_host import VirtualHost

ALL: Final = "/api/leveret/pipelines"
PATH: Final = ALL + "/{vhost}"
ONE: Final = PATH + "/{name}"
PIPELINES_MAX: Final = 1000  # in a node
PARTITIONS_MAX: Final = 1000  # of a pipeline
POSITIONS_MAX: Final = 10_000  # of all pipelines of a node
KEPT_S: Final = 86_400  # after the last report


@attrs.frozen
class Position:
    """The first offset of a partition that a pipeline has not written yet."""

    source: str
    partition: int
    offset: int
    behind: int  # messages, when this was reported
    incarnation: str | None  # of the stream; None: any


@attrs.frozen
class Report:
    """The last report of a pipeline."""

    user: str
    at: float  # on the broker's clock
    batch: int
    rows: int  # read since it started
    published: int | None  # rows written since then, if they are not those read
    rows_per_s: int
    positions: tuple[Position, ...]


NOTHING: Final = Report(
    "", 0.0, -1, 0, None, 0, ()
)  # of a pipeline that the node runs and that has not reported


class Pipelines(Guest):
    """The reports of a node, by virtual host and name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reports: dict[tuple[str, str], Report] = {}

    def metrics(self) -> Iterator[Metric]:
        """Yield how far pipelines are, by virtual host and name; nothing, if none has reported."""
        if not self._reports:
            return
        hosts, now = self._broker.virtual_hosts, self._broker.now
        named = [({"vhost": host, "pipeline": name}, report) for host, name, report in self.all()]
        lags = [
            (
                {**labels, "source": each.source, "partition": str(each.partition)},
                behind(hosts.get(labels["vhost"]), each),
            )
            for labels, report in named
            for each in report.positions
        ]
        text = "Messages that a pipeline has not written yet."
        yield Metric("leveret_pipeline_messages_behind", GAUGE, text, lags)
        text, rows = "Rows that a pipeline says it has read.", [(labels, each.rows) for labels, each in named]
        yield Metric("leveret_pipeline_rows_total", COUNTER, text, rows)
        text = "Rows that a pipeline says it has published."
        rows = [(labels, each.published) for labels, each in named if each.published is not None]
        yield Metric("leveret_pipeline_rows_published_total", COUNTER, text, rows)
        text, ages = (
            "The time since a pipeline's last report.",
            [(labels, now - each.at) for labels, each in named],
        )
        yield Metric("leveret_pipeline_report_age_seconds", GAUGE, text, ages)

    def put(self, key: tuple[str, str], report: Report) -> None:
        """Keep a report in place of an earlier one. Raises Refused if there would be too many."""
        for old in [each for each, found in self._reports.items() if report.at - found.at > KEPT_S]:
            del self._reports[old]
        others = [found for each, found in self._reports.items() if each != key]
        positions = sum(len(each.positions) for each in others)
        if len(others) >= PIPELINES_MAX or positions + len(report.positions) > POSITIONS_MAX:
            reason = (
                f"{len(others)} other pipelines with {positions} partitions have reported in the last day"
            )
            raise Refused(HTTPStatus.INSUFFICIENT_STORAGE, reason)
        self._reports[key] = report

    def find(self, key: tuple[str, str]) -> Report | None:
        return self._reports.get(key)

    def forget(self, key: tuple[str, str]) -> None:
        self._reports.pop(key, None)

    def all(self) -> Iterator[tuple[str, str, Report]]:
        """Yield virtual host, name and report, in the order of the names."""
        for (host, name), report in sorted(self._reports.items(), key=lambda each: each[0]):
            yield host, name, report


def every_pipeline(request: Request) -> Json:
    """List the pipelines of all virtual hosts that the user may see, as far as the user may read their sources."""
    request.only()
    return [row for host in visible_hosts(request) for row in _rows(request, host)]


def pipelines(request: Request) -> Json:
    """List the pipelines whose sources the user may all read, how far each is, and the state of those that the node
    runs."""
    request.only()
    return _rows(request, entered(request))


def _rows(request: Request, host: VirtualHost) -> list[Json]:
    broker, access = request.broker, request.broker.access
    reports = {name: found for vhost, name, found in broker.guest(Pipelines).all() if vhost == host.name}
    run = {each.entry.title: each for each in supervised(broker, host.name)}
    rows: list[Json] = []
    for name in sorted({*reports, *run}):
        found, own = reports.get(name, NOTHING), run.get(name)
        sources = {each.source for each in found.positions}.union(() if own is None else own.entry.sources)
        if all(access.allowed(request.user, host.name, Permission.READ, each) for each in sources):
            rows.append(as_json(broker, host, name, found, own))
    return rows


def supervised(broker: Broker, virtual_host: str) -> Iterable[SupervisedPipeline]:
    """Return the pipelines of a virtual host that the node runs."""
    from leveret.features.pipelines.supervised_pipelines import SupervisedPipelines  # few nodes have any

    found = broker.guests.find(SupervisedPipelines)
    return () if found is None else found.of(virtual_host)


def report(request: Request) -> Json:
    """Take a pipeline's report of how far it is."""
    request.only()
    host, name = entered(request), request.arguments["name"]
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_OCTETS_MAX:
        raise PreconditionFailed(f"the name of a pipeline has 1 to {NAME_OCTETS_MAX} bytes")
    _require_owner(request)
    body = body_of(request, "batch", "rows", "partitions")
    given = body["partitions"]
    if not isinstance(given, list) or not 0 < len(given) <= PARTITIONS_MAX:
        raise PreconditionFailed(f"'partitions' is a list of 1 to {PARTITIONS_MAX} objects")
    positions = tuple(map(_position, given))
    for source in {each.source for each in positions}:
        request.broker.access.check(request.user, host.name, Permission.READ, "queue", source)
    published = None if body.get("published") is None else _whole(body, "published")
    found = Report(
        request.user.name,
        request.broker.now,
        _whole(body, "batch"),
        _whole(body, "rows"),
        published,
        _whole(body, "rows_per_s") if "rows_per_s" in body else 0,
        positions,
    )
    request.broker.guest(Pipelines).put((host.name, name), found)
    return as_json(request.broker, host, name, found)


def forget(request: Request) -> Json:
    """Forget a pipeline that does not run any more."""
    request.only()
    host, name = entered(request), request.arguments["name"]
    _require_owner(request)
    kept = request.broker.guest(Pipelines)
    if kept.find((host.name, name)) is None:
        raise NotFound(f"no pipeline '{name}' has reported in vhost '{host.name}'")
    kept.forget((host.name, name))
    return {"forgotten": name}


def _require_owner(request: Request) -> None:
    """Refuse a user that is neither the one that has reported, nor an administrator."""
    found = request.broker.guest(Pipelines).find((request.arguments["vhost"], request.arguments["name"]))
    if found is not None and found.user != request.user.name and not Level.ADMINISTRATOR.admits(request.user):
        raise Refused(HTTPStatus.FORBIDDEN, f"pipeline '{request.arguments['name']}' is another user's")


def _position(given: object) -> Position:
    if not isinstance(given, dict) or not isinstance(given.get("source"), str):
        raise PreconditionFailed(
            "each of 'partitions' is an object with 'source', 'partition', 'position' and 'behind'"
        )
    incarnation = given.get("incarnation")
    if incarnation is not None and not isinstance(incarnation, str):
        raise PreconditionFailed("'incarnation' is a text")
    return Position(
        given["source"],
        _whole(given, "partition"),
        _whole(given, "position"),
        _whole(given, "behind"),
        incarnation,
    )


def _whole(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= OFFSET_MAX:
        raise PreconditionFailed(f"'{name}' is a whole number from 0 to {OFFSET_MAX}")
    return value


def behind(host: VirtualHost | None, position: Position) -> int:
    """Return how many messages are left to read now; of what is no stream here, what was reported."""
    stream = None if host is None else host.queues.get(position.source)
    if stream is None and host is not None:
        partitions = (
            partitions_of(host.exchanges[position.source]) if position.source in host.exchanges else ()
        )
        stream = partitions[position.partition] if position.partition < len(partitions) else None
    if not isinstance(stream, StreamQueue) or position.incarnation not in (None, stream.incarnation):
        return position.behind
    return max(0, stream.log.committed - max(position.offset, stream.log.first))


def as_json(
    broker: Broker, host: VirtualHost, name: str, found: Report, own: SupervisedPipeline | None = None
) -> dict[str, Json]:
    left = [behind(host, each) for each in found.positions]
    shown: dict[str, Json] = {
        "name": name,
        "vhost": host.name,
        "user": found.user if own is None else own.entry.user,
        "age_s": round(broker.now - found.at, 3) if found is not NOTHING else None,
        "batch": found.batch,
        "rows": found.rows,
        "published": found.published,
        "rows_per_s": found.rows_per_s,
        "behind": sum(left),
        "behind_average": round(sum(left) / max(len(left), 1), 1),
        "behind_maximum": max(left, default=0),
        "partitions": [
            {"source": each.source, "partition": each.partition, "position": each.offset, "behind": number}
            for each, number in zip(found.positions, left, strict=True)
        ],
    }
    if own is not None:
        shown |= {
            "state": own.state,
            "since": datetime.fromtimestamp(own.changed_at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            "starts": own.starts,
            "reason": own.reason,
            "sources": [*own.entry.sources],
            "target": own.entry.target,
        }
    return shown


ROUTES: Final = (
    Route("GET", ALL, Level.USER, every_pipeline),
    Route("GET", PATH, Level.USER, pipelines),
    Route("PUT", ONE, Level.USER, report),
    Route("DELETE", ONE, Level.USER, forget),
)
