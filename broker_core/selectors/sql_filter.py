"""Compiles SQL filters of AMQP, from text to a predicate: the language of selectors in another spelling.

    p.subject LIKE 'order.%' AND h.priority > 4 AND p.absolute_expiry_time > UTC() AND UPPER([ship to]) IN ('UK', 'FR')

What differs from a selector (`parser.py`):

    words are in upper case                   NOT, LIKE, TRUE, ...
    'text' or "text"                          strings; 0x0a1b is a binary constant, compared with = and <>
    [any name]                                a name with characters that names do not have
    header, h; properties, p; application_properties, a
                                              the sections; what has none is an application property
    UTC(), UPPER(text), LOWER(text)           functions: milliseconds since 1970; texts
    7 / 2 is 3.5; 7.5 % 2 is unknown

Source: AMQP Filter Expressions 1.0 (committee specification draft 01), section 6, as far as RabbitMQ's documentation
of SQL filter expressions has it; UPPER and LOWER from section 6.5. Binary constants, brackets and functions are in
no selector of JMS.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Iterator
from typing import ClassVar, Final
from uuid import UUID

from leveret.errors import PreconditionFailed
from leveret.selectors.conditions import (
    ARITHMETIC,
    NUMBER,
    TEXT,
    TRUTH,
    Comparison,
    ConditionNode,
    Field,
    HeaderField,
    Known,
    Literal,
    Operations,
    Other,
    Reading,
)
from leveret.selectors.parser import LENGTH_MAX, PROPERTIES, Selector, SelectorParser, of_kind
from leveret.selectors.tokens import END, NAME, TRUTHS, VALUE, WORDS, Token, wrong
from leveret.values import Value

TOKENS_MAX: Final = 500
BINARY: Final = "binary constant"
EQUALITIES: Final = {"=": True, "<>": False, "!=": False}
NOT_SUPPORTED: Final = frozenset({"EXISTS", "INF", "NAN"})

TOKEN: Final = re.compile(  # every alternative ends where it may: the time is linear in the text
    r"""
    (?P<space> \s+ )
  | (?P<binary> 0x [0-9a-fA-F]+ (?! \w ) )
  | (?P<approximate> (?: (?: [0-9]+ [.] [0-9]* | [.] [0-9]+ ) (?: [eE] [+-]? [0-9]+ )?
                       | [0-9]+ [eE] [+-]? [0-9]+ ) (?! \w ) )
  | (?P<exact> [0-9]+ (?! \w ) )
  | (?P<name> (?: [A-Za-z_]\w* [.] )? (?: [A-Za-z_]\w* | \[ [^\[\]]+ \] ) (?! [.\[] ) )
  | (?P<string> ' (?: [^'] | '' )* ' | " (?: [^"] | "" )* " )
  | (?P<sign> <> | != | <= | >= | [=<>+*/%(),-] )
    """,
    re.VERBOSE | re.ASCII,
)


def compile_sql(text: str) -> Selector:
    """Compile an SQL filter. Raises PreconditionFailed, which names the position of the mistake."""
    if len(text) > LENGTH_MAX:
        raise PreconditionFailed(f"it has {len(text)} characters, and may have {LENGTH_MAX}")
    return Selector(text, SqlFilterParser(sql_tokens(text)).whole())


def sql_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, then the end. Raises PreconditionFailed."""
    at = count = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            quoted = text[at] in "'\"["
            raise wrong(at, "a quotation has no end" if quoted else f"'{text[at : at + 9]}' is no word")
        if match.lastgroup != "space":
            if (count := count + 1) > TOKENS_MAX:
                raise PreconditionFailed(f"it has more than {TOKENS_MAX} words and signs")
            yield _token(at, str(match.lastgroup), match[0])
        at = match.end()
    yield Token(at, END)


def _token(at: int, kind: str, text: str) -> Token:
    if kind == "name":
        if text in TRUTHS:
            return Token(at, VALUE, TRUTHS[text])
        return Token(at, text) if text in WORDS else Token(at, NAME, text)
    if kind == "string":
        return Token(at, VALUE, text[1:-1].replace(text[0] * 2, text[0]))
    if kind == "binary":
        return Token(at, VALUE, bytes.fromhex("0" * (len(text) % 2) + text[2:]))
    if kind == "approximate":
        return Token(at, VALUE, float(text))
    return Token(at, VALUE, int(text)) if kind == "exact" else Token(at, text)


class BinaryConstant(ConditionNode):
    """A binary constant, which only comparisons of equality can use."""

    __slots__ = ("octets",)
    kind = BINARY

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def value(self, reading: Reading) -> Known:
        return Other.OTHER


class IsBinary(ConditionNode):
    """The comparison of a property with a binary constant. A text has the bytes of its UTF-8."""

    __slots__ = ("equal", "name", "octets")
    kind = TRUTH

    def __init__(self, name: HeaderField | Field, octets: bytes, equal: bool) -> None:
        self.name = name
        self.octets = octets
        self.equal = equal

    def value(self, reading: Reading) -> Known:
        found = plain(self.name, reading)
        return None if found is None else (octets_of(found) == self.octets) is self.equal


def plain(name: HeaderField | Field, reading: Reading) -> Value:
    """Return the value of a name as it is."""
    if isinstance(name, Field):
        return reading.plain_field(name.name)
    return reading.headers().get(name.name)


def octets_of(value: Value) -> bytes | None:
    """Return the bytes of a text, of bytes or of a UUID; None for other values."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, UUID):
        return value.bytes
    return bytes(value) if isinstance(value, bytes | bytearray) else None


class TimeNow(ConditionNode):
    """UTC(): the time in milliseconds since 1970."""

    __slots__ = ()
    kind = NUMBER

    def value(self, reading: Reading) -> Known:
        return time.time_ns() // 1_000_000


class OfText(ConditionNode):
    """A function of a text; the result is unknown for anything else."""

    __slots__ = ("function", "part")
    kind = TEXT

    def __init__(self, function: Callable[[str], str], part: ConditionNode) -> None:
        self.function = function
        self.part = part

    def value(self, reading: Reading) -> Known:
        value = self.part.value(reading)
        return self.function(value) if isinstance(value, str) else None


TEXT_FUNCTIONS: Final[dict[str, Callable[[str], str]]] = {"UPPER": str.upper, "LOWER": str.lower}


def whole_remainder(left: int | float, right: int | float) -> int | float:
    """Return the remainder of whole numbers, with the sign of the left. Raises ValueError for others."""
    if isinstance(left, float) or isinstance(right, float):
        raise ValueError("there is no remainder")
    return ARITHMETIC["%"](left, right)


class SqlFilterParser(SelectorParser):
    """A parser for the tokens of one SQL filter."""

    operations: ClassVar[Operations] = {**ARITHMETIC, "/": operator.truediv, "%": whole_remainder}

    def _literal(self, token: Token) -> ConditionNode:
        return BinaryConstant(token.says) if isinstance(token.says, bytes) else Literal(token.says)

    def _comparison(self, left: ConditionNode) -> ConditionNode:
        at = self._tokens[self._at].at
        node = super()._comparison(left)
        if not isinstance(node, Comparison):
            return node if not isinstance(left, BinaryConstant) else of_kind(TRUTH, left, at)
        sides = node.left, node.right
        constant = next((each for each in sides if isinstance(each, BinaryConstant)), None)
        if constant is None:
            return node
        name = next((each for each in sides if isinstance(each, HeaderField | Field)), None)
        if name is None or node.sign not in EQUALITIES:
            raise wrong(at, "a binary constant can only be compared with a name, by = or <>")
        return IsBinary(name, constant.octets, EQUALITIES[node.sign])

    def _named(self, token: Token) -> ConditionNode:
        name = str(token.says)
        if self._next == "(":
            return self._function(name, token.at)
        if name in NOT_SUPPORTED:
            raise wrong(token.at, f"{name} is not supported")
        section, dot, field = ("", "", name) if name.startswith("[") else name.partition(".")
        if not dot:
            section, field = "a", name
        field = field[1:-1] if field.startswith("[") else field
        if section in ("a", "application_properties"):
            return HeaderField(field)
        if (section in ("p", "properties") and field in PROPERTIES) or (
            section in ("h", "header") and field == "priority"
        ):
            return Field(field)
        raise wrong(token.at, f"nothing can be selected by '{name[:60]}'")

    def _function(self, name: str, at: int) -> ConditionNode:
        self._expect("(")
        if name == "UTC":
            self._expect(")")
            return TimeNow()
        if name not in TEXT_FUNCTIONS:
            raise wrong(at, f"there is no function '{name[:60]}'")
        part = self._expression(0, TEXT)
        self._expect(")")
        return OfText(TEXT_FUNCTIONS[name], part)
