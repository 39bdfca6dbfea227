"""Columns as Spark's SQL declares them, `id bigint not null, tags array<string>`, to Arrow's.

Source: Spark SQL, "Data Types" (the grammar of `colTypeList`, which `from_json` takes as a schema).
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.decoding.column_types import DEPTH_MAX, DIGITS_MAX, NAMES, TIME
from leveret.pipeline.errors import BadOption

PLAIN: Final = {
    **{name: kind for kind, name in NAMES.items()},
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "timestamp_ltz": TIME,
}
DECIMALS: Final = ("decimal", "dec", "numeric")
TEXTS: Final = ("varchar", "char", "character")
TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*')|(\w+)|(--[^\n]*)|([<>(),:;]))")


def columns_of(text: str) -> pa.Schema:
    """Return declared columns; one that is `not null` has to be there. Raises BadOption."""
    reading = Ddl(text)
    fields = reading.fields(0, ends=("", ";"))
    if not fields:
        raise BadOption("the schema declares no column")
    return pa.schema(fields)


class Ddl:
    """A text, read from its beginning."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def fields(self, depth: int, ends: tuple[str, ...]) -> list[pa.Field]:
        """Return what is declared up to one of some tokens. Raises BadOption."""
        found: list[pa.Field] = []
        while self._next() not in ends:
            if found:
                self._require(",")
            found.append(self._field(depth))
        return found

    def _field(self, depth: int) -> pa.Field:
        name = self._take()
        if not re.fullmatch(r"\w+|`.*`", name, re.DOTALL):
            raise BadOption(f"the schema has {name or 'its end'!r} where the name of a column is expected")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self._next() == ":":
            self._take()
        kind = self._kind(depth)
        is_nullable = True
        if self._next().lower() == "not":
            self._take()
            self._require("null")
            is_nullable = False
        if self._next().lower() == "comment":
            self._take()
            self._take()
        return pa.field(name, kind, nullable=is_nullable)

    def _kind(self, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise BadOption(f"the schema is more than {DEPTH_MAX} deep")
        name = self._take().lower()
        if name in PLAIN:
            return PLAIN[name]
        if name in DECIMALS:
            precision, scale = [*self._numbers(), 0, 0][:2] if self._next() == "(" else (10, 0)
            if not 0 < precision <= DIGITS_MAX or not 0 <= scale <= precision:
                raise BadOption(
                    f"the schema has decimal({precision},{scale}): up to {DIGITS_MAX} digits are possible"
                )
            return pa.decimal128(precision, scale)
        if name in TEXTS:
            self._numbers()
            return pa.string()
        return self._nested(name, depth)

    def _nested(self, name: str, depth: int) -> pa.DataType:
        if name == "array":
            self._require("<")
            kind = pa.list_(self._kind(depth + 1))
        elif name == "map":
            self._require("<")
            self._require("string")
            self._require(",")
            kind = pa.map_(pa.string(), self._kind(depth + 1))
        elif name == "struct":
            self._require("<")
            kind = pa.struct(self.fields(depth + 1, ends=(">", "")))
        else:
            known = ", ".join((*PLAIN, "decimal", "array", "map", "struct"))
            raise BadOption(f"the schema has no type {name!r}: known are {known}")
        self._require(">")
        return kind

    def _numbers(self) -> list[int]:
        """Return the numbers in parentheses."""
        self._require("(")
        found: list[int] = []
        while self._next() != ")":
            if found:
                self._require(",")
            number = self._take()
            if not re.fullmatch("[0-9]{1,9}", number):
                raise BadOption(f"the schema has {number!r} where a number is expected")
            found.append(int(number))
        self._require(")")
        return found

    def _require(self, token: str) -> None:
        found = self._take()
        if found.lower() != token:
            raise BadOption(f"the schema has {found or 'its end'!r} where {token!r} is expected")

    def _next(self) -> str:
        """Return the next token; an empty one at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            raise BadOption(f"the schema cannot be read at {text[at : at + 20].strip()!r}")
        at = match.end()
        if match[4] is None:  # a comment otherwise
            found.append(match[0].strip())
    return found
