"""What a query reads: the streams it names, where it begins, how far a micro-batch goes, which task reads what.

All of it is decided in the driver, from the options, what the broker says, and how far the query has come.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, TypeAlias

import attrs

from pipeline.client import Listed, Stream
from pipeline.errors import BadOption, DataLoss, Missing
from pipeline.offsets import Mark, Marks, Partition, Range, admitted, read_between, split
from pipeline.options import EARLIEST, LATEST, Edge, Numbers, Offsets, Options, Position, Since, SinceEach

log: Final = logging.getLogger("leveret.pipeline")
Streams: TypeAlias = dict[Partition, Stream]
SAID_MAX: Final = 100  # losses that are remembered


class Broker(Protocol):
    """Whom to ask: a `Client`."""

    def listed(self) -> list[Listed]: ...
    def partitions(self, name: str) -> list[Stream]: ...
    def offset_since(self, name: str, timestamp: int) -> int: ...


@attrs.frozen
class Limit:
    """What one micro-batch may have. None: as much as there is."""

    messages: int | None = None
    octets: int | None = None


class Planner:
    """The plans of one query."""

    def __init__(self, options: Options, broker: Broker) -> None:
        self._options = options
        self._broker = broker
        self._said: set[str] = set()  # losses that the log has
        self._target: Marks | None = None  # of Trigger.AvailableNow: nothing beyond is read

    # Batch reads.

    def batch(self) -> list[Range]:
        """What `spark.read` reads."""
        streams = self._streams()
        starting = self._options.starting or Edge.EARLIEST
        start = self._resolved("starting", starting, streams, Edge.EARLIEST)
        end = self._resolved("ending", self._options.ending, streams, Edge.LATEST)
        marks = {
            each: Mark(end[each], stream.incarnation, start[each])
            for each, stream in streams.items()
            if start[each] < end[each]
        }
        return self._ranges({}, marks, streams)

    # Streaming reads.

    def initial(self) -> Marks:
        """Where a new query begins."""
        streams = self._streams()
        starting = self._options.starting or Edge.LATEST
        start = self._resolved("starting", starting, streams, Edge.EARLIEST)
        return {each: Mark(start[each], stream.incarnation) for each, stream in streams.items()}

    def prepare_available_now(self) -> None:
        """Nothing that arrives after this call is read."""
        self._target = self.newest()

    def newest(self) -> Marks:
        """The ends of all streams."""
        return {each: Mark(found.next, found.incarnation) for each, found in self._streams(known={}).items()}

    def latest(self, start: Marks, limit: Limit) -> Marks:
        """Where the micro-batch ends that begins at `start`; `start` itself, if there is nothing to read.

        Raises DataLoss, unless the options say that what is gone is to be passed over.
        """
        streams = self._streams(known=start)
        begins = {each: self._begin(each, start.get(each), stream) for each, stream in streams.items()}
        available = {each: self._available(each, begins[each], stream) for each, stream in streams.items()}
        taken = admitted(available, self._messages(limit, streams, available))
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
        """The tasks of a micro-batch."""
        streams = self._streams(known=end) if any(read_between(start, end)) else {}
        return self._ranges(start, end, streams)

    # The streams.

    def _streams(self, known: Marks | None = None) -> Streams:
        """All partitions that the query names. `known`: what it has read; a stream that is gone may be among that."""
        options = self._options
        if options.assign is not None:
            return self._assigned(options.assign, known)
        if options.subscribe is not None:
            names: tuple[str, ...] = options.subscribe
        else:
            names = tuple(self._matching())
        found: Streams = {}
        for name in names:
            for number, stream in enumerate(self._partitions(name, known)):
                found[name, number] = stream
        for each in known or ():
            if each not in found:
                self._lost(f"partition {each[1]} of stream '{each[0]}', which this query has read, is gone")
        return found

    def _matching(self) -> Iterator[str]:
        """Names that fit the pattern; a partition of a super stream that fits is read as that."""
        pattern = self._options.subscribe_pattern
        assert pattern is not None
        fitting = [each for each in self._broker.listed() if pattern.fullmatch(each.name)]
        parts = {part for each in fitting for part in each.partitions or ()}
        return (each.name for each in fitting if each.name not in parts)

    def _assigned(self, assign: Mapping[str, frozenset[int]], known: Marks | None) -> Streams:
        found: Streams = {}
        for name, numbers in assign.items():
            partitions = self._partitions(name, known)
            for number in sorted(numbers):
                if number < len(partitions):
                    found[name, number] = partitions[number]
                elif known is None:
                    raise BadOption(
                        f"option assign: stream '{name}' has {len(partitions)} partitions, so there is no {number}"
                    )
        return found

    def _partitions(self, name: str, known: Marks | None) -> list[Stream]:
        """None, if the query runs already, and what is gone is to be passed over."""
        try:
            return self._broker.partitions(name)
        except Missing as missing:
            if known is None:
                raise
            self._lost(str(missing))
            return []

    # Offsets.

    def _resolved(
        self, which: str, position: Position, streams: Streams, otherwise: Edge
    ) -> dict[Partition, int]:
        """A position as an offset for each partition. `otherwise`: for those that it does not name."""
        if isinstance(position, Offsets | SinceEach):
            self._require_all(which, position.by_partition, streams)
        return {each: self._offset(position, each, stream, otherwise) for each, stream in streams.items()}

    def _offset(self, position: Position, each: Partition, stream: Stream, otherwise: Edge) -> int:
        if isinstance(position, Since):
            return self._broker.offset_since(stream.name, position.timestamp)
        if isinstance(position, Edge):
            return stream.first if position is Edge.EARLIEST else stream.next
        given = position.by_partition.get(each[0], {}).get(each[1])
        if given is None:
            return stream.first if otherwise is Edge.EARLIEST else stream.next
        if isinstance(position, SinceEach):
            return self._broker.offset_since(stream.name, given)
        return self._explicit(each, given, stream)

    def _explicit(self, each: Partition, given: int, stream: Stream) -> int:
        """An offset that the user has named."""
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
        """A partition that is named and not read is a mistake in the query."""
        for name, numbers in by_partition.items():
            for number in numbers:
                if (name, number) not in streams:
                    raise BadOption(
                        f"the {which} offsets name partition {number} of stream '{name}', which is not read here"
                    )

    # A micro-batch.

    def _begin(self, each: Partition, mark: Mark | None, stream: Stream) -> int:
        """Where to go on. A partition that is new begins with what it has."""
        if mark is None:
            return stream.first
        where = f"partition {each[1]} of stream '{each[0]}'"
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

    def _available(self, each: Partition, begin: int, stream: Stream) -> int:
        end = stream.next
        if self._target is not None:
            target = self._target.get(each)
            if target is None or target.incarnation != stream.incarnation:
                return 0
            end = min(end, target.next)
        return max(0, end - begin)

    def _messages(self, limit: Limit, streams: Streams, available: Mapping[Partition, int]) -> int | None:
        """The limit in messages; octets are counted as the average of what there is to read."""
        if limit.octets is None:
            return limit.messages
        octets = sum(
            count * streams[each].octets // max(streams[each].messages, 1)
            for each, count in available.items()
        )
        if octets <= limit.octets:
            return limit.messages
        messages = max(1, sum(available.values()) * limit.octets // octets)
        return messages if limit.messages is None else min(messages, limit.messages)

    def _ranges(self, start: Marks, end: Marks, streams: Streams) -> list[Range]:
        ranges = []
        for each, first, mark in read_between(start, end):
            found = streams.get(each)
            if found is not None:  # otherwise it is gone, and that was no failure
                ranges.append(Range(*each, found.name, mark.incarnation, first, mark.next))
        return split(ranges, self._options.min_partitions)

    def _lost(self, text: str) -> None:
        """Said once: a query asks every few moments."""
        if self._options.fail_on_data_loss or text not in self._said:
            lost(self._options, text)
            self._said = {*list(self._said)[-SAID_MAX:], text}


def lost(options: Options, text: str) -> None:
    """Messages are gone: the end of the query, or a line in the log. Raises DataLoss."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{text}; with the option failOnDataLoss=false the query goes on without")
    log.warning("%s", text)
