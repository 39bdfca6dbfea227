"""Walk over all objects in portions, and collect sums or a line for each.

A walk yields how many seconds to leave to other work. It covers the objects of its beginning, even if they are deleted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from leveret.protocols.http.metrics.exposition import labelled, sample
from leveret.protocols.http.metrics.objects import (
    BINDINGS,
    CHANNELS,
    CONNECTIONS,
    EXCHANGES,
    NAMES,
    QUEUES,
    STATUS,
    STREAMS,
    Numbers,
    Subject,
)
from leveret.queues.stream import StreamQueue

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.exchange_type import Exchange
    from leveret.observability.connection_stats import ChannelFacts
    from leveret.operations import Connected
    from leveret.protocols.http.metrics.exposition import Exposition, Family
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost

T = TypeVar("T")
Walk = Generator[float, None, None]

SUMMED: Final = 512  # things in a portion: 1.5 ms
LISTED: Final = 64  # things in a portion, with a dozen lines each: 1 ms
PAUSE_S: Final = 0.001


def sums(subject: Subject[T], things: Sequence[T]) -> Generator[float, None, dict[str, float]]:
    """Return the sum of each column over all things."""
    total: list[float] = [0] * len(subject.columns)
    for start in range(0, len(things), SUMMED):
        if start:
            yield PAUSE_S
        rows = [subject.read(thing) for thing in things[start : start + SUMMED]]
        total = [sum(column) for column in zip(total, *rows, strict=True)]
    return dict(zip(subject.columns, total, strict=True))


class SampleRows:
    """The samples of each family, in the order in which the families were met."""

    def __init__(self, detailed: bool) -> None:
        self.octets = 0  # roughly
        self._detailed = detailed
        self._of: dict[Family, list[str]] = {}

    def family(self, family: Family) -> tuple[str, list[str]]:
        """Return the name of a family as it is exposed, and the list for its samples."""
        family = family.detailed if self._detailed else family
        return family.name, self._of.setdefault(family, [])

    def add(self, shown: Sequence[tuple[int, str, list[str]]], found: Sequence[tuple[str, Numbers]]) -> None:
        """Add the samples of some things, which come with their labels, to each family: 0.3 us a line."""
        for index, name, samples in shown:
            lines = "".join([f"{name}{labels} {read[index]}\n" for labels, read in found])
            samples.append(lines)
            self.octets += len(lines)

    def write(self, exposition: Exposition) -> Walk:
        """Write the families, each as a portion: 10 000 lines take 1 ms."""
        for family, samples in self._of.items():
            exposition.family(family, samples)
            samples.clear()
            yield PAUSE_S


def lines(
    rows: SampleRows,
    subject: Subject[T],
    groups: frozenset[str] | None,
    things: Iterable[tuple[str, T] | None],
) -> Walk:
    """Add a line for each thing and family of these groups. Things come with their labels; None is an empty step."""
    shown = [(index, *rows.family(family)) for index, family in subject.of(groups)]
    if not shown:
        return
    found: list[tuple[str, Numbers]] = []
    for at, each in enumerate(things, 1):
        if each is not None:
            found.append((each[0], subject.read(each[1])))
        if at % LISTED == 0:
            rows.add(shown, found)
            found = []
            yield PAUSE_S
    rows.add(shown, found)


def walk_all(
    broker: Broker, rows: SampleRows, groups: frozenset[str] | None, hosts: Sequence[VirtualHost]
) -> Walk:
    """Add lines for everything in these virtual hosts."""
    names = {host.name for host in hosts}
    queues = [queue for host in hosts for queue in host.queues.values()]
    exchanges = [exchange for host in hosts for exchange in host.exchanges.values()]
    streams = [queue for queue in queues if isinstance(queue, StreamQueue)]
    connected = () if broker.operations is None else tuple(broker.operations.connections())
    yield from lines(rows, QUEUES, groups, ((named("queue", each), each) for each in queues))
    yield from lines(rows, STREAMS, groups, ((named("queue", each), each) for each in streams))
    yield from lines(rows, EXCHANGES, groups, ((named("exchange", each), each) for each in exchanges))
    yield from lines(rows, CONNECTIONS, groups, (connection_in(names, each) for each in connected))
    yield from lines(rows, CHANNELS, groups, channels_in(names, connected))
    if groups is not None:  # only when asked for by their groups
        yield from cluster_lines(rows, groups, hosts, exchanges)


def named(kind: str, thing: Queue | Exchange) -> str:
    return labelled({"vhost": thing.virtual_host.name, kind: thing.name})


def connection_in(hosts: set[str], connected: Connected) -> tuple[str, Connected] | None:
    """Return a connection with its labels, or None if it is in none of these virtual hosts."""
    facts = None if connected.front is None else connected.front.facts()
    if facts is None or facts.virtual_host not in hosts:
        return None
    return labelled(
        {
            "vhost": facts.virtual_host,
            "connection": connected.peer.name,
            "user": facts.user,
            "protocol": facts.protocol,
        }
    ), connected


def channels_in(hosts: set[str], connected: Iterable[Connected]) -> Iterator[tuple[str, ChannelFacts] | None]:
    """Yield the channels of connections in these virtual hosts, with labels."""
    for each in connected:
        facts = None if each.front is None else each.front.facts()
        if each.front is None or facts is None or facts.virtual_host not in hosts:
            yield None
            continue
        for channel in each.front.channel_facts():
            number = str(channel.number)
            where = {"vhost": facts.virtual_host, "connection": each.peer.name, "channel": number}
            yield labelled(where), channel


def cluster_lines(
    rows: SampleRows, groups: frozenset[str], hosts: Sequence[VirtualHost], exchanges: Sequence[Exchange]
) -> Walk:
    """Add lines for virtual hosts, and for the names and bindings of exchanges."""
    if STATUS[0] in groups:
        _, samples = rows.family(STATUS[1])
        samples += [sample(STATUS[1].name, labelled({"vhost": host.name}), 1) for host in hosts]
    for group, family in (NAMES, BINDINGS):
        if group not in groups:
            continue
        _, samples = rows.family(family)
        for at, each in enumerate(exchanges, 1):
            of = labelled({"vhost": each.virtual_host.name, "exchange": each.name, "type": each.type.name})
            samples.append(sample(family.name, of, 1 if family is NAMES[1] else len(each.bindings)))
            if at % LISTED == 0:
                yield PAUSE_S


def connected_sums(broker: Broker) -> Generator[float, None, dict[str, float]]:
    """Return sums over all connections, including those that have ended."""
    if broker.operations is None:
        return {}
    past = dict(broker.operations.past)
    connected: Sequence[Connected] = tuple(broker.operations.connections())
    found = yield from sums(CONNECTIONS, connected)
    return {name: value + past.get(name, 0) for name, value in found.items()}


def queue_sums(broker: Broker) -> Generator[float, None, dict[str, float]]:
    """Return sums over all queues, including what deleted ones had counted."""
    past = dict(broker.retired_counters.total)
    queues = [queue for host in broker.hosts() for queue in host.queues.values()]
    found = yield from sums(QUEUES, queues)
    return {name: value + past.get(name, 0) for name, value in found.items()}


def exchange_sums(broker: Broker) -> Generator[float, None, dict[str, float]]:
    past = dict(broker.retired_counters.total)
    exchanges = [exchange for host in broker.hosts() for exchange in host.exchanges.values()]
    found = yield from sums(EXCHANGES, exchanges)
    return {name: value + past.get(name, 0) for name, value in found.items()}
