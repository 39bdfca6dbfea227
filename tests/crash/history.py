"""Where a thing may be: what was asked for in order, how much of it is certain, and what turned out.

A copy of a message goes from place to place: nowhere, a queue, nowhere again; or a queue, and from there the queue of
its dead letters. Each step is part of a *deed*, something that a client asked for and that happens as a whole or not
at all. A node that was killed has done the first so many steps of a copy: no fewer than those known to be safe, no
more than those asked for. So one look at where the copy is tells which deeds have happened, and two rules follow for
the deeds themselves: all steps of a deed agree, and what happened on a connection before is not missing.

Queues, exchanges and bindings are histories of the same kind: they are there, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

NOWHERE = ""
THERE = "there"


class Deed:
    """Something that a client has asked for: a publish into its queues, an ack, a commit, a declaration."""

    __slots__ = ("failed", "happened", "is_safe", "line", "number", "steps", "text")

    def __init__(self, line: str, number: int, text: str) -> None:
        self.line = line  # the connection
        self.number = number  # order on the connection
        self.text = text
        self.steps: list[tuple[History, int]] = []  # each with the place of the step in its history
        self.failed: list[History] = []  # copies that came back by it, and count that
        self.happened: bool | None = None  # as it turned out; None: one cannot tell
        self.is_safe = False

    def __repr__(self) -> str:
        return f"{self.text} ({self.line} #{self.number})"

    def safe(self) -> None:
        """It is on disk: the node has said so, or something that it implies."""
        if self.is_safe:
            return
        self.is_safe = True
        for history, step in self.steps:
            history.least = max(history.least, step)
        for history in self.failed:
            history.failures_least += 1


class Step:
    """A place, and the deed by which it was reached; None: the node does this by itself, or perhaps not."""

    __slots__ = ("deed", "place")

    def __init__(self, place: str, deed: Deed | None) -> None:
        self.place = place
        self.deed = deed


class History:
    """Where one thing has been, and may be."""

    __slots__ = ("failures_least", "failures_most", "given", "holder", "least", "name", "steps")

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = [Step(NOWHERE, None)]
        self.least = 0  # steps before this one are certainly over
        self.given = ""  # where a client has read it last
        self.holder = ""  # who has it, unanswered
        self.failures_least = 0  # how often it was given back: certainly, and at most
        self.failures_most = 0

    def __repr__(self) -> str:
        past = " -> ".join(
            (step.place or "nowhere") + (f" by {step.deed}" if step.deed else "") for step in self.steps
        )
        return f"{self.name}: {past}, certain up to step {self.least}"

    @property
    def place(self) -> str:
        """Where it is if the node has done everything that it was asked for."""
        return self.steps[-1].place

    def goes(self, place: str, deed: Deed | None, promised: bool = True) -> None:
        """It was asked to go there; not `promised`: the deed may come too early to reach it."""
        self.steps.append(Step(place, deed if promised else None))
        if deed is not None and promised:
            deed.steps.append((self, len(self.steps) - 1))

    def stays(self, deed: Deed) -> None:
        """It does not go where a deed wanted it, nor on from there: that was refused."""
        at = next(at for at, step in enumerate(self.steps) if step.deed is deed)
        assert all(step.deed is None for step in self.steps[at + 1 :]), self
        del self.steps[at:]

    def comes_back(self, deed: Deed) -> None:
        """Its consumer gave it back, or went."""
        self.holder = ""
        self.failures_most += 1
        deed.failed.append(self)

    def may_be(self) -> set[str]:
        return {step.place for step in self.steps[self.least :]}

    def turned_out(self, place: str) -> Iterator[str]:
        """It was found there: what is wrong with that. From here on this is its past."""
        matching = [at for at in range(self.least, len(self.steps)) if self.steps[at].place == place]
        if not matching:
            yield f"{self._misplaced(place)}: {self!r}"
        if len(matching) == 1:
            for at, step in enumerate(self.steps):
                if at and step.deed is not None:
                    yield from _happened(step.deed, at <= matching[0], self)
        self.steps = [Step(place, None)]
        self.least = 0
        self.holder = ""

    def _misplaced(self, place: str) -> str:
        if place == NOWHERE:
            return "LOST"
        return "BACK" if any(step.place == place for step in self.steps[: self.least]) else "MISPLACED"

    def failures_were(self, count: int) -> Iterator[str]:
        """So many failures are counted for it after a restart."""
        if not self.failures_least <= count <= self.failures_most:
            expected = f"{self.failures_least} to {self.failures_most}"
            yield f"COUNT {count} instead of {expected} failed deliveries: {self!r}"
        self.failures_least = self.failures_most = count


def _happened(deed: Deed, happened: bool, history: History) -> Iterator[str]:
    if deed.happened is None:
        deed.happened = happened
    elif deed.happened is not happened:
        yield f"HALF of {deed!r} has happened: {history!r}"


def out_of_order(deeds: Iterable[Deed]) -> Iterator[str]:
    """Deeds of one connection, in order: what happened must not come after what did not."""
    missing: Deed | None = None
    for deed in deeds:
        if deed.happened is False and missing is None:
            missing = deed
        elif deed.happened and missing is not None:
            yield f"ORDER: {deed!r} has happened, but {missing!r} before it has not"
            return
