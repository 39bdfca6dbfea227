"""Property filters of AMQP: a message matches if its fields match all values of a map.

    {"subject": "&p:order."}     it begins with order.
    {"subject": "&s:.new"}       it ends with .new
    {"subject": "&&co"}          it is &co
    {"priority": None}           any value

Texts, bytes and UUIDs match by their bytes, numbers by their value. A missing field matches only a void value, and a
missing application property not even that.

Source: AMQP Filter Expressions 1.0 (working draft 09), sections 4.1.1, 4.2.4 and 4.2.5; RabbitMQ's documentation of
property filter expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from leveret.errors import PreconditionFailed
from leveret.selectors.conditions import TRUTH, AllOf, ConditionNode, Field, HeaderField, Known, Reading
from leveret.selectors.parser import PROPERTIES, Selector
from leveret.selectors.sql_filter import octets_of, plain
from leveret.values import Value, type_name

FIELDS_MAX: Final = 16  # as in RabbitMQ
OCTETS_MAX: Final = 4096  # of one text

Comparable: TypeAlias = bool | int | float | Decimal | bytes


class Affix(ConditionNode):
    """The condition that a text begins, or ends, with some bytes."""

    __slots__ = ("at_end", "name", "octets")
    kind = TRUTH

    def __init__(self, name: HeaderField | Field, octets: bytes, at_end: bool) -> None:
        self.name = name
        self.octets = octets
        self.at_end = at_end

    def value(self, reading: Reading) -> Known:
        octets = octets_of(plain(self.name, reading))
        if octets is None:
            return False
        return octets.endswith(self.octets) if self.at_end else octets.startswith(self.octets)


class Same(ConditionNode):
    """The condition that a field has a value."""

    __slots__ = ("name", "reference")
    kind = TRUTH

    def __init__(self, name: HeaderField | Field, reference: Comparable) -> None:
        self.name = name
        self.reference = reference

    def value(self, reading: Reading) -> Known:
        found = comparable(plain(self.name, reading))
        return isinstance(found, bool) is isinstance(self.reference, bool) and found == self.reference


class HasProperty(ConditionNode):
    """The condition that an application property is there."""

    __slots__ = ("name",)
    kind = TRUTH

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, reading: Reading) -> Known:
        return self.name in reading.headers()


def comparable(value: Value) -> Comparable | None:
    """Return a value as it is compared; None if it cannot be."""
    if isinstance(value, bool | int | float | Decimal):
        return value
    return octets_of(value)


def properties_filter(fields: Mapping[str, Value]) -> Selector:
    """Return the condition on properties that protocols define, by their names in AMQP 1.0.

    Raises PreconditionFailed.
    """
    conditions: list[ConditionNode] = []
    for part, value in _few(fields).items():
        name = part.replace("-", "_")
        if name not in PROPERTIES:
            raise PreconditionFailed(f"there is no property '{part[:60]}'")
        if value is not None:
            conditions.append(_condition(Field(name), part, value))
    return Selector(f"properties {sorted(fields)}", AllOf(conditions))


def application_filter(fields: Mapping[str, Value]) -> Selector:
    """Return the condition on application properties. Raises PreconditionFailed."""
    conditions = [
        HasProperty(name) if value is None else _condition(HeaderField(name), name, value)
        for name, value in _few(fields).items()
    ]
    return Selector(f"application properties {sorted(fields)}", AllOf(conditions))


def _few(fields: Mapping[str, Value]) -> Mapping[str, Value]:
    if not 0 < len(fields) <= FIELDS_MAX:
        raise PreconditionFailed(f"it has 1 to {FIELDS_MAX} fields, not {len(fields)}")
    return fields


def _condition(name: HeaderField | Field, text: str, value: Value) -> ConditionNode:
    reference = comparable(value)
    if reference is None:
        raise PreconditionFailed(
            f"'{text[:60]}' cannot be compared with a value of type '{type_name(value)}'"
        )
    if not isinstance(reference, bytes):
        return Same(name, reference)
    if len(reference) > OCTETS_MAX:
        raise PreconditionFailed(f"the value of '{text[:60]}' has more than {OCTETS_MAX} bytes")
    if not isinstance(value, str) or not value.startswith("&"):
        return Same(name, reference)
    if value.startswith(("&p:", "&s:")):
        return Affix(name, reference[3:], value.startswith("&s:"))
    if value.startswith("&&"):
        return Same(name, reference[1:])
    raise PreconditionFailed(f"the value of '{text[:60]}' begins with a modifier that is not &p:, &s: or &&")
