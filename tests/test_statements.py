"""Every statement about what a client of AMQP or MQTT must observe is settled by a test that names it.

The statements stand in docs/statements.md: S are the core, X came later, M are those of MQTT. A test names one in its
own name (`test_s039_...`) or in its docstring (`S039`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final

import attrs

from leveret.config.compat import Compat
from tests.sources import FOLDERS, ROOT, sources, statements

NAMED: Final = re.compile(r"(?<![a-z0-9])([sxm][0-9]{3})(?![0-9])", re.IGNORECASE)
ON_PAGE: Final = re.compile(r'^\* <a id="([sxm][0-9]{3})"></a>\*\*([SXM][0-9]{3})\*\* \S', re.MULTILINE)
PAGE: Final = (ROOT / "docs/statements.md").read_text()
STATED: Final = [number for _, number in ON_PAGE.findall(PAGE)]


def named_in(source: str) -> set[str]:
    """Return the statements that the tests of a module name."""
    if not NAMED.search(source):
        return set()
    tests = [
        node
        for node in statements(ast.parse(source).body)
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
    assert anchors == STATED == re.findall(r"^\* .*\*\*([SXM]\d+)\*\*", PAGE, re.MULTILINE)
    last = Counter(number[0] for number in STATED)
    assert last["S"] >= 243
    assert last["X"] >= 92
    assert last["M"] >= 116
    assert sorted(STATED) == [f"{kind}{count:03}" for kind in "MSX" for count in range(1, last[kind] + 1)]


def test_every_statement_is_named_by_a_test() -> None:
    named = set().union(*(named_in(path.read_text()) for path in sources() if path.match("test_*.py")))
    missing = [number for number in STATED if number not in named]
    assert not missing, f"no test names {', '.join(missing)}"
    assert named - set(STATED) == set()


def test_the_code_names_no_other_statements() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    named = {number for path in files for number in re.findall(r"\b([SXM][0-9]{3})\b", path.read_text())}
    assert named - set(STATED) == set()


# The normative statements of MQTT: how many each section has. 2.2.1-1 of version 5 does not exist.
MQTT_5: Final = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2,
    "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2,
    "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
MQTT_311: Final = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.3.1": 1, "4.3.2": 2,
    "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6, "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2, "6.0.0": 4,
    "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
}  # fmt: skip


def test_every_normative_statement_of_mqtt_has_one_place_on_the_page() -> None:
    brackets = re.findall(r"\[([^\]`]*\d+\.\d+\.\d+-\d+)\]", PAGE[PAGE.index("## MQTT: packets") :])
    clients = PAGE[PAGE.index("What only a client has to do") :].split("in 3.1.1")
    parts = [bracket.partition("3.1.1:") for bracket in brackets]
    for texts, sections, absent in (
        ([before for before, _, _ in parts] + clients[:1], MQTT_5, {"2.2.1-1"}),
        ([after for _, _, after in parts] + clients[1:], MQTT_311, set()),
    ):
        found = Counter(number for text in texts for number in re.findall(r"\d+\.\d+\.\d+-\d+", text))
        all_of_them = {f"{section}-{at}" for section, count in sections.items() for at in range(1, count + 1)}
        assert found == Counter(all_of_them - absent)


def test_what_decides_a_statement_is_a_row_of_compat() -> None:
    decided = re.findall(r"Decided\s+by\s+((?:`\w+`(?:\s+and\s+)?)+)", PAGE)
    rows = {row for each in decided for row in re.findall(r"`(\w+)`", each)}
    assert rows == {field.name for field in attrs.fields(Compat)}
