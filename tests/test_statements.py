"""Every statement about what an AMQP client, of 0-9-1, 1.0 or 0-10, must observe is settled by a test that names it.

The numbers are those of the project's acceptance list: S are its core, X its extended statements. A test names one in
its own name (`test_s039_...`) or in its docstring (`S039`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.sources import sources

SECTIONS: Final = {  # core and extended statements, first to last
    "connection and framing": ("S001-S026", "X001-X009"),
    "channel": ("S027-S033", "X010-X011"),
    "exchanges": ("S034-S059", "X012-X016"),
    "queues": ("S060-S083", "X017-X023"),
    "publish, deliver, acknowledge": ("S084-S116", "X024-X028"),
    "confirms and transactions": ("S117-S126", "X029-X029"),
    "dead lettering": ("X030-X040",),
    "alternate exchanges": ("S127-S152", "X041-X043"),
    "flow control and alarms": ("S153-S163", "X044-X045"),
    "1.0: connection, session, link": ("S164-S182", "X046-X057"),
    "1.0: addresses of version 2": ("S183-S212", "X058-X063"),
    "1.0: addresses of version 1": ("S213-S225", "X064-X065"),
    "1.0: outcomes and messages": ("S226-S232", "X066-X073"),
    "1.0: management": ("X074-X088",),
    "0-10: sessions and execution": ("S233-S241", "X089-X090", "X092-X092"),
}
NAMED: Final = re.compile(r"(?<![a-z0-9])([sx][0-9]{3})(?![0-9])", re.IGNORECASE)


def required() -> Iterator[str]:
    for spans in SECTIONS.values():
        for span in spans:
            first, last = span.split("-")
            yield from (f"{first[0]}{number:03}" for number in range(int(first[1:]), int(last[1:]) + 1))


def named_in(source: str) -> set[str]:
    """The statements named by the tests of a module."""
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


def test_every_statement_is_named_by_a_test() -> None:
    tests = [path for path in sources() if path.match("test_*.py")]
    named = set().union(*(named_in(path.read_text()) for path in tests))
    missing = [number for number in required() if number not in named]
    assert not missing, f"no test names {', '.join(missing)}"
