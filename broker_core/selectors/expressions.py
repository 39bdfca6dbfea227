"""Regular expressions in linear time: one step for each character of the text, whatever the expression.

    "^a(b|c)*$" ─parse─> parts ─emit─> states ─find─> yes or no

Expressions are those of PCRE (`pcre_translation.py`). Python's `re` backtracks, which takes exponential time for some
of them and would block the loop. Here all paths are followed at once (K. Thompson, 1968): a set of states, as the bits
of a number, becomes the next set with each character, and transitions are cached. That can say whether an expression is
found in a text but not where; look-around and references to groups are not supported.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import attrs

from leveret.selectors.pcre_translation import ExpressionError, translated

LENGTH_MAX: Final = 1000  # characters of an expression
STATES_MAX: Final = 300  # with repetitions expanded: 15 ms for the worst of 255 characters, once
EMITTED_MAX: Final = 3000  # expanded parts, which may add no state
REMEMBERED_MAX: Final = 4096  # cached transitions
CLASSES_MAX: Final = 4096  # characters whose matching states are cached
CHARACTER, EITHER, BEGIN, END, VERY_END, FOUND = range(6)
TOKENS: Final = re.compile(
    r"""
    (?P<open>   \( (?: \?: | \?P<[A-Za-z_]\w*> | (?!\?) ) )
  | (?P<close>  \) )
  | (?P<choice> \| )
  | (?P<repeat> (?: [*+?] | \{ (?=[\d,]) (?P<low>\d*) (?P<comma>,?) (?P<high>\d*) \} ) \?? (?!\+) )
  | (?P<begin>  \^ | \\A )
  | (?P<end>    \$ )
  | (?P<last>   \\Z )
  | (?P<atom>   \\[dDsSwW] | \\[ntrfva] | \\x[0-9a-fA-F]{2} | \\[^0-9A-Za-z]
              | \[ \^? \]? (?: \\. | [^\]\\] )* \] | [^\\()|*+?[^$] )
    """,
    re.VERBOSE | re.DOTALL,
)


class ExpressionPart(ABC):
    """A part of an expression."""

    @abstractmethod
    def emit(self, states: States, following: int) -> int:
        """Add the states of this part before `following`, and return the first. Raises ValueError for too many."""


@attrs.frozen
class One(ExpressionPart):
    """One character of a class, as `re` has it, or an end of the text."""

    kind: int
    atom: str = ""

    def emit(self, states: States, following: int) -> int:
        return states.add(self.kind, states.atom(self.atom), following)


@attrs.frozen
class Concatenation(ExpressionPart):
    parts: Sequence[ExpressionPart]

    def emit(self, states: States, following: int) -> int:
        for part in reversed(self.parts):
            following = states.emit(part, following)
        return following


@attrs.frozen
class Alternation(ExpressionPart):
    parts: Sequence[ExpressionPart]

    def emit(self, states: States, following: int) -> int:
        *others, last = (states.emit(part, following) for part in self.parts)
        for each in others:
            last = states.add(EITHER, each, last)
        return last


@attrs.frozen
class Repeated(ExpressionPart):
    part: ExpressionPart
    low: int
    high: int | None

    def emit(self, states: States, following: int) -> int:
        at = following
        if self.high is None:
            at = states.add(EITHER, 0, following)
            states.table[at] = EITHER, states.emit(self.part, at), following
        for _ in range((self.high or self.low) - self.low):
            at = states.add(EITHER, states.emit(self.part, at), following)
        for _ in range(self.low):
            at = states.emit(self.part, at)
        return at


class States:
    """The automaton of an expression: kind, atom or alternative, and following state of each state."""

    def __init__(self) -> None:
        self.table: list[tuple[int, int, int]] = [(FOUND, 0, 0)]
        self.atoms: list[str] = []
        self._emitted = 0

    def emit(self, part: ExpressionPart, following: int) -> int:
        self._emitted += 1
        if self._emitted > EMITTED_MAX:
            raise ValueError("it is too large with its repetitions written out")
        return part.emit(self, following)

    def add(self, kind: int, first: int, following: int) -> int:
        if len(self.table) >= STATES_MAX:
            raise ValueError("it is too large with its repetitions written out")
        self.table.append((kind, first, following))
        return len(self.table) - 1

    def atom(self, text: str) -> int:
        if text not in self.atoms:
            self.atoms.append(text)
        return self.atoms.index(text)


class Expression:
    """An expression to search for. Raises ValueError if it is malformed or not supported."""

    def __init__(self, text: str, ignore_case: bool = False) -> None:
        if len(text) > LENGTH_MAX:
            raise ValueError(f"it has more than {LENGTH_MAX} characters")
        try:
            text = translated(text, ignore_case)
            re.compile(text, re.ASCII)
            states = States()
            start = states.emit(parsed(text), 0)
        except ExpressionError as refusal:
            raise ValueError(f"it is no regular expression: {refusal}") from None
        except (re.error, OverflowError) as error:
            raise ValueError(f"it is no regular expression: {error}") from None
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        self._states = states.table
        self._atoms = [re.compile(atom, re.ASCII) for atom in states.atoms]
        self._suiting: dict[str, int] = {}  # the states that a character matches
        self._reached: dict[int, int] = {}  # the states that a state leads to without a character
        self._following: dict[tuple[int, str], int] = {}
        self._again = self._reach(start)
        self._first = self._reach_any(start, (BEGIN,))
        self._fits_nothing = self._reach_any(start, (BEGIN, END, VERY_END)) & 1 == 1
        ends = END, VERY_END
        self._ending = sum(1 << at for at in range(len(self._states)) if self._reach_any(at, ends) & 1)

    def found_in(self, text: str) -> bool:
        """Return whether any part of the text matches."""
        if not text:
            return self._fits_nothing
        last = text.endswith("\n")
        states = self._walk(self._first, text[:-1] if last else text)
        if last:  # $ matches before a final newline, too
            states = self._walk(self._past_ends(states), "\n")
        return states & (1 | self._ending) != 0

    def _walk(self, states: int, text: str) -> int:
        """Return the states after a text, or those in which the expression was found."""
        following = self._following
        for character in text:
            if states & 1:
                break
            known = following.get((states, character))
            states = self._step(states, character) if known is None else known
        return states

    def _past_ends(self, states: int) -> int:
        for at, (kind, _, _) in enumerate(self._states):
            if kind == END and states >> at & 1:
                states |= self._reach_any(at, (END,))
        return states

    def _step(self, states: int, character: str) -> int:
        suiting = self._suiting.get(character)
        if suiting is None:
            suiting = self._suits(character)
        left, reached = states & suiting, self._again
        while left:
            lowest = left & -left
            reached |= self._reach(self._states[lowest.bit_length() - 1][2])
            left ^= lowest
        if len(self._following) >= REMEMBERED_MAX:
            self._following.clear()
        self._following[states, character] = reached
        return reached

    def _suits(self, character: str) -> int:
        fitting = {at for at, atom in enumerate(self._atoms) if atom.fullmatch(character)}
        suiting = sum(
            1 << at
            for at, (kind, atom, _) in enumerate(self._states)
            if kind == CHARACTER and atom in fitting
        )
        if len(self._suiting) >= CLASSES_MAX:
            self._suiting.clear()
        self._suiting[character] = suiting
        return suiting

    def _reach(self, state: int) -> int:
        """Return the states that a state leads to in the middle of a text."""
        if state not in self._reached:
            self._reached[state] = self._reach_any(state, ())
        return self._reached[state]

    def _reach_any(self, state: int, passing: Sequence[int]) -> int:
        """Return the states that a state leads to where anchors of these kinds hold."""
        reached, seen, left = 0, set[int](), [state]
        while left:
            at = left.pop()
            if at in seen:
                continue
            seen.add(at)
            kind, first, following = self._states[at]
            if kind == EITHER:
                left += first, following
            elif kind in passing:
                left.append(following)
            else:
                reached |= 1 << at
        return reached


def parsed(text: str) -> ExpressionPart:
    """Parse an expression that `re` accepts. Raises ValueError if it is not supported."""
    # of each open group: its complete alternatives, and the last one
    open_: list[tuple[list[ExpressionPart], list[ExpressionPart]]] = [([], [])]
    at = 0
    while at < len(text):
        token = TOKENS.match(text, at)
        if token is None:
            raise ValueError("look-around, references to groups and the like could take too long")
        at = token.end()
        choices, series = open_[-1]
        match token.lastgroup:
            case "open":
                open_.append(([], []))
            case "close":
                open_.pop()
                open_[-1][1].append(Alternation((*choices, Concatenation(series))))
            case "choice":
                open_[-1] = ([*choices, Concatenation(series)], [])
            case "begin":
                series.append(One(BEGIN))
            case "end":
                series.append(One(END))
            case "last":
                series.append(One(VERY_END))
            case "atom":
                series.append(One(CHARACTER, token["atom"]))
            case _:
                series[-1] = Repeated(series[-1], *bounds(token))
    choices, series = open_[-1]
    return Alternation((*choices, Concatenation(series)))


def bounds(repeat: re.Match[str]) -> tuple[int, int | None]:
    """Return the smallest and the largest number of repetitions; None: no limit."""
    if not repeat["repeat"].startswith("{"):
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat["repeat"][0]]
    low = int(repeat["low"] or 0)
    if repeat["high"]:
        return low, int(repeat["high"])
    return low, None if repeat["comma"] else low
