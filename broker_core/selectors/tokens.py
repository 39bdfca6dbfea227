"""The tokenizer of selectors: from text to tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from leveret.errors import PreconditionFailed

NAME: Final = "a name"
VALUE: Final = "a value"
END: Final = "the end"

TOKEN: Final = re.compile(  # every alternative ends where it may: the time is linear in the text
    r"""
    (?P<space> \s+ )
  | (?P<approximate> (?: (?: [0-9]+ [.] [0-9]* | [.] [0-9]+ ) (?: [eE] [+-]? [0-9]+ )? [fFdD]?
                       | [0-9]+ (?: [eE] [+-]? [0-9]+ [fFdD]? | [fFdD] ) ) (?! [\w$] ) )
  | (?P<exact> (?: 0[xX][0-9a-fA-F]+ | [0-9]+ ) [lL]? (?! [\w$] ) )
  | (?P<name> (?: [^\W\d] | [$] ) (?: [\w$] | [.](?=[\w$]) | -(?=[^\W\d]) )* )
  | (?P<quoted> " (?: [^"] | "" )+ " )
  | (?P<string> ' (?: [^'] | '' )* ' )
  | (?P<sign> <> | != | <= | >= | [=<>+*/%(),-] )
    """,
    re.VERBOSE,
)
WORDS: Final = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL"})
TRUTHS: Final = {"TRUE": True, "FALSE": False}


class Token:
    """A token: a sign or word of the language, which is its own symbol; or a name, a value, or the end."""

    __slots__ = ("at", "says", "symbol")

    def __init__(self, at: int, symbol: str, says: bool | int | float | str | bytes = "") -> None:
        self.at = at  # the position in the text
        self.symbol = symbol
        self.says = says  # the name or the value

    def __str__(self) -> str:
        return self.symbol if self.symbol in (NAME, VALUE, END) else f"'{self.symbol}'"


class TokenReader:
    """The tokens of one text, of which the last is the end, for a recursive-descent parser."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = list(tokens)
        self._at = 0

    @property
    def _next(self) -> str:
        """Return the symbol of the next token."""
        return self._tokens[self._at].symbol

    def _take(self) -> Token:
        """Return the next token and go on, but never beyond the end."""
        taken = self._tokens[self._at]
        self._at += taken.symbol != END
        return taken


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, then the end. Raises PreconditionFailed."""
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            quoted = text[at] in "'\""
            raise wrong(at, "a quotation has no end" if quoted else f"'{text[at : at + 9]}' is no word")
        if match.lastgroup != "space":
            yield _token(at, str(match.lastgroup), match[0])
        at = match.end()
    yield Token(at, END)


def _token(at: int, kind: str, text: str) -> Token:
    if kind == "name":
        word = text.upper()
        if word in TRUTHS:
            return Token(at, VALUE, TRUTHS[word])
        return Token(at, word) if word in WORDS else Token(at, NAME, text)
    if kind == "quoted":
        return Token(at, NAME, text[1:-1].replace('""', '"'))
    if kind == "string":
        return Token(at, VALUE, text[1:-1].replace("''", "'"))
    if kind == "approximate":
        return Token(at, VALUE, float(text.rstrip("fFdD")))
    return Token(at, VALUE, _whole(at, text.rstrip("lL"))) if kind == "exact" else Token(at, text)


def _whole(at: int, text: str) -> int:
    """Parse a decimal, hexadecimal or octal number in Java's syntax."""
    base = 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10
    try:
        return int(text, base)
    except ValueError:
        raise wrong(at, f"'{text[:20]}' is no octal number") from None


def wrong(at: int, what: str) -> PreconditionFailed:
    return PreconditionFailed(f"at character {at + 1}, {what}")
