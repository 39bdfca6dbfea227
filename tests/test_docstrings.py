"""Docstrings are sentences about the thing that they document, in the words of the field (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.sources import FOLDERS, ROOT

MODULES: Final = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
# A clause is no sentence: "Whether it is empty" documents nothing that does or is something.
A_CLAUSE: Final = re.compile(r"(?:What|Who|Whose|Whom|Whether|Where|How|When|Which|Why|Until|Since)\b")
ALONE: Final = re.compile(r"Raises\b[^.]*\.?")
NOT_FOR_PROGRAMS: Final = re.compile(
    r"\b(?:he|him|his|himself|somebody|nobody|everybody|anybody)\b", re.IGNORECASE
)
CODE: Final = re.compile(r"`[^`]*`")


def documented(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of everything in a module that has one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield getattr(node, "name", "the module"), text


def faults(text: str) -> list[str]:
    first = CODE.sub("", text.partition("\n\n")[0])
    found = []
    if A_CLAUSE.match(text):
        found.append("it begins with a clause")
    if ALONE.fullmatch(text):
        found.append("it says what is raised, and not what is done")
    if word := NOT_FOR_PROGRAMS.search(first):
        found.append(f"it says '{word.group()}'")
    return found


@pytest.mark.parametrize(
    "text",
    ["Whether it is empty.", "Raises NotFound.", "Tell the client that he may go on.", "What nobody needs."],
)
def test_a_docstring_that_is_none_is_found(text: str) -> None:
    assert faults(text)


def test_docstrings_are_sentences_in_the_words_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}: {fault}: {text[:60]!r}"
        for path in MODULES
        for name, text in documented(ast.parse(path.read_text()))
        for fault in faults(text)
    ]
    assert found == []
