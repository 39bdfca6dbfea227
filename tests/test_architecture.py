"""What the pages say about the source is true: every module is on the map, and what they name exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("broker_core", "protocols", "plugins", "pipeline", "perf")
FOLDERS: Final = (*PACKAGES, "tests", "examples", "benchmarks", "scripts", "docs", "deploy")
MAP: Final = ROOT / "docs/architecture.md"
FOLLOWED: Final = sorted(ROOT.glob("docs/follow-a-message-*.md"))
PAGES: Final = [
    path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]) if path.name != "CHANGELOG.md"
]
QUOTED: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
A_FILE: Final = re.compile(r"[\w./-]+\.py")
A_FOLDER: Final = re.compile(rf"(?:{'|'.join(FOLDERS)})/(?:[\w.-]+/)*")
A_MODULE: Final = re.compile(
    r"broker_core(?:\.\w+)+"
)  # `protocols.…` and `plugins.…` are keys of the configuration, too
AN_IMPORT: Final = re.compile(rf"^from ((?:{'|'.join(PACKAGES)})[.\w]*) import \(?([\w, ]+)", re.MULTILINE)
READERS_OWN: Final[dict[str, set[str]]] = {  # by page: files that its readers write themselves
    "docs/tutorial.md": {"publish.py", "consume.py", "plugins/nearest.py", "test_orders.py"},
}


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def rows(page: Path, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row in the tables of a section, without heads."""
    section = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(heading)]
    for table in re.findall(r"^\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE):
        for line in table.splitlines():
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the functions, classes, methods (`Class.method`) and names at the top of a module."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{each.name}" for each in methods)
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(each.id for each in targets if isinstance(each, ast.Name))
        if isinstance(node, ast.ImportFrom):
            names.update(each.asname or each.name for each in node.names)
    return frozenset(names)


def unknown(text: str, is_name: re.Pattern[str]) -> list[str]:
    """Return the files that a text names and that do not exist, and the names that are not in the file before them."""
    wrong, file = [], ""
    for quoted in QUOTED.findall(text):
        if A_FILE.fullmatch(quoted) and ("/" in quoted or (ROOT / quoted).exists()):
            file = quoted if (ROOT / quoted).exists() else ""
            if not file:
                wrong.append(quoted)
        elif is_name.fullmatch(quoted) and (not file or quoted.removesuffix("()") not in defined_in(file)):
            wrong.append(f"{file}: {quoted}")
    return wrong


def test_every_module_is_on_the_map_in_its_room() -> None:
    said: dict[str, list[str]] = defaultdict(list)
    room = ""
    for first, modules, _ in rows(MAP, "What is where"):
        room = first.strip("`") or room
        said[room] += QUOTED.findall(modules)
    there: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "__init__.py":
                there[f"{path.parent.relative_to(ROOT)}/"].append(path.name)
    assert {room: sorted(names) for room, names in said.items()} == {
        room: sorted(names) for room, names in there.items()
    }


def test_the_index_leads_to_what_there_is() -> None:
    found = list(rows(MAP, "Where is ..."))
    assert len(found) >= 40
    words = [word for word, _ in found]
    assert len(set(words)) == len(words)
    for word, places in found:
        assert A_FILE.fullmatch(QUOTED.findall(places)[0]), word
        assert unknown(places, re.compile(r"\w+(?:\.\w+)?")) == [], word


@pytest.mark.parametrize("page", FOLLOWED, ids=ids)
def test_a_message_is_followed_through_what_there_is(page: Path) -> None:
    text = page.read_text()
    assert unknown(text, re.compile(r"[A-Za-z_]\w*(?:\.\w+)?\(\)")) == []
    assert len(re.findall(r"`[\w.]+\(\)`", text)) > 30


def test_there_is_a_message_to_follow_in_each_protocol() -> None:
    assert [page.stem for page in FOLLOWED] == [
        f"follow-a-message-{version}" for version in ("0-10", "0-9-1", "1-0")
    ]


@cache
def tree() -> frozenset[str]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return frozenset(f"/{path.relative_to(ROOT)}" for path in [*inside, *ROOT.glob("*.py")])


def files_of(name: str) -> int:
    """Return how many files of the tree have this name, or a path that ends so."""
    return (ROOT / name).exists() or sum(path.endswith(f"/{name}") for path in tree())


def is_known(module: str) -> bool:
    """Return whether a dotted name leads to a package, a module, or something at the top of one."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        path = "/".join(parts[:size])
        if (ROOT / path).is_dir():
            return size == len(parts) or parts[size] in defined_in(f"{path}/__init__.py")
        if (ROOT / f"{path}.py").exists():
            return size == len(parts) or parts[size] in defined_in(f"{path}.py")
    return False


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    quoted = set(QUOTED.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))
    quoted -= READERS_OWN.get(ids(page), set())
    files = {name for name in quoted if A_FILE.fullmatch(name)}
    if page != MAP:  # whose tables say which room they mean
        assert [name for name in files if files_of(name) != 1] == []
    assert [name for name in quoted if A_FOLDER.fullmatch(name) and not (ROOT / name).is_dir()] == []
    assert [name for name in quoted if A_MODULE.fullmatch(name) and not is_known(name)] == []
    imported = [
        f"{module}.{name.split()[0]}"
        for module, names in AN_IMPORT.findall(text)
        for name in names.split(",")
    ]
    assert [name for name in imported if not is_known(name)] == []


def test_a_package_has_one_class_of_each_name() -> None:
    """A search for a name finds one thing. Each protocol counts as a package."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT)
            home = "/".join(place.parts[:2]) if package == "protocols" else package
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    found[home, node.name].append(str(place))
    assert {key: places for key, places in found.items() if len(places) > 1} == {}


def test_the_root_of_the_core_stays_small() -> None:
    """What belongs to a room goes there; the root has what every room stands on."""
    assert len(list((ROOT / "broker_core").glob("[!_]*.py"))) <= 25
