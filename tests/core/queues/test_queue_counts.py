"""A queue's counts are changed by the queue itself, through verbs: nobody else assigns them. Found in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import FOLDERS, ROOT

SEARCHED = [*FOLDERS, "examples"]
# By class, what it counts for itself and for all kinds of queues that derive from it.
OWNED = {
    "CountedQueue": {"unsettled", "unsettled_bytes", "accepted", "delivered", "delivered_settled"}
    | {"redelivered", "refused", "fetched", "fetched_settled", "fetched_none"},
    "LanedQueue": {"ready", "ready_bytes", "expiring", "position", "published"},
    "WorkQueue": {"ready", "ready_bytes", "expiring", "unsettled", "unsettled_bytes", "delivered"},
    "StreamQueue": {"ready", "ready_bytes", "published"},
}
COUNTS = frozenset().union(*OWNED.values())
NAMED = re.compile(rf"\.({'|'.join(sorted(COUNTS))})\b")
CLASS = re.compile(r"^ *class (\w+)\(([^)]*)\):", re.MULTILINE)
# Other things that are counted by some of these words, as they are called where others count for them.
OTHERS = {
    "published": {"exchange", "batch", "_traffic", "report"},
    "accepted": {"branch", "session", "_answers"},
    "delivered": {"session", "report"},
    "delivered_settled": {"session", "channel"},
    "redelivered": {"delivery", "found"},
    "refused": {"_tally"},
    "unsettled": {"attach", "listed"},
}


class Assignment:
    """One attribute that gets a value: where, of which object, in which class and function."""

    def __init__(self, path: Path, target: ast.Attribute, owner: str, function: str) -> None:
        self.path = path
        self.line = target.lineno
        self.object = ast.unparse(target.value)
        self.name = target.attr
        self.owner = owner
        self.function = function

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.object}.{self.name} in {self.owner or 'no class'}"

    @property
    def is_allowed(self) -> bool:
        if self.object != "self":
            return self.object.rpartition(".")[2] in OTHERS.get(self.name, ())
        if self.owner not in queue_kinds():
            return True  # something else that has a count by this name
        return self.name in OWNED.get(self.owner, ()) or (self.owner, self.function) == (
            "CountedQueue",
            "__init__",
        )


@cache
def texts() -> dict[Path, str]:
    return {path: path.read_text() for folder in SEARCHED for path in sorted((ROOT / folder).rglob("*.py"))}


@cache
def queue_kinds() -> set[str]:
    """The names of all classes that derive from `CountedQueue`."""
    bases = {
        name: {each.strip() for each in above.split(",")}
        for text in texts().values()
        for name, above in CLASS.findall(text)
    }
    kinds = {"CountedQueue"}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return kinds


def assignments(path: Path, text: str) -> Iterator[Assignment]:
    """Only a file that names a count is parsed: a fifth of them."""
    todo: list[tuple[ast.AST, str, str]] = [(ast.parse(text), "", "")] if NAMED.search(text) else []
    while todo:
        node, owner, function = todo.pop()
        if isinstance(node, ast.ClassDef):
            owner = node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        elif isinstance(node, ast.Attribute) and node.attr in COUNTS and not isinstance(node.ctx, ast.Load):
            yield Assignment(path, node, owner, function)
        todo += [(child, owner, function) for child in ast.iter_child_nodes(node)]


@cache
def assigned() -> list[Assignment]:
    return [each for path, text in texts().items() for each in assignments(path, text)]


def test_a_queue_alone_changes_its_counts() -> None:
    assert [str(each) for each in assigned() if not each.is_allowed] == []


def test_every_count_is_changed_by_its_owner() -> None:
    """The test above looks at something, and gives leave to nothing that needs none."""
    found = {
        (each.owner, each.name)
        for each in assigned()
        if each.object == "self" and each.function != "__init__"
    }
    assert {(owner, name) for owner, names in OWNED.items() for name in names} <= found
    assert {"WorkQueue", "StreamQueue", "LastValueQueue", "SequencedMessageGroupQueue"} <= queue_kinds()
