"""Find how far a query is in Spark's report of a micro-batch, and report it to the broker."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import attrs

from leveret.pipeline.broker_client import Answer, BrokerClient
from leveret.pipeline.errors import PipelineError
from leveret.pipeline.offsets import from_json
from leveret.pipeline.option_hints import READING
from leveret.pipeline.options import TABLE, Connection, Use, read_options, require_known
from leveret.pipeline.sink_options import TABLE as SINK_TABLE

log: Final = logging.getLogger("leveret.pipeline")

PUBLISHED: Final = "published"  # the observation of a query that counts the rows it writes
PATH: Final = "/api/leveret/pipelines/"
RETRY_S: Final = 2  # a report that does not arrive is no reason to hold a query up


@attrs.frozen
class PartitionLag:
    """The position of a query in one partition, and its end. Numbers are of messages."""

    source: str
    partition: int
    position: int  # offset of the first message that is not written
    end: int  # offset behind the last message there was
    incarnation: str

    @property
    def behind(self) -> int:
        return max(0, self.end - self.position)


@attrs.frozen
class QueryProgress:
    """One micro-batch of a query, and how far the query is behind it."""

    name: str  # of the query; its id, if it has none
    batch: int
    rows: int  # read in this micro-batch
    published: int | None  # rows that it wrote, if the query counts them
    rows_per_s: float
    partitions: tuple[PartitionLag, ...]
    seconds: float = 0.0  # that it took, if that is known

    @property
    def behind(self) -> int:
        return sum(each.behind for each in self.partitions)

    @property
    def average(self) -> float:
        """The messages that a partition is behind, on average."""
        return self.behind / len(self.partitions) if self.partitions else 0.0

    @property
    def maximum(self) -> int:
        return max((each.behind for each in self.partitions), default=0)


def lags_in(progress: Mapping[str, object]) -> list[PartitionLag] | None:
    """Return the partitions of our sources in Spark's progress report, as JSON; None if none is ours."""
    found: list[PartitionLag] | None = None
    sources = progress.get("sources")
    for source in sources if isinstance(sources, list) else ():
        try:
            end, latest = from_json(source["endOffset"]), from_json(source["latestOffset"])
        except (PipelineError, KeyError, TypeError):
            continue
        lags = [
            PartitionLag(*each, end[each].next, mark.next, mark.incarnation)
            for each, mark in sorted(latest.items())
            if each in end
        ]
        found = [*(found or ()), *lags]
    return found


def published_in(progress: Mapping[str, object]) -> int | None:
    """Return the rows that the query has counted as `published`, if it does."""
    observed = progress.get("observedMetrics")
    found = observed.get(PUBLISHED) if isinstance(observed, dict) else None
    rows = found.get("rows") if isinstance(found, dict) else None
    return rows if isinstance(rows, int) else None


def progress_in(progress: Mapping[str, object]) -> QueryProgress | None:
    """Return the micro-batch in Spark's progress report; None if none of its sources is ours."""
    lags = lags_in(progress)
    rows, number, rate = (
        progress.get(name) for name in ("numInputRows", "batchId", "processedRowsPerSecond")
    )
    if lags is None or not isinstance(rows, int) or not isinstance(number, int):
        return None
    name = str(progress.get("name") or progress.get("id") or "query")
    per_s = float(rate) if isinstance(rate, int | float) else 0.0
    return QueryProgress(name, number, rows, published_in(progress), per_s, tuple(lags))


class ProgressReporter:
    """Tells the broker how far queries are, so that its page and its metrics show them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Make a reporter. `options` are those of `format("amqp")`, for reading or writing; what is not about the
        connection has no effect. Raises BadOption.
        """
        require_known(options, {**TABLE, **SINK_TABLE}, READING)
        known = {field.metadata["name"].lower() for field in attrs.fields(Connection)}
        given = {name: value for name, value in options.items() if name.lower() in known}
        wanted = read_options({**given, "subscribe": "*"}, Use.STREAM)
        self._options = attrs.evolve(wanted, retry_s=min(wanted.retry_s, RETRY_S))
        self._totals: dict[str, tuple[int, int | None]] = {}  # rows read and published, also by runs before
        self._refused = False  # the broker does not want to know, and is not told again
        self._asker: BrokerClient | None = None

    def tell(self, progress: QueryProgress) -> None:
        """Report a micro-batch. What goes wrong is logged: the query is not held up by it."""
        if not progress.partitions or self._refused:
            return
        try:
            self._tell(progress)
        except PipelineError as error:
            log.warning("the broker was not told how far query %s is: %s", progress.name, error)

    def _tell(self, progress: QueryProgress) -> None:
        if self._asker is None:
            self._asker = BrokerClient(self._options)
        path = f"{PATH}{quote(self._options.vhost, safe='')}"
        if progress.name not in self._totals:
            self._totals[progress.name] = _totals_in(self._asker.ask("GET", path), progress.name)
        before, out = self._totals[progress.name]
        published = out if progress.published is None else (out or 0) + progress.published
        self._totals[progress.name] = rows, published = before + progress.rows, published
        body = {
            "batch": progress.batch,
            "rows": rows,
            "published": published,
            "rows_per_s": round(progress.rows_per_s),
            "partitions": [
                {
                    "source": each.source,
                    "partition": each.partition,
                    "position": each.position,
                    "behind": each.behind,
                    "incarnation": each.incarnation,
                }
                for each in progress.partitions
            ],
        }
        octets = json.dumps(body).encode()
        answer = self._asker.ask(
            "PUT", f"{path}/{quote(progress.name, safe='')}", None, octets, "application/json"
        )
        if answer.status != 200:
            self._refused = True
            log.warning("the broker does not take how far query %s is: %s", progress.name, answer.reason)

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None


def _totals_in(answer: Answer, name: str) -> tuple[int, int | None]:
    """Return the rows that a pipeline of this name has read and published before, as far as the broker knows: runs that
    follow each other, as those of cron do, count on.
    """
    try:
        known = json.loads(answer.octets) if answer.status == 200 else []
        found: dict[str, object] = next((each for each in known if each["name"] == name), {})
        rows, published = found.get("rows"), found.get("published")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return 0, None
    return rows if type(rows) is int else 0, published if type(published) is int else None
