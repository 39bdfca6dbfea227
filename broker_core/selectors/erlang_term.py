"""Compiles selectors in the form that RabbitMQ's JMS client gives them: an Erlang term, from text to a condition.

    price > 10 AND color = 'red'
    {'and',{'>',{'ident',<<"price">>},10},{'=',{'ident',<<"color">>},<<"red">>}}.

    term       {'and', C, C} {'or', C, C} {'not', C}   {'is_null', I} {'not_null', I}   true false
               {'=', V, V} and <> < <= > >=            {'+', V, V} {'-', V, V} {'*', V, V} {'/', V, V} {'-', V} {'+', V}
               {'like', V, <<"a%">>, no_escape}        {'like', V, <<"a!%">>, <<"!">>}    {'not_like', ...}
               {'between', V, V, V}                    {'between', V, {range, V, V}}      {'not_between', ...}
               {'in', V, [<<"a">>, ...]}               {'not_in', ...}
    value      {'ident', <<"name">>}: a header   <<"text">>   numbers

The conditions are those of our own selectors, and mean what they mean there. Anything else is refused, such as compiled
regular expressions and texts that are lists of characters. Every name is that of a header, also one that begins with
JMS: that client writes these properties into headers.

Sources: the compiler of selectors in RabbitMQ's JMS client (what it writes), its JMS topic exchange (what that reads);
Erlang's reference manual, "Data Types" and "Bit Syntax Expressions".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.selectors.conditions import (
    ARITHMETIC,
    NUMBER,
    TRUTH,
    AllOf,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    ConditionNode,
    HeaderField,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Pattern,
)
from leveret.selectors.parser import DEPTH_MAX, PATTERN_MAX, Selector, of_kind
from leveret.selectors.tokens import END, Token, TokenReader, wrong

LENGTH_MAX: Final = 16_384  # characters; a term is several times as long as the selector that it was
DIGITS_MAX: Final = 64  # of a whole number
ITEMS_MAX: Final = 1024  # of a list
ATOM, TEXT, VALUE = "an atom", "a binary", "a number"
TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<sign>[{}\[\],])
    |(?P<binary><<[ ]*(?:"(?:[^"\\]|\\.)*")?[ ]*>>)
    |(?P<quoted>'(?:[^'\\]|\\.)*')
    |(?P<atom>[a-z][A-Za-z0-9_@]*)
    |(?P<float>[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<based>[+-]?[0-9]{1,2}\#[0-9A-Za-z]+)
    |(?P<whole>[+-]?[0-9]+)
    |(?P<stop>\.)""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
ESCAPED: Final = {
    "b": "\b",
    "d": "\x7f",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "s": " ",
    "t": "\t",
    "v": "\v",
}
NUMBERED: Final = frozenset("01234567^x")  # begin characters that are written as numbers
SIGNS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


def compile_term(text: str) -> Selector:
    """Compile a selector that is an Erlang term. Raises PreconditionFailed, which names the position of the mistake."""
    if len(text) > LENGTH_MAX:
        raise PreconditionFailed(f"it has {len(text)} characters, and may have {LENGTH_MAX}")
    return Selector(text, ErlangTermParser(tokens(text)).whole())


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a term, then the end. Raises PreconditionFailed."""
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise wrong(at, f"'{text[at : at + 9]}' is no part of a selector's term")
        if match.lastgroup != "space":
            yield _token(at, str(match.lastgroup), match[0])
        at = match.end()
    yield Token(at, END)


def _token(at: int, group: str, text: str) -> Token:
    if group in ("sign", "stop"):
        return Token(at, text)
    if group == "binary":
        inner = text[2:-2].strip(" ")
        return Token(at, TEXT, _unescaped(at, inner[1:-1]))
    if group == "quoted":
        return Token(at, ATOM, _unescaped(at, text[1:-1]))
    if group == "atom":
        return Token(at, ATOM, text)
    return Token(at, VALUE, _number(at, group, text))


def _unescaped(at: int, text: str) -> str:
    if "\\" not in text:
        return text
    if any(each[1] in NUMBERED for each in ESCAPE.finditer(text)):
        raise wrong(at, "characters that are written as numbers are not supported")
    return ESCAPE.sub(lambda each: ESCAPED.get(each[1], each[1]), text)


def _number(at: int, group: str, text: str) -> int | float:
    if len(text) > DIGITS_MAX:
        raise wrong(at, f"a number has more than {DIGITS_MAX} digits")
    if group == "float":
        number = float(text)
        if not isfinite(number):
            raise wrong(at, "the number is too large")
        return number
    base, _, digits = text.rpartition("#")
    try:
        value = int(digits, int(base.lstrip("+-"))) if base else int(digits)
    except ValueError:
        raise wrong(at, f"'{text}' is no number") from None
    return -value if base.startswith("-") else value


class ErlangTermParser(TokenReader):
    """A recursive-descent parser for the tokens of one term."""

    def __init__(self, found: Iterator[Token]) -> None:
        super().__init__(found)
        self._depth = 0

    def whole(self) -> ConditionNode:
        """Return the condition that the whole term states. Raises PreconditionFailed."""
        condition = self._part(TRUTH)
        if self._next == ".":
            self._take()
        self._expect(END)
        return condition

    def _part(self, kind: str | None = None) -> ConditionNode:
        """Read a condition or a value, which must be of the `kind`."""
        token = self._expect("{", ATOM, TEXT, VALUE)
        if token.symbol == "{":
            part = self._tuple()
        elif token.symbol == ATOM:
            if token.says not in ("true", "false"):
                raise wrong(token.at, f"{_shown(token)} is no part of a selector")
            part = Literal(token.says == "true")
        else:
            assert not isinstance(token.says, bytes), "texts are text"
            part = Literal(token.says)
        return of_kind(kind, part, token.at)

    def _tuple(self) -> ConditionNode:
        """Read the rest of a tuple, behind its first brace."""
        self._depth += 1
        operator = self._expect(ATOM)
        if self._depth > DEPTH_MAX:
            raise wrong(operator.at, f"it is nested more than {DEPTH_MAX} deep")
        self._expect(",")
        part = self._operation(operator, str(operator.says))
        self._expect("}")
        self._depth -= 1
        return part

    def _operation(self, token: Token, name: str) -> ConditionNode:
        if name == "ident":
            return HeaderField(str(self._expect(TEXT).says))
        if name in ("not_like", "not_in", "not_between"):
            return Not(self._special(token, name[4:]))
        if name in SIGNS:
            return Comparison(name, self._part(), self._second())
        if name in ARITHMETIC and name != "%":
            return self._arithmetic(name)
        if name in ("and", "or"):
            return self._joined(AllOf if name == "and" else AnyOf)
        return self._special(token, name)

    def _special(self, token: Token, name: str) -> ConditionNode:
        if name == "not":
            return Not(self._part(TRUTH))
        if name in ("is_null", "not_null"):
            found = self._null(token)
            return Not(found) if name == "not_null" else found
        if name == "like":
            return Like(self._part(), self._pattern())
        if name == "in":
            return In(self._part(), self._items())
        if name == "between":
            return self._between()
        raise wrong(token.at, f"{_shown(token)} is no operator of selectors")

    def _second(self, kind: str | None = None) -> ConditionNode:
        self._expect(",")
        return self._part(kind)

    def _joined(self, joins: type[AnyOf]) -> ConditionNode:
        both = self._part(TRUTH), self._second(TRUTH)
        parts: list[ConditionNode] = []
        for each in both:
            parts += each.parts if isinstance(each, AnyOf) and type(each) is joins else [each]
        return joins(parts)

    def _arithmetic(self, sign: str) -> ConditionNode:
        first = self._part(NUMBER)
        if self._next == ",":
            found = Arithmetic(first, ARITHMETIC)
            found.steps.append((sign, self._second(NUMBER)))
            return found
        if sign not in "+-":
            self._expect(",")
        return Negative(first) if sign == "-" else Arithmetic(first, ARITHMETIC)

    def _null(self, token: Token) -> ConditionNode:
        part = self._part()
        if not isinstance(part, HeaderField):
            raise wrong(token.at, "only what has a name can be NULL")
        return IsNull(part)

    def _between(self) -> ConditionNode:
        part = self._part()
        self._expect(",")
        is_range = self._next == "{" and self._tokens[self._at + 1].says == "range"
        if not is_range:
            return Between(part, self._part(), self._second())
        for symbol in ("{", ATOM, ","):
            self._expect(symbol)
        found = Between(part, self._part(), self._second())
        self._expect("}")
        return found

    def _items(self) -> list[bool | int | float | str]:
        self._expect(",")
        self._expect("[")
        items: list[bool | int | float | str] = []
        while self._next != "]":
            if items:
                self._expect(",")
            at = self._tokens[self._at].at
            item = self._part()
            if not isinstance(item, Literal):
                raise wrong(at, "a list has values only")
            items.append(item.said)
            if len(items) > ITEMS_MAX:
                raise wrong(at, f"a list has more than {ITEMS_MAX} values")
        self._take()
        return items

    def _pattern(self) -> Pattern:
        self._expect(",")
        at = self._tokens[self._at].at
        pattern = str(self._expect(TEXT).says)
        self._expect(",")
        escaping = self._expect(TEXT, ATOM)
        if escaping.symbol == ATOM and escaping.says != "no_escape":
            raise wrong(escaping.at, f"'no_escape' or {TEXT} is expected")
        escape = str(escaping.says) if escaping.symbol == TEXT else None
        if len(pattern) > PATTERN_MAX:
            raise wrong(at, f"a pattern has more than {PATTERN_MAX} characters")
        if escape is not None and len(escape) != 1:
            raise wrong(escaping.at, "what escapes is one character")
        try:
            return Pattern(pattern, escape)
        except ValueError as error:
            raise wrong(at, f"the pattern is wrong: {error}") from None

    def _expect(self, *symbols: str) -> Token:
        """Take the next token, which must be one of these. Raises PreconditionFailed."""
        taken = self._take()
        if taken.symbol not in symbols:
            expected = " or ".join(each if " " in each or each == END else f"'{each}'" for each in symbols)
            raise wrong(taken.at, f"{expected} is expected, not {_shown(taken)}")
        return taken


def _shown(token: Token) -> str:
    if token.symbol == ATOM:
        return f"'{str(token.says)[:60]}'"
    return token.symbol if token.symbol in (TEXT, VALUE, END) else f"'{token.symbol}'"
