"""Records of settings: frozen attrs classes whose keys say what they accept, and the reading of tables into them.

A *record* is a frozen attrs class whose fields are made by `key(kind, doc, default)`. `doc` and the default are printed
into the documentation. If a value is refused, the record is built with the default; the caller discards the record if
there were problems.

Values come from a file, then from environment variables laid over it, then from flags; a problem names the last of
these that set the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast

import attrs

from leveret.arguments.names import closest
from leveret.config.types import (
    REFUSED,
    AnyValue,
    Kind,
    Place,
    Problem,
    RefusedValue,
    SingleValue,
    TableOf,
    type_word,
)

T = TypeVar("T")
Raw: TypeAlias = Mapping[str, object]


class Unset(Enum):
    """The marker for the default of a key that has none."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


class Record:
    """Base of all records, with a method for rules that concern several keys.

    It compares and prints them, too (`eq=False, repr=False`): attrs would write and compile code for that in each
    class, which took 0.4 ms of a start, and there are fifty.
    """

    __slots__ = ()

    # Former names of keys, and what they are called now; with a dot in front, somewhere else.
    renamed: ClassVar[Mapping[str, str]] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self._all() == other._all()

    def __hash__(self) -> int:
        return hash((type(self), *self._all()))

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in _fields(type(self)) if each.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _all(self) -> list[object]:
        """Return the values of all fields."""
        return [getattr(self, each.name) for each in _fields(type(self))]

    def contradictions(self) -> Iterable[Problem]:
        """Return a problem for each broken rule; `where` starts at this record."""
        return ()


R = TypeVar("R", bound=Record)


@attrs.frozen
class Key:
    """The description of one key of a record."""

    name: str  # in the file
    field: str  # in the record
    kind: Kind[object]
    doc: str
    default: object  # UNSET: the key must be given
    reload: bool  # a running node can take a new value
    rest: bool  # the field takes the keys that the record does not name


KEY: Final = "leveret.config.records.Key"
RESEMBLING: Final = 0.6  # how much a key is like the one that may be meant


def key(
    kind: Kind[T],
    doc: str,
    default: T | Unset = UNSET,
    *,
    reload: bool = False,
    rest: bool = False,
    name: str = "",
) -> T:
    """Return a field of a record: what it accepts, one sentence about it, its default (none: it must be given).

    `name` is the key in the file if that cannot be a field's name. `rest`: the field takes, as a table, whatever keys
    the record does not name.
    """
    known = Key(name, "", kind, doc, default, reload, rest)
    given = attrs.NOTHING if default is UNSET else default
    # an undescribed key may hold anything, such as a password under a misspelt name
    secret = rest or (isinstance(kind, SingleValue) and kind.secret)
    return cast(T, attrs.field(default=given, repr=not secret, metadata={KEY: known}))


def keys_of(record: type[Record]) -> dict[str, Key]:
    """Return the keys of a record by their names in the file, in the order of its definition."""
    keys = (_named(field.metadata[KEY], field.name) for field in _fields(record))
    return {known.name: known for known in keys}


def _fields(record: type[Record]) -> tuple[attrs.Attribute[object], ...]:
    fields: tuple[attrs.Attribute[object], ...] = attrs.fields(cast("type[attrs.AttrsInstance]", record))
    return fields


def _named(known: Key, field: str) -> Key:
    return attrs.evolve(known, name=known.name or field, field=field)


class RecordOf(Kind[R], Generic[R]):
    """A table with the keys of a record."""

    accepted = "a table"

    def __init__(self, record: type[R]) -> None:
        self.record = record
        self._keys = keys_of(record)  # computed once: definition files have thousands of equal tables
        self._named = {name: (each.field, each.kind) for name, each in self._keys.items() if not each.rest}
        self._rest = next((each for each in self._keys.values() if each.rest), None)
        self._needed = {name: each for name, each in self._keys.items() if each.default is UNSET}

    def read(self, value: object, place: Place) -> R | RefusedValue:
        if isinstance(value, self.record):
            return value
        if not isinstance(value, Mapping):
            return place.refuse(type_word(value), self.accepted)
        values = self._values(value, place)
        if any(known.field not in values for known in self._needed.values()):
            return REFUSED
        record = self.record(**values)
        for problem in record.contradictions():
            inner = place.within(problem.where)
            if not inner.refused:
                inner.refuse(problem.found, problem.accepted, problem.hint)
        return record

    def _values(self, table: Raw, place: Place) -> dict[str, object]:
        """Return the value of each key. Refused values are left out, so that their defaults apply."""
        values: dict[str, object] = {}
        others: dict[str, object] = {}
        for name, item in table.items():
            if item is None:  # the same as an absent key
                continue
            if name not in self._named:
                others[name] = item
                continue
            field, kind = self._named[name]
            if (value := kind.read(item, place.at(name))) is not REFUSED:
                values[field] = value
        if self._rest is None:
            self._refuse_unknown(others, place)
        elif (rest := self._rest.kind.read(others, place)) is not REFUSED:
            values[self._rest.field] = rest
        for name, known in self._needed.items():
            if table.get(name) is None:
                place.at(name).refuse("nothing", known.kind.accepted)
        return values

    def _refuse_unknown(self, names: Iterable[str], place: Place) -> None:
        keys, renamed = self._keys, self.record.renamed
        for name in names:
            if name in renamed:
                place.at(name).refuse("a key of another name now", f"`{renamed[name].lstrip('.')}`")
                continue
            place.at(name).refuse("an unknown key", ", ".join(keys), closest(name, keys, RESEMBLING))


def laid_over(below: Raw, above: Raw) -> dict[str, object]:
    """Merge two tables, the second winning; nested tables are merged in the same way."""
    joined = dict(below)
    for name, value in above.items():
        under = joined.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            joined[name] = laid_over(under, value)
        else:
            joined[name] = value
    return joined


def nested(path: Sequence[str], value: object) -> dict[str, object]:
    """Return `("a", "b"), 1` as `{"a": {"b": 1}}`."""
    return {path[0]: value if len(path) == 1 else nested(path[1:], value)}


def with_environment(
    table: Raw, record: type[Record], environ: Mapping[str, str], prefix: str, place: Place
) -> Raw:
    """Return the table with variables such as PREFIX_SECTION__KEY laid over it, each noted in `place.origins`.

    A variable without `__` counts only if it names a top-level key: orchestrators set variables like PREFIX_PORT.
    """
    for variable in sorted(environ):
        path = variable.removeprefix(prefix).lower().split("__")
        if not variable.startswith(prefix) or (len(path) == 1 and path[0] not in keys_of(record)):
            continue
        if (kind := kind_at(record, path)) is None:
            accepted = f"{prefix} and a key's path with __ for each dot"
            renamed = now_called(record, path)
            close = (
                prefix + "__".join(renamed).upper()
                if renamed
                else closest(variable, variables(record, prefix), RESEMBLING)
            )
            place.problems.append(Problem(variable, "an unknown key", accepted, close))
            continue
        table = laid_over(table, nested(path, kind.from_text(environ[variable])))
        place.origins[".".join(path)] = f"environment variable {variable}"
    return table


ALIKE: Final = 0.9  # of variables: programs that are not ours have some that begin as ours do


def nearly_variables(record: type[Record], environ: Iterable[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield variables that are not read, because they lack a `__`, each with the variable of the key they resemble."""
    known = {name.replace("__", "_"): name for name in variables(record, prefix)}
    for variable in sorted(environ):
        if not variable.startswith(prefix) or variable in known.values() or "__" in variable:
            continue
        if near := closest(variable, known, ALIKE):
            yield variable, known[near]


def variables(record: type[Record], prefix: str) -> Iterator[str]:
    """Yield the environment variables of all keys."""
    for name, known in keys_of(record).items():
        if isinstance(known.kind, RecordOf):
            yield from variables(known.kind.record, f"{prefix}{name.upper()}__")
        elif not known.rest:
            yield f"{prefix}{name.upper()}"


def now_called(record: type[Record], path: Sequence[str]) -> list[str] | None:
    """Return the path of the key that has been at this one under a former name, or None."""
    above = kind_at(record, path[:-1])
    name = above.record.renamed.get(path[-1]) if isinstance(above, RecordOf) else None
    if name is None:
        return None
    return name[1:].split(".") if name.startswith(".") else [*path[:-1], *name.split(".")]


def kind_at(record: type[Record], path: Sequence[str]) -> Kind[object] | None:
    """Return the kind of the key at a path, or None if there is none."""
    kind: Kind[object] = RecordOf(record)
    for name in path:
        if isinstance(kind, RecordOf):
            keys = keys_of(kind.record)
            rest = next((known.kind for known in keys.values() if known.rest), None)
            found = keys[name].kind if name in keys and not keys[name].rest else rest
            if found is None:
                return None
            kind = found.item if found is rest and isinstance(found, TableOf) else found
        elif isinstance(kind, TableOf):
            kind = kind.item
        elif not isinstance(kind, AnyValue):
            return None
    return kind


def difference(old: Record, new: Record, path: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys whose values differ: those that a running node can take, and those that need a restart."""
    taken: list[str] = []
    restart: list[str] = []
    for name, known in keys_of(type(new)).items():
        before, after = getattr(old, known.field), getattr(new, known.field)
        if isinstance(before, Record) and isinstance(after, Record):
            inner = difference(before, after, f"{path}{name}.")
            taken += inner[0]
            restart += inner[1]
        elif before != after:
            (taken if known.reload else restart).append(f"{path}{name}")
    return tuple(taken), tuple(restart)


def in_force(old: R, new: R) -> R:
    """Return what holds after a reload of `new`: the new values, but the old ones for keys that need a restart."""
    values: dict[str, object] = {}
    for known in keys_of(type(new)).values():
        before, after = getattr(old, known.field), getattr(new, known.field)
        if isinstance(before, Record) and isinstance(after, Record):
            values[known.field] = in_force(before, after)
        else:
            values[known.field] = after if known.reload else before
    return type(new)(**values)


def written(record: Record) -> str:
    """Return a record in TOML: the keys that differ from their defaults."""
    return "{ " + ", ".join(_given(record)) + " }"


def _given(record: Record) -> Iterable[str]:
    """Yield the keys of a record that differ from their defaults."""
    for name, known in keys_of(type(record)).items():
        if (value := getattr(record, known.field)) != known.default:
            yield f"{name} = {known.kind.shown(value)}"
