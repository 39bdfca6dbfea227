"""Every statement about what an AMQP client, of 0-9-1, 1.0 or 0-10, must observe is settled by a test that names it.

The statements stand in docs/statements.md: S are the core, X came later. A test names one in its own name
(`test_s039_...`) or in its docstring (`S039`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final

import attrs

from leveret.config.compat import Compat
from tests.sources import FOLDERS, ROOT, sources

NAMED: Final = re.compile(r"(?<![a-z0-9])([sx][0-9]{3})(?![0-9])", re.IGNORECASE)
ON_PAGE: Final = re.compile(r'^\* <a id="([sx][0-9]{3})"></a>\*\*([SX][0-9]{3})\*\* \S', re.MULTILINE)
PAGE: Final = (ROOT / "docs/statements.md").read_text()
STATED: Final = [number for _, number in ON_PAGE.findall(PAGE)]


def named_in(source: str) -> set[str]:
    """Return the statements that the tests of a module name."""
    tests = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    texts = (text for test in tests for text in (test.name.replace("_", " "), ast.get_docstring(test) or ""))
    return {number.upper() for text in texts for number in NAMED.findall(text)}


def test_a_name_or_a_docstring_names_statements() -> None:
    source = '''
def test_s001_x002_something(): ...
async def test_other():
    """As S003 says, but not as in S0045 or as S9."""
def helper_s006(): ...
'''
    assert named_in(source) == {"S001", "X002", "S003"}


def test_the_page_has_each_number_once_behind_its_anchor_and_none_is_left_out() -> None:
    anchors = [anchor.upper() for anchor, _ in ON_PAGE.findall(PAGE)]
    assert anchors == STATED == re.findall(r"^\* .*\*\*([SX]\d+)\*\*", PAGE, re.MULTILINE)
    last = Counter(number[0] for number in STATED)
    assert last["S"] >= 243
    assert last["X"] >= 92
    assert sorted(STATED) == [f"{kind}{count:03}" for kind in "SX" for count in range(1, last[kind] + 1)]


def test_every_statement_is_named_by_a_test() -> None:
    named = set().union(*(named_in(path.read_text()) for path in sources() if path.match("test_*.py")))
    missing = [number for number in STATED if number not in named]
    assert not missing, f"no test names {', '.join(missing)}"
    assert named - set(STATED) == set()


def test_the_code_names_no_other_statements() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    named = {number for path in files for number in re.findall(r"\b([SX][0-9]{3})\b", path.read_text())}
    assert named - set(STATED) == set()


def test_what_decides_a_statement_is_a_row_of_compat() -> None:
    decided = re.findall(r"Decided\s+by\s+((?:`\w+`(?:\s+and\s+)?)+)", PAGE)
    rows = {row for each in decided for row in re.findall(r"`(\w+)`", each)}
    assert rows == {field.name for field in attrs.fields(Compat)}
