"""Regular expressions as RabbitMQ has them (PCRE) to the same in Python's words, or to the reason why there is none.

    "^[[:alnum:]]+\\z" -> r"^[0-9A-Za-z]+\\Z"

Names are read as characters, and `\\w`, `\\d`, `\\s`, POSIX classes and the case of letters are those of ASCII. Options
within an expression are resolved here: `(?i)a.` becomes `[Aa].`, so that the result has none.

Source: pcrepattern(3).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

Ranges: TypeAlias = "tuple[tuple[int, int], ...]"
"""Characters, as the first and the last of each range."""

LAST: Final = 0x10FFFF
REPEATED_MAX: Final = 65_535
OPTIONS: Final = "imsx"
NO_MATTER: Final = "UJ"  # options that do not change whether there is a match
REPETITION: Final = re.compile(r"(?:[*+?]|\{(\d+)(?:,(\d*))?\})([?+]?)", re.ASCII)
OPTION_GROUP: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
NAMED_GROUP: Final = re.compile(r"\(\?(?:P?<([A-Za-z_]\w*)>|'([A-Za-z_]\w*)')", re.ASCII)
CONDITION: Final = re.compile(r"\(\?\((?:<(\w+)>|'(\w+)'|(\d+|(?!R\b|R&|DEFINE\b)[A-Za-z_]\w*))\)", re.ASCII)
NAMED_REFERENCE: Final = re.compile(
    r"\(\?P=(\w+)\)|\\k(?:<(\w+)>|'(\w+)'|\{(\w+)\})|\\g\{([A-Za-z_]\w*)\}", re.ASCII
)
NUMBERED_REFERENCE: Final = re.compile(r"\\g(?:(-?\d+)|\{(-?\d+)\})", re.ASCII)
HEXADECIMAL: Final = re.compile(r"\\x(?:\{([0-9A-Fa-f]{1,8})\}|([0-9A-Fa-f]{0,2}))")
OCTAL: Final = re.compile(r"\\(?:o\{([0-7]{1,7})\}|([0-7]{1,3}))")
PROPERTY: Final = re.compile(r"\\[pP](?:\{(\^?)([A-Za-z&_]+)\}|([A-Za-z]))")
POSIX: Final = re.compile(r"\[:(\^?)([a-z]*):\]")
SIMPLE: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
DIGITS: Final[Ranges] = ((48, 57),)
WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Final[Ranges] = ((9, 13), (32, 32))
HORIZONTAL: Final[Ranges] = (
    *((9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E)),
    *((0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
VERTICAL: Final[Ranges] = ((10, 13), (0x85, 0x85), (0x2028, 0x2029))
CLASSES: Final[dict[str, Ranges]] = {
    "d": DIGITS,
    "w": WORD,
    "s": SPACE,
    "h": HORIZONTAL,
    "v": VERTICAL,
}
POSIX_CLASSES: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": SPACE,
    "upper": ((65, 90),),
    "word": WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
CATEGORIES: Final = {
    *(
        "C",
        "Cc",
        "Cf",
        "Cn",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
    ),
    *(
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ),
}
MIXED: Final = {"L&": ("Ll", "Lu", "Lt"), "Xan": ("L", "N")}
UNSUPPORTED: Final = {
    "X": "characters that are made of several",
    "C": "single bytes",
    "G": "the place where a search begins",
}
ASSERTIONS: Final = {"(?=": "(?=", "(?!": "(?!", "(?<=": "(?:(?<=", "(?<!": "(?<!"}
PLAIN_GROUPS: Final = ("(?:", "(?>")


class ExpressionError(ValueError):
    """Raised for an expression that is malformed, or that cannot mean here what it means in PCRE: with the reason."""


@attrs.define
class Group:
    """An open group: the options to return to, and what ends its alternatives and itself."""

    options: frozenset[str]
    between: str = "|"
    end: str = ")"
    may_repeat: bool = True


class PcreTranslation:
    """One expression on its way through."""

    def __init__(self, text: str, ignore_case: bool) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._options = frozenset("i") if ignore_case else frozenset[str]()
        self._open: list[Group] = []
        self._groups = 0  # that capture, and have begun
        self._may_repeat = False  # what came last

    def run(self) -> str:
        """Return the whole expression in Python's words. Raises ExpressionError."""
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == "\\":
                self._escape()
            elif character == "(":
                self._group()
            elif character == "[":
                self._class()
            elif character in "*+?" or (character == "{" and REPETITION.match(text, self._at)):
                self._repetition()
            else:
                self._at += 1
                self._plain(character)
        if self._open:
            raise ExpressionError("a group is not closed")
        return "".join(self._out)

    def _emit(self, text: str, may_repeat: bool = True) -> None:
        self._out.append(text)
        self._may_repeat = may_repeat

    def _plain(self, character: str) -> None:
        if "x" in self._options and (character in " \t\n\r\f\v" or character == "#"):
            if character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end + 1
        elif character == ")":
            self._close()
        elif character == "|":
            self._emit(self._open[-1].between if self._open else "|", may_repeat=False)
        elif character == "^":
            self._emit(r"(?:^|(?<=\n)(?!\Z))" if "m" in self._options else "^", may_repeat=False)
        elif character == "$":
            self._emit(r"(?=\n|\Z)" if "m" in self._options else "$", may_repeat=False)
        elif character == ".":
            self._emit(in_class(((0, LAST),)) if "s" in self._options else ".")
        else:
            self._literal(ord(character))

    def _literal(self, code: int) -> None:
        character = chr(code)
        if "i" in self._options and character.isascii() and character.isalpha():
            self._emit(f"[{character.upper()}{character.lower()}]")
        else:
            self._emit(re.escape(character))

    def _one_of(self, ranges: Ranges, is_not: bool = False) -> None:
        self._emit(in_class(others(ranges) if is_not else ranges))

    # Groups.

    def _group(self) -> None:
        text, at = self._text, self._at
        if text.startswith("(*", at):
            raise ExpressionError("verbs such as (*UTF8) are not supported")
        if text.startswith("(?#", at):
            end = text.find(")", at)
            if end < 0:
                raise ExpressionError("a comment is not closed")
            self._at = end + 1
        elif not text.startswith("(?", at):
            self._groups += 1
            self._begin("(", 1)
        elif match := NAMED_REFERENCE.match(text, at):
            self._refer(match)
        elif match := NAMED_GROUP.match(text, at):
            self._groups += 1
            self._begin(f"(?P<{match[1] or match[2]}>", len(match[0]))
        elif match := CONDITION.match(text, at):
            self._begin(f"(?({match[1] or match[2] or match[3]})", len(match[0]))
        elif opening := next((each for each in PLAIN_GROUPS if text.startswith(each, at)), None):
            self._begin(opening, len(opening))
        elif opening := next((each for each in ASSERTIONS if text.startswith(each, at)), None):
            self._assertion(opening)
        elif match := OPTION_GROUP.match(text, at):
            self._option_group(match)
        else:
            raise ExpressionError(f"the group '{text[at : at + 4]}' is not supported")

    def _begin(
        self, opening: str, size: int, between: str = "|", end: str = ")", repeats: bool = True
    ) -> None:
        self._open.append(Group(self._options, between, end, repeats))
        self._at += size
        self._emit(opening, may_repeat=False)

    def _assertion(self, opening: str) -> None:
        """Begin looking around. The alternatives of looking behind may differ in length, each on its own."""
        between, end = {"(?<=": (")|(?<=", "))"), "(?<!": (")(?<!", ")")}.get(opening, ("|", ")"))
        self._begin(ASSERTIONS[opening], len(opening), between, end, repeats=False)

    def _option_group(self, match: re.Match[str]) -> None:
        on, off = match[1], match[2] or ""
        if wrong := (set(on) | set(off)) - set(OPTIONS + NO_MATTER):
            raise ExpressionError(f"the option '{min(wrong)}' is not supported")
        before = self._options
        if match[3] == ":":
            self._begin("(?:", 0)
        self._options = (before | set(on)) - set(off) - set(NO_MATTER)
        self._at += len(match[0])

    def _close(self) -> None:
        if not self._open:
            raise ExpressionError("a group is closed that is not open")
        group = self._open.pop()
        self._options = group.options
        self._emit(group.end, group.may_repeat)

    # Repetitions.

    def _repetition(self) -> None:
        match = REPETITION.match(self._text, self._at)
        assert match is not None
        if not self._may_repeat:
            raise ExpressionError(f"there is nothing that '{match[0]}' could repeat")
        if max(int(match[1] or 0), int(match[2] or 0)) > REPEATED_MAX:
            raise ExpressionError(f"more than {REPEATED_MAX} repetitions")
        self._at += len(match[0])
        self._emit(match[0], may_repeat=False)

    # Escapes.

    def _escape(self) -> None:
        text, at = self._text, self._at
        letter = text[at + 1 : at + 2]
        if letter == "Q":
            end = text.find(r"\E", at + 2)
            for character in text[at + 2 :] if end < 0 else text[at + 2 : end]:
                self._literal(ord(character))
            self._at = len(text) if end < 0 else end + 2
        elif letter in ("E", "K"):  # the end of a quotation, and where a match begins, which does not matter
            self._at += 2
        elif letter in ("k", "g"):
            self._reference()
        elif letter.isdigit() and letter != "0" and self._is_reference():
            digits = re.compile(r"\d+", re.ASCII).match(text, at + 1)
            assert digits is not None
            self._at = digits.end()
            self._refer_to(int(digits[0]))
        elif (plain := ANCHORS.get(letter)) is not None:
            self._at += 2
            self._emit(plain, may_repeat=False)
        elif letter == "R":
            self._at += 2
            self._emit(r"(?>\r\n|[\n\x0b\f\r\x85\u2028\u2029])")
        elif letter == "N" and not text.startswith("{", at + 2):
            self._at += 2
            self._emit(".")
        elif (ranges := self._escaped_class()) is not None:
            self._one_of(ranges)
        else:
            self._literal(self._escaped_character())

    def _is_reference(self) -> bool:
        digits = re.compile(r"\d+", re.ASCII).match(self._text, self._at + 1)
        return digits is not None and (int(digits[0]) < 10 or int(digits[0]) <= self._groups)

    def _reference(self) -> None:
        if match := NAMED_REFERENCE.match(self._text, self._at):
            self._refer(match)
        elif match := NUMBERED_REFERENCE.match(self._text, self._at):
            number = int(match[1] or match[2])
            self._at = match.end()
            self._refer_to(number if number > 0 else self._groups + 1 + number)
        else:
            raise ExpressionError("references to groups as expressions are not supported")

    def _refer(self, match: re.Match[str]) -> None:
        self._at = match.end()
        name = next(each for each in match.groups() if each is not None)
        self._emit(self._in_case(f"(?P={name})"))

    def _refer_to(self, number: int) -> None:
        self._emit(self._in_case(f"(?:\\{number})"))

    def _in_case(self, reference: str) -> str:
        return f"(?i:{reference})" if "i" in self._options else reference

    def _escaped_class(self) -> Ranges | None:
        """Return the characters of an escape that stands for several, and go on after it; None if it does not."""
        letter = self._text[self._at + 1 : self._at + 2]
        if (ranges := CLASSES.get(letter.lower())) is not None:
            self._at += 2
            return ranges if letter.islower() else others(ranges)
        if letter not in ("p", "P"):
            return None
        match = PROPERTY.match(self._text, self._at)
        if match is None:
            raise ExpressionError(f"the property after \\{letter} is malformed")
        self._at = match.end()
        ranges = with_property(match[2] or match[3])
        return others(ranges) if (letter == "P") != (match[1] == "^") else ranges

    def _escaped_character(self) -> int:
        """Return the one character that an escape stands for, and go on after it."""
        text, at = self._text, self._at
        letter = text[at + 1 : at + 2]
        if not letter:
            raise ExpressionError("it ends with a backslash")
        if match := HEXADECIMAL.match(text, at):
            self._at = match.end()
            return self._code(int(match[1] or match[2] or "0", 16))
        if match := OCTAL.match(text, at):
            self._at = match.end()
            return self._code(int(match[1] or match[2], 8))
        self._at += 2
        if letter == "c":
            self._at += 1
            return ord(text[at + 2 : at + 3].upper() or "@") ^ 64
        if letter in SIMPLE:
            return SIMPLE[letter]
        if letter.isascii() and letter.isalnum():
            why = UNSUPPORTED.get(letter)
            raise ExpressionError(f"\\{letter} is not supported" + (f": {why}" if why else ""))
        return ord(letter)

    def _code(self, code: int) -> int:
        if code > LAST:
            raise ExpressionError(f"there is no character {code:#x}")
        return code

    # Classes.

    def _class(self) -> None:
        text = self._text
        if POSIX.match(text, self._at):
            raise ExpressionError("POSIX classes such as [:alpha:] have to be within brackets")
        self._at += 1
        is_not = text.startswith("^", self._at)
        self._at += is_not
        found: list[tuple[int, int]] = []
        is_first, is_quoted, low = True, False, -1  # low: the last character, if a range may begin with it
        while is_first or not text.startswith("]", self._at) or is_quoted:
            if self._at >= len(text):
                raise ExpressionError("a class is not closed")
            if is_quoted and not text.startswith(r"\E", self._at):
                low = ord(text[self._at])
                found.append((low, low))
                self._at += 1
            elif text.startswith((r"\Q", r"\E"), self._at):
                is_quoted = text[self._at + 1] == "Q"
                self._at += 2
                continue
            else:
                several, low = self._item(found, low)
                found += several
            is_first = False
        self._at += 1
        ranges = joined(self._folded(found))
        self._one_of(ranges, is_not)

    def _item(self, found: list[tuple[int, int]], low: int) -> tuple[Sequence[tuple[int, int]], int]:
        """Return what the next item of a class adds, and the character with which a range may begin, or -1."""
        text, at = self._text, self._at
        if text.startswith("-", at) and low >= 0 and not text.startswith("]", at + 1):
            self._at += 1
            if (high := self._range_end()) is None:
                return ((45, 45),), -1
            if high < low:
                raise ExpressionError("a range in a class is out of order")
            return ((low, high),), -1
        if (ranges := self._several()) is not None:
            return ranges, -1
        code = self._single()
        return ((code, code),), code

    def _range_end(self) -> int | None:
        """Return the last character of a range; None if a class follows, so that the hyphen is one."""
        before = self._at
        if self._several() is not None:
            self._at = before
            return None
        return self._single()

    def _several(self) -> Ranges | None:
        if match := POSIX.match(self._text, self._at):
            if match[2] not in POSIX_CLASSES:
                raise ExpressionError(f"there is no POSIX class [:{match[2]}:]")
            self._at = match.end()
            ranges = joined(self._folded(POSIX_CLASSES[match[2]]))
            return others(ranges) if match[1] else ranges
        if re.match(r"\[([.=]).*?\1\]", self._text[self._at :]):
            raise ExpressionError("POSIX collating elements are not supported")
        return self._escaped_class() if self._text[self._at] == "\\" else None

    def _single(self) -> int:
        if self._text[self._at] == "\\":
            if self._text.startswith(r"\b", self._at):
                self._at += 2
                return 8
            return self._escaped_character()
        self._at += 1
        return ord(self._text[self._at - 1])

    def _folded(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the characters, in both cases if that does not matter."""
        if "i" not in self._options:
            return list(ranges)
        small = [(max(low, 65) + 32, min(high, 90) + 32) for low, high in ranges if low <= 90 and high >= 65]
        large = [
            (max(low, 97) - 32, min(high, 122) - 32) for low, high in ranges if low <= 122 and high >= 97
        ]
        return [*ranges, *small, *large]


ANCHORS: Final = {"A": r"\A", "Z": "$", "z": r"\Z", "b": r"\b", "B": r"(?!\b)"}


def joined(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return the same characters as ranges in order that do not meet."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def others(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    found, next_ = [], 0
    for low, high in joined(ranges):
        if low > next_:
            found.append((next_, low - 1))
        next_ = high + 1
    if next_ <= LAST:
        found.append((next_, LAST))
    return tuple(found)


def in_class(ranges: Ranges) -> str:
    """Return Python's class of these characters."""
    if not ranges:
        return "(?!)"
    return f"[{''.join(f'{_written(low)}-{_written(high)}' if high > low else _written(low) for low, high in ranges)}]"


def _written(code: int) -> str:
    character = chr(code)
    if character.isascii() and character.isalnum():
        return character
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(maxsize=64)
def with_property(name: str) -> Ranges:
    """Return the characters of a general category of Unicode (0.2 s, once each). Raises ExpressionError."""
    if name == "Any":
        return ((0, LAST),)
    wanted = MIXED.get(name, (name,))
    if not CATEGORIES.issuperset(wanted):
        raise ExpressionError(f"the property '{name}' is not supported, only categories such as Lu are")
    found, begin = [], -1
    category = unicodedata.category
    for code in range(LAST + 2):
        is_one = code <= LAST and category(chr(code)).startswith(wanted)
        if is_one and begin < 0:
            begin = code
        elif not is_one and begin >= 0:
            found.append((begin, code - 1))
            begin = -1
    return tuple(found)


def translated(text: str, ignore_case: bool = False) -> str:
    """Return an expression in Python's words, without options. Raises ExpressionError with the reason."""
    return PcreTranslation(text, ignore_case).run()


@lru_cache(maxsize=1024)
def compiled(text: str) -> re.Pattern[str]:
    """Return an expression to search with, which may take long. Raises ExpressionError with the reason."""
    try:
        return re.compile(translated(text), re.ASCII)
    except re.error as error:
        raise ExpressionError(error.msg) from None
    except (RecursionError, OverflowError):
        raise ExpressionError("it is nested too deep, or too large") from None


def refusal_of(text: str) -> str | None:
    """Return why an expression is refused; None if it is not."""
    try:
        compiled(text)
    except ExpressionError as refusal:
        return str(refusal)
    return None
