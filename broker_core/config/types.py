"""Kinds of settings: from a value in the file to the value that the program uses, or to a problem in words.

A `Kind` says what it accepts, reads it, and prints it. Reading never stops at a mistake: a refused value is reported to
its `Place`, and reading goes on, so that one run reports everything. A problem never repeats a value that is secret or
a whole table.
"""

from __future__ import annotations

import ipaddress
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

import attrs

from leveret.selectors.pcre_translation import compiled
from leveret.values import Table, Value

MANY: Final = (1 << 31) - 1
INTEGER_MAX: Final = (1 << 63) - 1  # that a field of a message or a table has room for
NAME_OCTETS_MAX: Final = 255  # in a field with one byte for its length
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

BARE: Final = re.compile(r"[\w-]+")  # names that need no quotes in a path

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RefusedValue(Enum):
    """The marker that reading returns instead of a value, after the problem has been reported."""

    REFUSED = "refused"


REFUSED: Final = RefusedValue.REFUSED


@attrs.frozen
class Problem:
    """A problem of the settings: where it is, what was found there (never a secret), what is accepted."""

    where: str
    found: str
    accepted: str = ""
    hint: str = ""
    origin: str = ""

    def __str__(self) -> str:
        where = f"{self.where} (from {self.origin})" if self.origin else self.where
        if not self.accepted:  # `found` is a whole sentence
            return f"{where}: {self.found}"
        hint = f"; did you mean '{self.hint}'?" if self.hint else ""
        return f"{where}: found {self.found}, accepted: {self.accepted}{hint}"


class Place:
    """A position in the settings, and the list that its problems go to."""

    __slots__ = ("_above", "_step", "folder", "origins", "problems")

    def __init__(
        self,
        problems: list[Problem],
        path: str = "",
        folder: Path | None = None,
        origins: dict[str, str] | None = None,
    ) -> None:
        self.problems = problems
        self._above: Place | None = None
        self._step: str | int = path  # below that place: a path, or the index of an item
        self.folder = folder or Path()  # relative file names start here
        self.origins = {} if origins is None else origins  # path -> the source of its value, if not the file

    def at(self, name: str) -> Place:
        return self._below(name if BARE.fullmatch(name) else json.dumps(name))

    def item(self, index: int) -> Place:
        return self._below(index)

    def within(self, path: str) -> Place:
        return self._below(path)

    @property
    def path(self) -> str:
        """The path, joined on demand: files have a hundred thousand places, and few with a problem."""
        above = "" if self._above is None else self._above.path
        if isinstance(self._step, int):
            return f"{above}[{self._step}]"
        return f"{above}.{self._step}" if above else self._step

    @property
    def refused(self) -> bool:
        """True if there is a problem here or further in."""
        inner = (f"{self.path}.", f"{self.path}[")
        return any(p.where == self.path or p.where.startswith(inner) for p in self.problems)

    def refuse(self, found: str, accepted: str, hint: str = "") -> RefusedValue:
        self.problems.append(Problem(self.path, found, accepted, hint, self._origin()))
        return REFUSED

    def _below(self, step: str | int) -> Place:
        place = object.__new__(Place)
        place.problems, place.folder, place.origins = self.problems, self.folder, self.origins
        place._above, place._step = self, step
        return place

    def _origin(self) -> str:
        for path, origin in self.origins.items():
            if self.path == path or self.path.startswith((f"{path}.", f"{path}[")):
                return origin
        return ""


class Kind(ABC, Generic[T_co]):
    """A type of values that a key accepts. `accepted` says it in words, after "accepted:"."""

    accepted: str

    @abstractmethod
    def read(self, value: object, place: Place) -> T_co | RefusedValue:
        """Return the value for the program, or `REFUSED` after reporting the problem to `place`."""

    def from_text(self, text: str) -> object:
        """Return the value in an environment variable, which is written as in the file."""
        return toml_value(text)

    def shown(self, value: object) -> str:
        """Return a value as the documentation prints it."""
        return printed(value)


class SingleValue(Kind[T_co]):
    """A kind of single values."""

    secret = False

    @abstractmethod
    def convert(self, value: object) -> T_co:
        """Convert a value. Raises ValueError if it is not accepted; its text, if any, is added to the problem."""

    def read(self, value: object, place: Place) -> T_co | RefusedValue:
        try:
            return self.convert(value)
        except ValueError as error:
            found = f"{type_word(value)} (hidden)" if self.secret else found_word(value)
            return place.refuse(found, f"{self.accepted} ({error})" if str(error) else self.accepted)


class Flag(SingleValue[bool]):
    accepted = "true or false"

    def convert(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError


class Text(SingleValue[str]):
    """A string; `pattern` must match all of it."""

    def __init__(self, accepted: str = "a string that is not empty", pattern: str = r"(?s).+") -> None:
        self.accepted = accepted
        self.pattern = pattern  # compiled with the first text: most keys are not set

    def convert(self, value: object) -> str:
        if isinstance(value, str) and re.fullmatch(self.pattern, value):
            octets_of(value)
            return value
        raise ValueError

    def from_text(self, text: str) -> object:
        return text


class Name(Text):
    """A name that is sent in a field with one byte for its length."""

    def convert(self, value: object) -> str:
        name = super().convert(value)
        if len(octets_of(name)) > NAME_OCTETS_MAX:
            raise ValueError(f"it has more than {NAME_OCTETS_MAX} bytes")
        return name


def octets_of(text: str) -> bytes:
    """Return a text in UTF-8, and what came in other bytes as these. Raises ValueError for half of a surrogate pair.

    JSON can write the latter, and it can neither be sent nor stored.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None


class Secret(Text):
    """A string that is never shown, right or wrong."""

    secret = True


class OneOf(Text):
    """One of a few words."""

    def __init__(self, *names: str) -> None:
        super().__init__(" or ".join(f'"{name}"' for name in names), "|".join(map(re.escape, names)))


class RegularExpression(Text):
    """A regular expression, kept as text."""

    def __init__(self) -> None:
        super().__init__("a regular expression", r"(?s).*")

    def convert(self, value: object) -> str:
        compiled(text := super().convert(value))
        return text


class FilePath(Kind[Path]):
    """A file or folder; a relative path starts at the folder of the settings file."""

    accepted = "the path of a file or folder"

    def read(self, value: object, place: Place) -> Path | RefusedValue:
        if isinstance(value, Path):
            return value
        if isinstance(value, str) and value:
            return place.folder / Path(value).expanduser()
        return place.refuse(found_word(value), self.accepted)

    def from_text(self, text: str) -> object:
        return text


class Whole(SingleValue[int]):
    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.accepted = f"a whole number from {low} to {high}"

    def convert(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        raise ValueError


class Limit(SingleValue[int | None]):
    """A whole number, or None for no limit."""

    def __init__(self, low: int, high: int) -> None:
        self.number = Whole(low, high)
        self.accepted = f'{self.number.accepted}, or "unlimited"'

    def convert(self, value: object) -> int | None:
        return None if value is None or value == "unlimited" else self.number.convert(value)

    def shown(self, value: object) -> str:
        return '"unlimited"' if value is None else printed(value)


UNITS: Final = {"B": 1} | {
    f"{letter}{i}B": base**power
    for power, letter in enumerate("KMGT", start=1)
    for i, base in (("", 1000), ("i", 1024))
}
UNIT_BY_LOWER_CASE: Final = {name.lower(): size for name, size in UNITS.items()}


class Octets(SingleValue[int]):
    """A size: a whole number of bytes, or a string with a unit."""

    def __init__(self, low: int, high: int) -> None:
        self.number = Whole(low, high)
        self.accepted = f'bytes from {size_text(low)} to {size_text(high)}, such as 65536 or "64KiB"'

    def convert(self, value: object) -> int:
        if isinstance(value, str) and (
            found := re.fullmatch(r"(\d{1,15})\s*([kmgt]?i?b)", value.strip().lower())
        ):
            if found[2] not in UNIT_BY_LOWER_CASE:
                raise ValueError
            value = int(found[1]) * UNIT_BY_LOWER_CASE[found[2]]
        return self.number.convert(value)

    def from_text(self, text: str) -> object:
        return int(text) if text.strip().isdecimal() else text

    def shown(self, value: object) -> str:
        return size_text(value) if isinstance(value, int) else printed(value)


SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


class Duration(SingleValue[float]):
    """A length of time in seconds: a number, or a string with a unit."""

    def __init__(self, low_s: float, high_s: float) -> None:
        self.low_s = low_s
        self.high_s = high_s
        self.accepted = f'seconds from {low_s:g} to {high_s:g}, such as 5 or "5 s", or with ms, min or h'

    def convert(self, value: object) -> float:
        if isinstance(value, str):
            found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|min|h)", value.strip())
            if found is None:
                raise ValueError
            value = float(found[1]) * SECONDS[found[2]]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        if not self.low_s <= value <= self.high_s:
            raise ValueError
        return float(value)

    def from_text(self, text: str) -> object:
        return text if text.strip()[-1:].isalpha() else toml_value(text)

    def shown(self, value: object) -> str:
        return json.dumps(f"{value:g} s") if isinstance(value, int | float) else printed(value)


@attrs.frozen
class Address:
    """An address to listen on: a host and a port (0: any free one)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_fixed(self) -> bool:
        """Return whether no two sockets can have it."""
        return self.port != 0


UNIX: Final = "unix:"
ABSTRACT: Final = "@"
SOCKET_PATH_MAX: Final = 103 if sys.platform == "darwin" else 107  # bytes of `sun_path`, without its end


@attrs.frozen
class UnixAddress:
    """The address of a Unix domain socket: a path, or an abstract name after `@`."""

    path: str
    host: str = attrs.field(init=False, default="")  # there is none
    is_fixed: bool = attrs.field(init=False, default=True)

    def __str__(self) -> str:
        return UNIX + self.path

    @property
    def is_abstract(self) -> bool:
        """Return whether it is a name that no file stands for (unix(7))."""
        return self.path.startswith(ABSTRACT)

    @property
    def name(self) -> str | bytes:
        """Return the name for `bind` and `connect`, in the form in which `getsockname` returns it."""
        return b"\0" + self.path[1:].encode() if self.is_abstract else self.path

    @classmethod
    def named(cls, name: str | bytes) -> UnixAddress:
        """Return the address with a name as `getsockname` returns it."""
        return cls(name if isinstance(name, str) else ABSTRACT + name[1:].decode("utf-8", "backslashreplace"))


AnyAddress: TypeAlias = Address | UnixAddress


class ListeningAddress(SingleValue[AnyAddress]):
    accepted = (
        '"HOST:PORT" with a name, an IPv4 address or an IPv6 address in brackets, such as "[::1]:5672", or '
        '"unix:/PATH", or "unix:@NAME"'
    )

    def convert(self, value: object) -> AnyAddress:
        if isinstance(value, Address | UnixAddress):
            return value
        if isinstance(value, str) and value.startswith(UNIX):
            return unix_address(value)
        if not isinstance(value, str) or not (
            found := re.fullmatch(r"(?:\[([^]]+)]|([A-Za-z0-9._-]+)):(\d{1,5})", value)
        ):
            raise ValueError
        if int(found[3]) > 65535:
            raise ValueError("ports end at 65535")
        return Address(str(ipaddress.IPv6Address(found[1])) if found[1] else host(found[2]), int(found[3]))

    def from_text(self, text: str) -> object:
        return text


def unix_address(text: str) -> UnixAddress:
    """Return the address that "unix:/PATH" or "unix:@NAME" means. Raises ValueError."""
    path = text.removeprefix(UNIX)
    if not path.startswith(("/", ABSTRACT)) or len(path) == 1 or "\0" in path or not path.isprintable():
        raise ValueError
    if path.startswith(ABSTRACT) and sys.platform != "linux":
        raise ValueError("only Linux has sockets with a name and no file")
    if len(path.encode()) > SOCKET_PATH_MAX:
        raise ValueError(f"the path of a socket has at most {SOCKET_PATH_MAX} bytes")
    return UnixAddress(path)


class FileMode(SingleValue[str]):
    """Permissions of a file, kept as text."""

    accepted = 'permissions as octal digits, such as "0660"'

    def convert(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
            raise ValueError
        return value

    def from_text(self, text: str) -> object:
        return text


def host(name: str) -> str:
    """Return a name, or an IPv4 address. Raises ValueError if digits and dots are no address."""
    return str(ipaddress.IPv4Address(name)) if re.fullmatch(r"[\d.]+", name) else name


class ListOf(Kind[tuple[T, ...]], Generic[T]):
    """Items of one kind, in order."""

    def __init__(self, item: Kind[T], least: int = 0) -> None:
        self.item = item
        self.least = least
        self.accepted = f"a list, each item {item.accepted}"

    def read(self, value: object, place: Place) -> tuple[T, ...] | RefusedValue:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return place.refuse(type_word(value), self.accepted)
        if len(value) < self.least:
            return place.refuse("an empty list", self.accepted)
        items = (self.item.read(each, place.item(index)) for index, each in enumerate(value))
        return tuple(each for each in items if each is not REFUSED)

    def from_text(self, text: str) -> object:
        """Read a list as in the file, or its items with commas between them."""
        listed = toml_value(text)
        if isinstance(listed, list):
            return listed
        return [self.item.from_text(part.strip()) for part in text.split(",") if part.strip()]


class TableOf(Kind[Mapping[str, T]], Generic[T]):
    """A table with any names, whose values are of one kind."""

    def __init__(self, item: Kind[T], accepted: str) -> None:
        self.item = item
        self.accepted = accepted

    def read(self, value: object, place: Place) -> Mapping[str, T] | RefusedValue:
        if not isinstance(value, Mapping):
            return place.refuse(type_word(value), self.accepted)
        items = [(str(name), self.item.read(each, place.at(str(name)))) for name, each in value.items()]
        for name, _ in items:
            try:
                octets_of(name)
            except ValueError as error:
                place.refuse(printed(name), f"a name of text ({error})")
        return {name: each for name, each in items if each is not REFUSED}


class AnyValue(Kind[Value]):
    """Any value but dates, and what no client can be sent; the consumer of the value knows what it should be."""

    accepted = "a string, a number, true, false, a list or a table"

    def read(self, value: object, place: Place) -> Value | RefusedValue:
        if isinstance(value, str):
            return ANY_STRING.read(value, place)
        if isinstance(value, int) and abs(value) > INTEGER_MAX:
            return place.refuse(found_word(value), f"a whole number from -{INTEGER_MAX} to {INTEGER_MAX}")
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, list | tuple):
            return ListOf(self).read(value, place)
        if isinstance(value, Mapping):
            return FREE_TABLE.read(value, place)
        return place.refuse(found_word(value), self.accepted)


ANY_STRING: Final = Text("a string", r"(?s).*")
FREE_TABLE: Final[Kind[Table]] = TableOf(AnyValue(), "a table")


def toml_value(text: str) -> object:
    """Return the value that `key = text` would have in the file; the text itself if that is not a value."""
    import tomllib  # imported on demand: most processes never need it

    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def free_value(text: str) -> Value:
    """Return the value that `key = text` would have in the file, unless it is a date; else the text itself."""
    value = AnyValue().read(toml_value(text), Place([]))
    return text if value is REFUSED else value


def printed(value: object) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path | Address):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)} = {printed(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(printed(item) for item in value) + "]"
    return "" if value is None else str(value)


def size_text(octets: int) -> str:
    """Return a size in the largest unit that expresses it exactly: 134217728 is 128MiB, 50000000 is 50MB."""
    unit = max(
        (name for name in UNITS if octets and octets % UNITS[name] == 0), key=UNITS.__getitem__, default="B"
    )
    return str(octets) if unit == "B" else f"{octets // UNITS[unit]}{unit}"


WORDS: Final = (
    (bool, "a truth value"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a string"),
    (Mapping, "a table"),
    (Sequence, "a list"),
)


def type_word(value: object) -> str:
    return next((word for kind, word in WORDS if isinstance(value, kind)), "a date or time")


def found_word(value: object) -> str:
    """Return a single value as a problem shows it; of lists and tables, which may hold secrets, only the type."""
    if isinstance(value, Mapping | list | tuple):
        return type_word(value)
    text = printed(value)
    return text if len(text) <= 80 else text[:79] + "…"
