"""Plan what a query reads: its streams and queues, where it begins, where a micro-batch ends, and the tasks.

A queue is its own single partition, whose offsets are those of its lease (pipeline/leases.py). Everything is decided in
the driver, from the options, the broker's answers, and the query's position.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import attrs

from leveret.pipeline.client import Listed, Stream
from leveret.pipeline.errors import BadOption, DataLoss, Missing, NoStream
from leveret.pipeline.leases import OCTETS_MAX, Leases
from leveret.pipeline.offsets import Mark, Marks, Partition, Range, admitted, read_between, split
from leveret.pipeline.options import (
    EARLIEST,
    LATEST,
    Edge,
    Numbers,
    Offsets,
    Options,
    Position,
    Since,
    SinceEach,
)

if TYPE_CHECKING:
    from leveret.pipeline.filters import Filters

log: Final = logging.getLogger("leveret.pipeline")
Streams: TypeAlias = dict[Partition, Stream]
NAMELESS: Final = "to read a queue, name its reader with the option readerName"
LEFT_OUT: Final = (
    "what selector, minBodyBytes and maxBodyBytes leave out would be lost with what is read of a queue"
)
NOTHING: Final[Marks] = {}
SAID_MAX: Final = 100  # losses that are not logged again


class Broker(Protocol):
    """The requests about streams, which a `Client` can make."""

    def listed(self) -> list[Listed]: ...
    def partitions(self, name: str) -> list[Stream]: ...
    def offset_since(self, name: str, timestamp: int) -> int: ...


@attrs.frozen
class Limit:
    """The size of one micro-batch at most. None means no limit."""

    messages: int | None = None
    octets: int | None = None


class Planner:
    """Makes the plans of one query."""

    def __init__(
        self,
        options: Options,
        broker: Broker,
        leases: Leases | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a planner. `leases` is for queues: without it there are none."""
        self._options = options
        self._broker = broker
        self._leases = leases
        self._queues: set[str] = set()  # names of sources that are queues
        self._now = now
        self._since = now()  # of the last micro-batch, or of the start
        self._said: set[str] = set()  # losses that were logged
        self._target: Marks | None = None  # the end for Trigger.AvailableNow
        self.left = 0  # messages that the limit has kept out of the last micro-batch

    # Batch reads.

    def batch(self, conditions: Filters | None = None) -> list[Range]:
        """Return the ranges that `spark.read` reads, without what the conditions exclude."""
        streams = self._streams()
        starting = self._options.starting or Edge.EARLIEST
        start = self._resolved("starting", starting, streams, Edge.EARLIEST)
        end = self._resolved("ending", self._options.ending, streams, Edge.LATEST)
        if conditions is not None:
            self._narrow(conditions, streams, start, end)
        marks = {
            each: Mark(end[each], stream.incarnation, start[each])
            for each, stream in streams.items()
            if start[each] < end[each]
        }
        return self._ranges({}, marks, streams)

    def _narrow(
        self,
        conditions: Filters,
        streams: Streams,
        start: dict[Partition, int],
        end: dict[Partition, int],
    ) -> None:
        """Move the ends of each partition towards each other, as far as the conditions exclude what is there."""
        offsets, since = conditions.offsets, conditions.arrivals.low // 1000
        for each, stream in streams.items():
            end[each] = min(end[each], offsets.high) if conditions.admit(each) else 0
            start[each] = max(start[each], offsets.low)
            if each[0] not in self._queues and since and start[each] < end[each]:
                start[each] = max(start[each], self._broker.offset_since(stream.name, since))

    # Streaming reads.

    def initial(self) -> Marks:
        """Return where a new query begins; in a queue this is the oldest message that is not settled."""
        streams = self._streams()
        starting = self._options.starting or Edge.LATEST
        start = self._resolved("starting", starting, streams, Edge.EARLIEST)
        return {each: Mark(start[each], stream.incarnation) for each, stream in streams.items()}

    def prepare_available_now(self) -> None:
        """Set the target to the present ends (for a queue, its present length): later messages are not read."""
        self._target = self.newest()

    def newest(self) -> Marks:
        """Return the ends of all streams."""
        return {each: Mark(found.next, found.incarnation) for each, found in self._streams(known={}).items()}

    def outstanding(self, start: Marks) -> tuple[int, int]:
        """Return how many messages there are to read from `start` on, and the bytes of their bodies, about."""
        streams = self._streams(known=start, done=start)
        available = {
            each: self._available(each, self._begin(each, start.get(each), stream), stream)
            for each, stream in streams.items()
        }
        return sum(available.values()), self._octets(streams, available)

    def latest(self, start: Marks, limit: Limit) -> Marks:
        """Return where the micro-batch that begins at `start` ends; `start` itself, if there is nothing to read.

        Raises DataLoss, unless the options allow passing over lost messages.
        """
        streams = self._streams(known=start, done=start)
        begins = {each: self._begin(each, start.get(each), stream) for each, stream in streams.items()}
        available = {each: self._available(each, begins[each], stream) for each, stream in streams.items()}
        self.left = 0
        if self._is_too_soon(sum(available.values())):
            return dict(start)
        shares = admitted(available, self._messages(limit, streams, available))
        taken = self._reserved(begins, shares, limit)
        self.left = sum(available.values()) - sum(taken.values())
        marks = dict(start)
        for each, stream in streams.items():
            begin = begins[each]
            if taken[each]:
                marks[each] = Mark(begin + taken[each], stream.incarnation, begin)
            elif each not in start or (start[each].next, start[each].incarnation) != (
                begin,
                stream.incarnation,
            ):
                marks[each] = Mark(begin, stream.incarnation)
        return marks

    def ranges(self, start: Marks, end: Marks) -> list[Range]:
        """Return the tasks of a micro-batch."""
        streams = self._streams(known=end) if any(read_between(start, end)) else {}
        return self._ranges(start, end, streams)

    def commit(self, end: Marks) -> None:
        """Settle the messages below `end`, which are in the table. The last micro-batch is settled by the next run."""
        for (name, _), mark in end.items():
            if self._leases is not None and name in self._queues:
                try:
                    self._leases.settle(name, mark)
                except Missing:
                    continue  # `latest` decides whether that ends the query

    # The streams.

    def _streams(self, known: Marks | None = None, done: Marks = NOTHING) -> Streams:
        """Return all partitions that the query names. `known` is what it has read, perhaps of a stream that is gone.

        `done` holds positions in queues below which messages are in the table, and may be settled.
        """
        options = self._options
        if options.assign is not None:
            return self._assigned(options.assign, known, done)
        if options.subscribe is not None:
            names: tuple[str, ...] = options.subscribe
        else:
            names = tuple(self._matching())
        found: Streams = {}
        for name in names:
            for number, stream in enumerate(self._partitions(name, known, done)):
                found[name, number] = stream
        for each in known or ():
            if each not in found:
                self._lost(self._left_out(each))
        return found

    def _left_out(self, each: Partition) -> str:
        """Return why a partition that the query has read is not among its streams: it is gone, or not named."""
        where = f"partition {each[1]} of stream '{each[0]}', which this query has read,"
        if self._options.subscribe is None or each[0] in self._options.subscribe:
            return f"{where} is gone"
        return (
            f"{where} is not named by the option subscribe any more: name it, or begin with a new checkpoint"
        )

    def _matching(self) -> Iterator[str]:
        """Return the names that match the pattern, except partitions of super streams that match."""
        pattern = self._options.subscribe_pattern
        assert pattern is not None
        fitting = [each for each in self._broker.listed() if pattern.fullmatch(each.name)]
        parts = {part for each in fitting for part in each.partitions or ()}
        return (each.name for each in fitting if each.name not in parts)

    def _assigned(self, assign: Mapping[str, frozenset[int]], known: Marks | None, done: Marks) -> Streams:
        found: Streams = {}
        for name, numbers in assign.items():
            partitions = self._partitions(name, known, done)
            for number in sorted(numbers):
                if number < len(partitions):
                    found[name, number] = partitions[number]
                elif known is None:
                    raise BadOption(
                        f"option assign: stream '{name}' has {len(partitions)} partitions, so there is no {number}"
                    )
        return found

    def _partitions(self, name: str, known: Marks | None, done: Marks) -> list[Stream]:
        """Return the partitions of a source; none if it is gone, the query runs already, and losses are passed over."""
        try:
            return self._found(name, done)
        except Missing as missing:
            if known is None:
                raise
            self._lost(str(missing))
            return []

    def _found(self, name: str, done: Marks) -> list[Stream]:
        """Return the partitions of a stream or the one of a queue. Raises Missing."""
        if name not in self._queues:
            try:
                return self._broker.partitions(name)
            except NoStream as queue:
                self._require_queues(queue)
                self._queues.add(name)
        assert self._leases is not None
        return [self._leases.look(name, done.get((name, 0)))]

    def _require_queues(self, queue: NoStream) -> None:
        """Refuse a queue if this query cannot read queues."""
        if self._leases is None:
            raise queue
        if self._options.leaves_out:
            raise BadOption(f"{queue}; {LEFT_OUT}") from None
        if self._options.reader_name is None:
            raise BadOption(f"{queue}; {NAMELESS}") from None

    # Offsets.

    def _resolved(
        self, which: str, position: Position, streams: Streams, otherwise: Edge
    ) -> dict[Partition, int]:
        """Return a position as an offset for each partition. `otherwise` is for partitions that it does not name."""
        if isinstance(position, Offsets | SinceEach):
            self._require_all(which, position.by_partition, streams)
            self._require_streams(position)
        return {each: self._offset(position, each, stream, otherwise) for each, stream in streams.items()}

    def _require_streams(self, position: Offsets | SinceEach) -> None:
        """Refuse positions in queues: a query cannot choose where to begin in a queue."""
        for name in self._queues.intersection(position.by_partition):
            option = "startingOffsets" if isinstance(position, Offsets) else "startingOffsetsByTimestamp"
            raise BadOption(
                f"option {option} names '{name}', which is a queue: it is read from its oldest message on"
            )

    def _offset(self, position: Position, each: Partition, stream: Stream, otherwise: Edge) -> int:
        if each[0] in self._queues:
            return stream.first if otherwise is Edge.EARLIEST else stream.next
        if isinstance(position, Since):
            return self._since_time(each, stream, position.timestamp, otherwise)
        if isinstance(position, Edge):
            return stream.first if position is Edge.EARLIEST else stream.next
        given = position.by_partition.get(each[0], {}).get(each[1])
        if given is None:
            return stream.first if otherwise is Edge.EARLIEST else stream.next
        if isinstance(position, SinceEach):
            return self._since_time(each, stream, given, otherwise)
        return self._explicit(each, given, stream)

    def _since_time(self, each: Partition, stream: Stream, timestamp: int, otherwise: Edge) -> int:
        """Return the first offset of messages that arrived then or later. Raises BadOption if there must be one."""
        found = self._broker.offset_since(stream.name, timestamp)
        if found >= stream.next and otherwise is Edge.EARLIEST and self._options.strategy == "error":
            raise BadOption(
                f"{self._where(each)} has no message that arrived at {timestamp} or later (option"
                " startingOffsetsByTimestampStrategy is error; with latest the query begins with what comes)"
            )
        return found

    def _explicit(self, each: Partition, given: int, stream: Stream) -> int:
        """Return an offset that the user has given."""
        if given == EARLIEST:
            return stream.first
        if given == LATEST:
            return stream.next
        if not stream.first <= given <= stream.next:
            self._lost(
                f"offset {given} of partition {each[1]} of stream '{each[0]}' is asked for,"
                f" which has {stream.first} to {stream.next} now"
            )
        return min(max(given, stream.first), stream.next)

    @staticmethod
    def _require_all(which: str, by_partition: Numbers, streams: Streams) -> None:
        """Refuse a position that names a partition which is not read."""
        for name, numbers in by_partition.items():
            for number in numbers:
                if (name, number) not in streams:
                    raise BadOption(
                        f"the {which} offsets name partition {number} of stream '{name}', which is not read here"
                    )

    # A micro-batch.

    def _begin(self, each: Partition, mark: Mark | None, stream: Stream) -> int:
        """Return where to continue. A new partition begins with its oldest message."""
        if mark is None:
            return stream.first
        where = self._where(each)
        if mark.incarnation != stream.incarnation:
            self._lost(f"{where} was deleted and made anew since offset {mark.next} was read")
            return stream.first
        if mark.next < stream.first:
            self._lost(
                f"{where} begins at offset {stream.first} now: offsets {mark.next} to {stream.first - 1} are gone"
            )
            return stream.first
        if mark.next > stream.next:
            self._lost(
                f"{where} ends at offset {stream.next}, but offset {mark.next} was the next to be read"
            )
            return stream.next
        return mark.next

    def _where(self, each: Partition) -> str:
        if each[0] in self._queues:
            return f"the lease '{self._options.reader_name}' of queue '{each[0]}'"
        return f"partition {each[1]} of stream '{each[0]}'"

    def _is_too_soon(self, available: int) -> bool:
        """Return whether to wait for more messages; never with Trigger.AvailableNow, as no more may come."""
        options, now = self._options, self._now()
        least = options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        if available < least and (not available or now - self._since < options.max_trigger_delay.seconds):
            return True
        self._since = now
        return False

    def _available(self, each: Partition, begin: int, stream: Stream) -> int:
        end = stream.next
        if self._target is not None:
            target = self._target.get(each)
            if target is None or target.incarnation != stream.incarnation:
                return 0
            end = min(end, target.next)
        return max(0, end - begin)

    def _messages(self, limit: Limit, streams: Streams, available: Mapping[Partition, int]) -> int | None:
        """Return the limit in messages; a limit in bytes is divided by the average size of what there is to read."""
        if limit.octets is None:
            return limit.messages
        octets = self._octets(streams, available)
        if octets <= limit.octets:
            return limit.messages
        messages = max(1, sum(available.values()) * limit.octets // octets)
        return messages if limit.messages is None else min(messages, limit.messages)

    @staticmethod
    def _octets(streams: Streams, available: Mapping[Partition, int]) -> int:
        """Return the bytes of so many messages of each, by the average size of what there is."""
        return sum(
            count * streams[each].octets // max(streams[each].messages, 1)
            for each, count in available.items()
        )

    def _reserved(
        self, begins: Mapping[Partition, int], shares: Mapping[Partition, int], limit: Limit
    ) -> dict[Partition, int]:
        """Return how many messages each partition gives; a queue may have fewer by now."""
        taken, total = dict(shares), sum(shares.values())
        if self._leases is None:
            return taken
        for each, share in shares.items():
            if share and each[0] in self._queues:
                octets = OCTETS_MAX if limit.octets is None else max(1, limit.octets * share // total)
                end = self._leases.reserve(each[0], begins[each], share, octets)
                taken[each] = max(0, end - begins[each])
        return taken

    def _ranges(self, start: Marks, end: Marks, streams: Streams) -> list[Range]:
        ranges = []
        for each, first, mark in read_between(start, end):
            found = streams.get(each)
            if found is not None:  # otherwise it is gone, and the options allow that
                fence = self._fence(each[0])
                ranges.append(Range(*each, found.name, mark.incarnation, first, mark.next, fence))
        return split(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def _fence(self, name: str) -> int | None:
        if self._leases is None or name not in self._queues:
            return None
        return self._leases.fence(name)

    def _lost(self, text: str) -> None:
        """Report a loss, in the log only once, because a query asks every few moments."""
        if self._options.fail_on_data_loss or text not in self._said:
            lost(self._options, text)
            self._said = {*list(self._said)[-SAID_MAX:], text}


def lost(options: Options, text: str) -> None:
    """Report lost messages: end the query, or log a warning. Raises DataLoss."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{text}; with the option failOnDataLoss=false the query goes on without them")
    log.warning("%s", text)
