"""Conditions on a message's properties, as trees of nodes: the syntax tree of a selector, which evaluates itself.

A node's `value` is a boolean, a number, a string, `OTHER`, or None: SQL's NULL, unknown. An absent property is unknown,
and so is the result of calculations and comparisons with it. Every comparison of values of different kinds is false,
inequality too. A condition that is unknown selects no more than one that is false.

    NOT       AND  T F U      OR  T F U
    T  F       T   T F U      T   T T T
    F  T       F   F F F      F   T F U
    U  U       U   U F U      U   T U U

Source: Jakarta Messaging 3.1, section 3.8.1 (as JMS 2.0); AMQP Filter Expressions 1.0, section 6.
"""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard
from uuid import UUID

from leveret.selectors.message_ids import comparable, written
from leveret.values import Value

if TYPE_CHECKING:
    from leveret.message import Message


class Other(Enum):
    """The marker for a value that exists but cannot be compared: bytes, a list, a map."""

    OTHER = "other"


OTHER: Final = Other.OTHER
Known: TypeAlias = bool | int | float | str | Other | None

TRUTH, NUMBER, TEXT = "boolean", "number", "string"
KINDS: Final[dict[type, str]] = {bool: TRUTH, int: NUMBER, float: NUMBER, str: TEXT, Other: "other"}


def known(value: Value) -> Known:
    """Convert a property's value to one that conditions can use."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float | Decimal) else OTHER


class Reading:
    """One message while it is tested; properties that are needed again are read once."""

    __slots__ = ("_found", "_headers", "message")

    def __init__(self, message: Message, headers: dict[str, Value] | None = None) -> None:
        """Begin to read a message. `headers` are its application properties, if they are known."""
        self.message = message
        self._found: dict[str, Known] = {}
        self._headers = headers

    def header(self, name: str) -> Known:
        """Return an application property."""
        return known(self.headers().get(name))

    def headers(self) -> dict[str, Value]:
        """Return all application properties."""
        if self._headers is None:
            self._headers = dict(self.message.headers)
        return self._headers

    def field(self, name: str) -> Known:
        """Return a property that protocols define, under its name in AMQP 1.0."""
        if name not in self._found:
            self._found[name] = known(self.plain_field(name))
        return self._found[name]

    def plain_field(self, name: str) -> Value:
        """Return such a property as it is, also if conditions of selectors cannot use it."""
        read = FIELDS.get(name)
        return self.property(name) if read is None else read(self)

    def property(self, name: str) -> Value:
        return self.message.encoding.property(self.message.properties, name)


def _priority(reading: Reading) -> Value:
    """Return the priority; 4 by default, in all protocols."""
    priority = reading.message.facts.priority
    given = priority if priority > 0 else reading.property("priority")
    return 4 if given is None else given


def _creation_time(reading: Reading) -> Value:
    """Return milliseconds since 1970, also where the protocol has seconds."""
    time, seconds = reading.property("creation_time"), reading.property("timestamp")
    return seconds * 1000 if time is None and isinstance(seconds, int) else time


def _durable(reading: Reading) -> Value:
    return reading.message.facts.durable


def _ttl(reading: Reading) -> Value:
    return reading.message.facts.ttl_ms


def _delivery_mode(reading: Reading) -> Value:
    return "PERSISTENT" if reading.message.facts.durable else "NON_PERSISTENT"


def _either(name: str, other: str) -> Callable[[Reading], Value]:
    """Return a reader of one property, or else another, for pairs that protocols convert into each other."""

    def read(reading: Reading) -> Value:
        found = reading.property(name)
        return reading.property(other) if found is None else found

    return read


FIELDS: Final[dict[str, Callable[[Reading], Value]]] = {  # fields that are not just a property of this name
    "creation_time": _creation_time,
    "delivery_mode": _delivery_mode,
    "durable": _durable,
    "group_id": _either("group_id", "app_id"),
    "priority": _priority,
    "ttl": _ttl,
    "type": _either("type", "subject"),
}


class ConditionNode(ABC):
    """A part of a condition. `kind` is the kind of its value, if known; the value may be unknown all the same."""

    __slots__ = ()
    kind: str | None = None

    @abstractmethod
    def value(self, reading: Reading) -> Known:
        """Return the value for a message. Raises whatever the message's encoding raises."""


class Literal(ConditionNode):
    __slots__ = ("kind", "said")

    def __init__(self, value: bool | int | float | str) -> None:
        self.said = value
        self.kind = KINDS[type(value)]

    def value(self, reading: Reading) -> Known:
        return self.said


class HeaderField(ConditionNode):
    """An application property."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, reading: Reading) -> Known:
        return reading.header(self.name)


class Field(ConditionNode):
    """A property that protocols define."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, reading: Reading) -> Known:
        return reading.field(self.name)


class IdField(Field):
    """The id of a message, or that of another which it answers, as JMS clients name it."""

    __slots__ = ()

    def value(self, reading: Reading) -> Known:
        found = reading.field(self.name)
        return known(comparable(reading.plain_field(self.name))) if found is OTHER else found

    def written(self, reading: Reading) -> str | None:
        """Return the id as JMS writes it."""
        return written(reading.plain_field(self.name), self.name == "correlation_id")


class AnyOf(ConditionNode):
    """OR. All its parts are in one node, so that a tree is no deeper than its text is nested."""

    __slots__ = ("parts",)
    kind = TRUTH
    decides = True

    def __init__(self, parts: list[ConditionNode]) -> None:
        self.parts = parts

    def value(self, reading: Reading) -> Known:
        result: Known = not self.decides
        for part in self.parts:
            value = part.value(reading)
            if value is self.decides:
                return value
            if value is not result:
                result = None  # a value that is not a boolean counts as unknown
        return result


class AllOf(AnyOf):
    """AND."""

    __slots__ = ()
    decides = False


class Not(ConditionNode):
    __slots__ = ("part",)
    kind = TRUTH

    def __init__(self, part: ConditionNode) -> None:
        self.part = part

    def value(self, reading: Reading) -> Known:
        value = self.part.value(reading)
        return not value if isinstance(value, bool) else None


COMPARISONS: Final[dict[str, Callable[..., bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ORDERED: Final = frozenset({NUMBER, TEXT})
COMPARABLE: Final = {
    sign: ORDERED | {TRUTH} if sign in ("=", "<>", "!=") else ORDERED for sign in COMPARISONS
}


def compared(sign: str, left: Known, right: Known) -> bool | None:
    if left is None or right is None:
        return None
    kind = KINDS[type(left)]
    if kind != KINDS[type(right)] or kind not in COMPARABLE[sign]:
        return False
    return COMPARISONS[sign](left, right)


class Comparison(ConditionNode):
    __slots__ = ("left", "right", "sign")
    kind = TRUTH

    def __init__(self, sign: str, left: ConditionNode, right: ConditionNode) -> None:
        self.sign = sign
        self.left = left
        self.right = right

    def value(self, reading: Reading) -> Known:
        return compared(self.sign, self.left.value(reading), self.right.value(reading))


class Between(ConditionNode):
    """BETWEEN: not less than `low`, and not more than `high`."""

    __slots__ = ("high", "low", "part")
    kind = TRUTH

    def __init__(self, part: ConditionNode, low: ConditionNode, high: ConditionNode) -> None:
        self.part = part
        self.low = low
        self.high = high

    def value(self, reading: Reading) -> Known:
        value = self.part.value(reading)
        above = compared(">=", value, self.low.value(reading))
        below = compared("<=", value, self.high.value(reading))
        if above is False or below is False:
            return False
        return None if above is None or below is None else True


class In(ConditionNode):
    __slots__ = ("items", "part")
    kind = TRUTH

    def __init__(self, part: ConditionNode, items: Iterable[bool | int | float | str]) -> None:
        self.part = part
        self.items = {(KINDS[type(item)], item) for item in items}

    def value(self, reading: Reading) -> Known:
        value = self.part.value(reading)
        return None if value is None else (KINDS[type(value)], value) in self.items


class Like(ConditionNode):
    __slots__ = ("part", "pattern")
    kind = TRUTH

    def __init__(self, part: ConditionNode, pattern: Pattern) -> None:
        self.part = part
        self.pattern = pattern

    def value(self, reading: Reading) -> Known:
        value = self.part.value(reading)
        if value is None:
            return None
        if isinstance(value, str) and self.pattern.matches(value):
            return True
        text = self.part.written(reading) if isinstance(self.part, IdField) else None
        return text is not None and self.pattern.matches(text)


class IsNull(ConditionNode):
    __slots__ = ("part",)
    kind = TRUTH

    def __init__(self, part: ConditionNode) -> None:
        self.part = part

    def value(self, reading: Reading) -> Known:
        return self.part.value(reading) is None


def divided(left: int | float, right: int | float) -> int | float:
    """Divide; whole numbers are truncated towards zero, as in Java."""
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder(left: int | float, right: int | float) -> int | float:
    """Return the remainder of `divided`; it has the sign of the left."""
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right)
    return left - right * divided(left, right)


Operations: TypeAlias = dict[str, Callable[[int | float, int | float], int | float]]

ARITHMETIC: Final[Operations] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divided,
    "%": remainder,
}


class Arithmetic(ConditionNode):
    """A number and the operations applied to it, step by step."""

    __slots__ = ("first", "operations", "steps")
    kind = NUMBER

    def __init__(self, first: ConditionNode, operations: Operations) -> None:
        self.first = first
        self.operations = operations
        self.steps: list[tuple[str, ConditionNode]] = []

    def value(self, reading: Reading) -> Known:
        """Return the result; unknown if an operand is not a number, or there is no result: 1 / 0."""
        result = self.first.value(reading)
        if not is_number(result):
            return None
        for sign, part in self.steps:
            value = part.value(reading)
            if not is_number(value):
                return None
            try:
                result = self.operations[sign](result, value)
            except (ArithmeticError, ValueError):
                return None
        return result


class Negative(ConditionNode):
    __slots__ = ("part",)
    kind = NUMBER

    def __init__(self, part: ConditionNode) -> None:
        self.part = part

    def value(self, reading: Reading) -> Known:
        value = self.part.value(reading)
        return -value if is_number(value) else None


def is_number(value: Known) -> TypeGuard[int | float]:
    return KINDS.get(type(value)) == NUMBER


class Pattern:
    """A LIKE pattern, in which % stands for any characters, or none, and _ for any one.

    It is a nondeterministic automaton in a bit set: bit n is set as long as the first n pattern characters may match
    what has been read. A character is one step for all states, so the time is linear in the text, whatever the pattern.
    """

    __slots__ = ("_end", "_loops", "_others", "_steps")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        """Compile a pattern. Raises ValueError if it ends with the escape character."""
        self._steps: dict[str, int] = {}  # for each character: the states that it advances
        self._others = 0  # the states that every character advances
        self._loops = 0  # the states that stay set on every character
        state = 1
        rest = iter(pattern)
        for character in rest:
            if character == "%" != escape:
                self._loops |= state
                continue
            if character == "_" != escape:
                self._others |= state
            else:
                if character == escape and not (character := next(rest, "")):
                    raise ValueError("it ends with its escape character")
                self._steps[character] = self._steps.get(character, 0) | state
            state <<= 1
        self._end = state

    def regex(self) -> str:
        """Return what it matches as a regular expression, in which . stands for any character."""
        parts: list[str] = []
        state = 1
        while state <= self._end:
            if state & self._loops:
                parts.append(".*")
            if state & self._others:
                parts.append(".")
            parts += [re.escape(each) for each, states in self._steps.items() if states & state]
            state <<= 1
        return "".join(parts)

    def matches(self, text: str) -> bool:
        state, loops, others, step = 1, self._loops, self._others, self._steps.get
        for character in text:
            state = (state & (step(character, 0) | others)) << 1 | state & loops
            if not state:
                return False
        return state & self._end != 0
