"""Report how far queries are behind, from their checkpoints and the broker's present state. Needs no Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

import attrs

from leveret.durable.store.block import header
from leveret.durable.store.contract import DamagedError
from leveret.pipeline.broker_client import BrokerClient
from leveret.pipeline.client import Fetched, Stream
from leveret.pipeline.errors import DataLoss, PipelineError, Refused
from leveret.pipeline.jobs.checkpoints import position
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.offsets import Mark, Partition

LEASES: Final = "/api/leveret/leases/"
WHOLE: Final = ("first", "next", "messages", "octets", "ready")


@attrs.frozen
class LeaseLag:
    """The present state of a reader's lease of a queue, by the broker's answer."""

    queue: str
    reader: str
    incarnation: str
    first: int  # offset of the oldest message that is not settled
    next: int
    messages: int
    octets: int
    ready: int  # in the queue, and not reserved


@attrs.frozen
class Lag:
    """The position in one partition, and what is left to read. Numbers are of messages; None means unknown."""

    checkpoint: str
    source: str
    partition: int
    kind: str  # stream or queue
    position: int  # offset of the first message that is not in the sink
    end: int | None  # offset behind the last message
    behind: int | None
    behind_s: float | None  # age of the first message that is not in the sink
    ready: int | None = None  # in a queue and not reserved yet
    leased: int | None = None  # reserved, and perhaps being read
    reader: str | None = None
    trouble: str | None = None


class Streams(Protocol):
    """The requests about streams, which a `Client` can make."""

    def partitions(self, name: str) -> list[Stream]: ...
    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched: ...


def leases(asker: BrokerClient, vhost: str) -> list[LeaseLag]:
    """Return the leases of queues that the user may read. Raises PipelineError."""
    answer = asker.ask("GET", LEASES + quote(vhost, safe=""))
    if answer.status == 401:
        raise Refused(f"{asker.url} does not let this user in: wrong name or password")
    if answer.status != 200:
        raise Refused(f"{asker.url} answers {answer.status}: {answer.reason}")
    try:
        return [lease_of(each) for each in json.loads(answer.octets)]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise PipelineError(f"{asker.url} returns no list of leases") from None


def lease_of(found: dict[str, object]) -> LeaseLag:
    """Return a lease from the broker's JSON. Raises KeyError, ValueError, TypeError."""
    numbers = {name: found[name] for name in WHOLE}
    if not all(type(each) is int for each in numbers.values()):
        raise ValueError("not a whole number")
    texts = {name: str(found[name]) for name in ("queue", "reader", "incarnation")}
    return LeaseLag(**texts, **numbers)  # type: ignore[arg-type]


def measured(
    checkpoints: Sequence[Path], streams: Streams, leased: Sequence[LeaseLag], now: float
) -> Iterator[Lag]:
    """Yield a row for each partition of each query. `now` is in seconds since 1970. Raises PipelineError."""
    by_incarnation = {each.incarnation: each for each in leased}
    for checkpoint in checkpoints:
        found = position(checkpoint)
        known: dict[str, list[Stream] | str] = {}
        for each, mark in sorted(found.marks.items()):
            lease = by_incarnation.get(mark.incarnation)
            if lease is not None:
                yield of_queue(str(checkpoint), each, mark, lease)
                continue
            if each[0] not in known:
                known[each[0]] = _asked(streams, each[0])
            yield of_stream(str(checkpoint), each, mark, known[each[0]], streams, now)


def of_queue(checkpoint: str, each: Partition, mark: Mark, lease: LeaseLag) -> Lag:
    """Return the lag in a queue: reserved messages that are not in the sink yet, and those that wait in the queue."""
    leased = max(0, lease.next - mark.next)
    source, partition = each
    return Lag(
        checkpoint,
        source,
        partition,
        "queue",
        position=mark.next,
        end=lease.next,
        behind=leased + lease.ready,
        behind_s=None,
        ready=lease.ready,
        leased=leased,
        reader=lease.reader,
    )


def of_stream(
    checkpoint: str, each: Partition, mark: Mark, found: list[Stream] | str, streams: Streams, now: float
) -> Lag:
    trouble = found if isinstance(found, str) else None
    if isinstance(found, str) or each[1] >= len(found):
        return Lag(
            checkpoint, *each, "stream", mark.next, None, None, None, trouble=trouble or "no such partition"
        )
    stream = found[each[1]]
    if stream.incarnation != mark.incarnation:
        trouble = "deleted and made anew"
        return Lag(checkpoint, *each, "stream", mark.next, stream.next, None, None, trouble=trouble)
    if mark.next < stream.first:
        trouble = f"{stream.first - mark.next} messages are gone unread"
    behind = max(0, stream.next - mark.next)
    age = _age(streams, stream, max(mark.next, stream.first), now) if behind else 0.0
    return Lag(checkpoint, *each, "stream", mark.next, stream.next, behind, age, trouble=trouble)


def _asked(streams: Streams, name: str) -> list[Stream] | str:
    """Return the partitions of a stream, or why there are none."""
    try:
        return streams.partitions(name)
    except Refused as refused:
        return str(refused)


def _age(streams: Streams, stream: Stream, offset: int, now: float) -> float | None:
    """Return the age of the message at an offset: its block, which tells when it arrived, is fetched."""
    if offset >= stream.next:
        return None
    try:
        fetched = streams.blocks(stream.name, stream.incarnation, offset, offset + 1)
        return max(0.0, round(now - header(fetched.octets).arrived / 1000, 3))
    except (DataLoss, DamagedError, Refused):
        return None  # it has just gone


def measure(checkpoints: Sequence[Path], reach: BrokerEndpoint) -> list[Lag]:
    """Measure all queries once. Raises PipelineError."""
    client, asker = reach.client(), BrokerClient(reach.quick())
    try:
        return list(measured(checkpoints, client, leases(asker, reach.vhost), time.time()))
    finally:
        client.close()
        asker.close()
