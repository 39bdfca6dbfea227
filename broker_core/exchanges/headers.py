"""The exchange type `headers` routes to the queues whose binding arguments are found among the message's headers.

The argument `x-match` says how: `all` (the default) or `any` of the other arguments; those whose name starts with `x-`
count only in `all-with-x` and `any-with-x`. An argument without value (void) requires only that the header be there.
`all` without criteria matches every message, `any` without criteria none (S051, S052, X013).

Values are compared by value, not by wire type, also inside arrays and tables: 1 equals 1.0, text equals binary of the
same bytes, but true is not 1.

Each `any` binding is filed under all of its criteria: one hit is a match. Each `all` binding is filed under one of its
criteria, the one with fewest bindings; only if the message meets that one are the rest looked at. So the cost of a
route grows with the message's headers and with the bindings that have a chance. It is remembered by the octets of the
headers that some binding names, whatever the others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from mypy_extensions import mypyc_attr

from leveret.arguments.checks import one_of
from leveret.arguments.row import Row
from leveret.errors import PreconditionFailed
from leveret.exchanges.binding_selector import SELECTOR
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message
from leveret.values import Table, Value, printed, type_name

#                    any criterion?  count names with `x-`?
MODES: Final = {
    "all": (False, False),
    "any": (True, False),
    "all-with-x": (False, True),
    "any-with-x": (True, True),
}

NO_CRITERIA: Final = frozenset({"x-match", SELECTOR})
PRESENT: Final = object()  # the criterion that any value meets
TRUTH: Final = object()  # sets truth values apart from numbers

Criterion: TypeAlias = tuple[str, object]  # header name, comparable value or PRESENT
Identity: TypeAlias = tuple[object, ...]


class Wanted:
    """The criteria of one binding."""

    __slots__ = ("any_will_do", "criteria", "destination", "filed")

    def __init__(self, binding: Binding) -> None:
        mode = binding.arguments.get("x-match")
        self.any_will_do, with_x = MODES.get(mode, MODES["all"]) if isinstance(mode, str) else MODES["all"]
        self.criteria = tuple(criteria_in(binding.arguments, with_x))
        self.destination = binding.destination
        self.filed: tuple[Criterion, ...] = ()  # the criteria it can be found under

    def met_by(self, met: dict[Criterion, None]) -> bool:
        return self.any_will_do or all(criterion in met for criterion in self.criteria)


@mypyc_attr(allow_interpreted_subclasses=True)
class Headers(ExchangeType):
    name = "headers"
    looks_at = LooksAt.HEADERS
    description = "the queues whose binding arguments are found among the message's headers"
    binding_arguments = (
        Row(
            name="x-match",
            about="How many of the other arguments a message's headers have to match.",
            check=one_of(*MODES),
        ),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._wanted: dict[Identity, Wanted] = {}
        self._unconditional: dict[Identity, Destination] = {}
        self._by_criterion: dict[Criterion, dict[Identity, Wanted]] = {}
        self._asked_for: dict[str, int] = {}  # header name -> how many criteria name it
        self._names: dict[bytes, int] = {}  # the same, by the name's octets

    def binding_warnings(self, arguments: Table) -> list[str]:
        """Return none if all names count, else those of `x-` names, which are then passed over."""
        mode = arguments.get("x-match")
        counts_all = isinstance(mode, str) and MODES.get(mode, MODES["all"])[1]
        return [] if counts_all else super().binding_warnings(arguments)

    def validate_binding(self, key: str, arguments: Table) -> None:
        if "x-match" not in arguments:
            return
        mode = arguments["x-match"]
        if not isinstance(mode, str | bytes):
            raise PreconditionFailed(
                f"Invalid x-match field type {type_name(mode)} (value {printed(mode)}); expected longstr"
            )
        if mode not in MODES:
            raise PreconditionFailed(
                f'Invalid x-match field value "{printed(mode)}"; expected all, any, all-with-x, or any-with-x'
            )

    def route(self, message: Message) -> Iterable[Destination]:
        found = list(self._unconditional.values())
        met = self._criteria_met_by(message.headers)
        for criterion in met:
            candidates = self._by_criterion.get(criterion, {})
            found += [wanted.destination for wanted in candidates.values() if wanted.met_by(met)]
        return found

    def header_names(self) -> dict[bytes, int]:
        return self._names

    def bind(self, binding: Binding) -> None:
        wanted = Wanted(binding)
        self._wanted[binding.identity] = wanted
        self._count(wanted, 1)
        if not wanted.criteria and not wanted.any_will_do:
            self._unconditional[binding.identity] = binding.destination
        wanted.filed = wanted.criteria if wanted.any_will_do else self._rarest(wanted.criteria)
        for criterion in wanted.filed:
            self._by_criterion.setdefault(criterion, {})[binding.identity] = wanted

    def unbind(self, binding: Binding) -> None:
        wanted = self._wanted.pop(binding.identity)
        self._count(wanted, -1)
        self._unconditional.pop(binding.identity, None)
        for criterion in wanted.filed:
            filed_there = self._by_criterion[criterion]
            del filed_there[binding.identity]
            if not filed_there:
                del self._by_criterion[criterion]

    def _criteria_met_by(self, headers: Table) -> dict[Criterion, None]:
        """Return the criteria that a message meets, among those that some binding has; in the message's order."""
        met: dict[Criterion, None] = {}
        for name, value in headers.items():
            if name in self._asked_for:
                met[name, comparable(value)] = None
                met[name, PRESENT] = None
        return met

    def _rarest(self, criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        """Return the criterion under which fewest bindings are filed, if there is any criterion."""
        return tuple(sorted(criteria, key=lambda criterion: len(self._by_criterion.get(criterion, ())))[:1])

    def _count(self, wanted: Wanted, step: int) -> None:
        for name, _ in wanted.criteria:
            octets = name.encode("utf-8", "surrogateescape")
            self._asked_for[name] = self._names[octets] = self._asked_for.get(name, 0) + step
            if not self._asked_for[name]:
                del self._asked_for[name], self._names[octets]


def criteria_in(arguments: Table, with_x: bool) -> Iterable[Criterion]:
    for name, value in arguments.items():
        if name not in NO_CRITERIA and (with_x or not name.startswith("x-")):
            yield name, PRESENT if value is None else comparable(value)


def comparable(value: Value) -> object:
    """Return a hashable stand-in for a value, equal for equal values of whatever wire type."""
    if isinstance(value, bool):
        return (TRUTH, value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Mapping):
        return frozenset((name, comparable(item)) for name, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(comparable(item) for item in value)
    if isinstance(value, Decimal) and value.is_nan():
        return object()  # equals nothing
    return value
