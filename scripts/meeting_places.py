"""Write the table of meeting places in docs/guests.md: what each guest does at each event, and the test that shows it.

    python scripts/meeting_places.py

Rows are the guests' own docstrings; tests, and reasons for doing nothing, are in tests/meeting_places.toml.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.sources import FOLDERS  # noqa: E402

PAGE: Final = ROOT / "docs/guests.md"
BEGIN: Final = "<!-- The meeting places begin: `make docs` writes them. -->\n"
END: Final = "<!-- The meeting places end. -->\n"
CONTRACT: Final = ROOT / "broker_core/guests.py"
BASES: Final = frozenset({"Guest", "Connecting"})
REST: Final = "otherwise"
MEETINGS: Final[dict[str, dict[str, str]]] = tomllib.loads((ROOT / "tests/meeting_places.toml").read_text())
HELPERS: Final = frozenset({"all_metrics", "__init__"})


def events() -> list[str]:
    """Return the methods of the contract, in order."""
    [guest] = [
        node
        for node in ast.parse(CONTRACT.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Guest"
    ]
    return [
        each.name for each in guest.body if isinstance(each, ast.FunctionDef) and each.name not in HELPERS
    ]


def guests() -> Iterator[tuple[str, Path, dict[str, str]]]:
    """Yield each guest of the product, its module, and what it says of the events that it hears of."""
    known = events()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if not isinstance(node, ast.ClassDef) or node.name in {*BASES, "ForeignGuest"}:
                    continue
                if BASES & {ast.unparse(base) for base in node.bases}:
                    heard = {
                        each.name: (ast.get_docstring(each) or "").partition("\n")[0]
                        for each in node.body
                        if isinstance(each, ast.FunctionDef) and each.name in known
                    }
                    yield node.name, path.relative_to(ROOT), heard


def lines() -> Iterator[str]:
    yield "| guest | event | what it does | shown by |"
    yield "|---|---|---|---|"
    for name, _, heard in sorted(guests(), key=lambda guest: str(guest[1])):
        places = MEETINGS.get(name, {})
        for event in events():
            if event in heard:
                test = places.get(event, "").partition("::")[2]
                yield f"| {name} | `{event}` | {heard[event]} | `{test}` |"
            elif event in places:
                yield f"| {name} | `{event}` | nothing: {places[event]} | |"
        if REST in places:
            yield f"| {name} | any other | nothing: {places[REST]} | |"


def page() -> str:
    """Return the page with the table as it is to be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n".join(lines()) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
