"""Turn the conditions of a query's WHERE into what a read can leave out: partitions, offsets, times, origins.

    where offset >= 990 and routing_key = 'eu'
          │                  └─ blocks without such a key are not decoded; of others, such rows only are given to Spark
          └─ the read begins at offset 990

Only columns that a message has without decoding its properties are looked at, and none of them is ever null. What
cannot be left out exactly (`offset <> 7`) is tested by Spark, as are conditions that Spark does not hand over: on
headers, on the length of a body, any with OR.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from leveret.pipeline.offsets import Partition
from leveret.pipeline.texts import readable

if TYPE_CHECKING:
    from leveret.durable.store.block import Block

OFFSET_MAX: Final = (1 << 63) - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

HOLDS: Final[dict[type[Filter], Callable[..., bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda found, values: found in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
# The first value that a condition admits, and the one behind the last; of whole numbers.
LOW: Final[dict[type[Filter], Callable[..., int]]] = {
    EqualTo: lambda value: value,
    EqualNullSafe: lambda value: value,
    GreaterThan: lambda value: value + 1,
    GreaterThanOrEqual: lambda value: value,
    In: min,
}
HIGH: Final[dict[type[Filter], Callable[..., int]]] = {
    EqualTo: lambda value: value + 1,
    EqualNullSafe: lambda value: value + 1,
    LessThan: lambda value: value,
    LessThanOrEqual: lambda value: value + 1,
    In: lambda values: max(values) + 1,
}


class WithValue(Protocol):
    """A condition that compares a column with a value, or with several."""

    @property
    def value(self) -> object: ...


def holds(condition: Filter, value: object) -> bool:
    """Return whether a column with this value, which is not null, fulfils the condition."""
    if isinstance(condition, Not):
        return not holds(condition.child, value)
    return HOLDS[type(condition)](value, cast(WithValue, condition).value)


class Interval:
    """The whole numbers from `low` to before `high`."""

    def __init__(self) -> None:
        self.low = 0
        self.high = OFFSET_MAX

    def narrow(self, condition: Filter) -> bool:
        """Cut off what the condition does not admit; return whether the rest fulfils it, all of it."""
        kind = type(condition)
        if kind not in LOW and kind not in HIGH:
            return False
        value = cast(WithValue, condition).value
        if kind in LOW:
            self.low = max(self.low, LOW[kind](value))
        if kind in HIGH:
            self.high = min(self.high, HIGH[kind](value))
        return kind is not In


Decode: TypeAlias = Callable[[str], object]


def _as_octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# For each column: what it is, and the type of its values.
PLACES: Final[dict[str, dict[str, tuple[str, type]]]] = {
    "amqp": {
        "stream": ("stream", str),
        "partition": ("partition", int),
        "offset": ("offset", int),
        "timestamp": ("time", datetime),
        "exchange": ("exchange", str),
        "routing_key": ("routing_key", str),
    },
    "kafka": {
        "topic": ("stream", str),
        "partition": ("partition", int),
        "offset": ("offset", int),
        "timestamp": ("time", datetime),
        "key": ("key", bytes),
    },
}
# place in an origin, and how its text is shown in the column
ORIGINS: Final[dict[str, tuple[int, Decode]]] = {
    "exchange": (-2, readable),
    "routing_key": (-1, readable),
    "key": (-1, _as_octets),
}


class Filters:
    """The conditions of one query that a read takes into account. They travel to executors pickled."""

    def __init__(self, columns: str) -> None:
        """Make an empty set. `columns` is the value of the option `schema`."""
        self._columns = columns
        self.offsets = Interval()
        self.arrivals = Interval()  # microseconds since 1970
        self._partitions: list[tuple[str, Filter]] = []
        self._times: list[Filter] = []
        self._origins: list[tuple[str, Filter]] = []

    def push(self, conditions: Iterable[Filter]) -> list[Filter]:
        """Take conditions into account, and return those that Spark has to test all the same."""
        return [each for each in conditions if not self._taken(each)]

    def _taken(self, condition: Filter) -> bool:
        inner = condition.child if isinstance(condition, Not) else condition
        path = cast("tuple[str, ...]", getattr(inner, "attribute", ()))
        what, kind = PLACES[self._columns].get(path[0], ("", object)) if len(path) == 1 else ("", object)
        if what and type(condition) is IsNotNull:
            return True
        if not what or type(inner) not in HOLDS or not _is_of(kind, cast(WithValue, inner).value):
            return False
        if what == "offset":
            return self.offsets.narrow(condition)
        if what == "time":
            found = _in_microseconds(condition)
            self._times.append(found)
            self.arrivals.narrow(found)
            return False  # what is left out is left out by the block
        if what in ("stream", "partition"):
            self._partitions.append((what, condition))
        else:
            self._origins.append((what, condition))
        return True

    @property
    def are_on_rows(self) -> bool:
        """Return whether blocks have to be looked at; otherwise all that is fetched is wanted."""
        return bool(self._times or self._origins)

    def admit(self, partition: Partition) -> bool:
        """Return whether messages of this partition may be wanted."""
        values = {"stream": partition[0], "partition": partition[1]}
        return all(holds(condition, values[what]) for what, condition in self._partitions)

    def is_over(self, arrived_ms: int) -> bool:
        """Return whether what arrived then, and all that follows, is too late: times in a stream never fall."""
        return arrived_ms * 1000 >= self.arrivals.high

    def origins(self, block: Block) -> Sequence[bool]:
        """Return, for each origin of a block, whether its messages may be wanted."""
        arrived = block.header.arrived * 1000
        if not all(holds(each, arrived) for each in self._times):
            return [False] * len(block.origins)
        return [
            all(self._admits(what, each, origin) for what, each in self._origins) for origin in block.origins
        ]

    @staticmethod
    def _admits(what: str, condition: Filter, origin: Sequence[object]) -> bool:
        at, shown = ORIGINS[what]
        return holds(condition, shown(str(origin[at])))


def rows_of(block: Block, low: int, high: int, wanted: Sequence[bool]) -> array[int]:
    """Return 1 for each of the rows [low, high) that is wanted, and 0 for the others."""
    if block.which is None or all(wanted):
        return array("B", (wanted[0],)) * (high - low)
    flags = bytes(wanted)
    return array("B", map(flags.__getitem__, block.which[low:high]))


def _is_of(kind: type, value: object) -> bool:
    """Return whether values have the column's type; null is not among them, and a list is not empty."""
    values = value if isinstance(value, list | tuple) else [value]
    return bool(values) and all(type(each) is kind for each in values)


def _in_microseconds(condition: Filter) -> Filter:
    if isinstance(condition, Not):
        return Not(_in_microseconds(condition.child))
    value = cast(WithValue, condition).value
    found = (
        list(map(_microseconds, value)) if isinstance(value, list) else _microseconds(cast(datetime, value))
    )
    return replace(cast(EqualTo, condition), value=found)


def _microseconds(time: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is UTC's."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
