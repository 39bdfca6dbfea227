"""Stream filters: a reader asks for messages with some filter values, and blocks without them are not read from disk.

    x-stream-filter: "emea", or a list: any of these      publishers set the header x-stream-filter-value
    x-stream-match-unfiltered: true                       also messages without a value

A block on disk has a Bloom filter of the values of its messages (`selectors/bloom.py`), so that the log passes over
blocks that have none of the wanted ones. Messages of the others are tested one by one: the reader gets what it asked
for and nothing else. RabbitMQ delivers all messages of a block, and has clients test again.

Source: RabbitMQ's documentation of stream filtering.
"""

from __future__ import annotations

from typing import Final

from leveret.arguments.checks import text, truth_fault
from leveret.errors import PreconditionFailed
from leveret.message import filter_value
from leveret.selectors.bloom import BloomQuery
from leveret.selectors.conditions import AnyOf, ConditionNode, In, IsNull, Known, Reading
from leveret.selectors.parser import Selector
from leveret.values import Table, Value, type_name

FILTER: Final = "x-stream-filter"  # consumer arguments
UNFILTERED: Final = "x-stream-match-unfiltered"
VALUES_MAX: Final = 128  # of one consumer
VALUE_OCTETS_MAX: Final = 1024


class FilterValueField(ConditionNode):
    """The filter value of a message."""

    __slots__ = ()

    def value(self, reading: Reading) -> Known:
        return filter_value(reading.message)


def stream_filter(arguments: Table, described: str) -> Selector | None:
    """Return the condition that a consumer's arguments ask for, or None. Raises PreconditionFailed."""
    matches_unfiltered = arguments.get(UNFILTERED, False)
    if (fault := truth_fault(matches_unfiltered)) is not None:
        raise PreconditionFailed(f"invalid arg '{UNFILTERED}' for {described}: {fault}")
    if FILTER not in arguments:
        return None
    values = _values(arguments[FILTER], described)
    condition: ConditionNode = In(FilterValueField(), values)
    if matches_unfiltered:
        condition = AnyOf([condition, IsNull(FilterValueField())])
    wanted = BloomQuery([*values, None] if matches_unfiltered else values)
    return Selector(f"{FILTER} in {sorted(values)}", condition, wanted)


def _values(argument: Value, described: str) -> list[str]:
    listed = argument if isinstance(argument, list) else [argument]
    if not 0 < len(listed) <= VALUES_MAX:
        why = f"it lists 1 to {VALUES_MAX} values, not {len(listed)}"
        raise PreconditionFailed(f"invalid arg '{FILTER}' for {described}: {why}")
    values: list[str] = []
    for each in listed:
        value = text(each)
        if value is None:
            why = f"unacceptable type '{type_name(each)}'"
            raise PreconditionFailed(f"invalid arg '{FILTER}' for {described}: {why}")
        if not 0 < len(value.encode("utf-8", "surrogateescape")) <= VALUE_OCTETS_MAX:
            why = f"a value has 1 to {VALUE_OCTETS_MAX} bytes"
            raise PreconditionFailed(f"invalid arg '{FILTER}' for {described}: {why}")
        values.append(value)
    return values
