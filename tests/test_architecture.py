"""What the pages say about the source is true: every module is on the map, and what they name exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import leveret
from leveret.observability.log_levels import CATEGORIES
from leveret.server.plugin_loader import GROUPS
from tests.sources import FOLDERS, PACKAGES, ROOT, module_of, statements

ALL_FOLDERS: Final = (*FOLDERS, "tests", "examples", "benchmarks", "scripts", "docs", "deploy")
MAP: Final = ROOT / "docs/architecture.md"
FOLLOWED: Final = ROOT / "docs/follow-a-message.md"
PAGES: Final = [
    path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]) if path.name != "CHANGELOG.md"
]
QUOTED: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
A_FILE: Final = re.compile(r"[\w./-]+\.py")
A_FOLDER: Final = re.compile(rf"(?:{'|'.join(ALL_FOLDERS)})/(?:[\w.-]+/)*")
A_MODULE: Final = re.compile(r"leveret(?:\.\w+)+")
# Loggers, groups of entry points and files are called like modules.
NO_MODULES: Final = frozenset(
    f"leveret.{name}" for name in (*CATEGORIES, "commands", "redelivered", "service", "socket", "toml", "zip")
) | frozenset(GROUPS)
A_CLASS: Final = re.compile(r"^class (\w+)", re.MULTILINE)  # of a module
A_FOLDERS_IMPORT: Final = re.compile(rf"\b(?:from|import)\b[^\n]*(?<![.\w])(?:{'|'.join(FOLDERS)})\b")
AN_IMPORT: Final = re.compile(r"^from (leveret[.\w]*) import \(?([\w, ]+)", re.MULTILINE)
MODULES: Final = {  # by the names by which they are imported
    module_of(str(path.relative_to(ROOT))): path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
}
CIRCLE_MAX: Final = 16  # modules; whoever breaks the circle up lowers it
FACES: Final = {  # the names that plug-ins import, and nothing else
    ROOT / "broker_core/exchange.py",
    ROOT / "broker_core/interceptor.py",
}
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


def test_the_index_leads_to_what_there_is() -> None:
    found = list(rows(MAP, "Where is ..."))
    assert len(found) >= 40
    words = [word for word, _ in found]
    assert len(set(words)) == len(words)
    for word, places in found:
        assert A_FILE.fullmatch(QUOTED.findall(places)[0]), word
        assert unknown(places, re.compile(r"\w+(?:\.\w+)?")) == [], word


def test_a_message_is_followed_through_what_there_is() -> None:
    text = FOLLOWED.read_text()
    assert unknown(text, re.compile(r"[A-Za-z_]\w*(?:\.\w+)?\(\)")) == []
    assert len(re.findall(r"`[\w.]+\(\)`", text)) > 150


@pytest.mark.parametrize(
    "protocol", sorted(path.parts[-3] for path in ROOT.glob("protocols/*/machine/connection.py"))
)
def test_there_is_a_message_to_follow_in_each_protocol(protocol: str) -> None:
    named = QUOTED.findall(FOLLOWED.read_text())
    for floor in ("machine", "broker"):
        assert len({each for each in named if each.startswith(f"protocols/{protocol}/{floor}/")}) >= 2


@cache
def tree() -> frozenset[str]:
    inside = [path for folder in ALL_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return frozenset(f"/{path.relative_to(ROOT)}" for path in [*inside, *ROOT.glob("*.py")])


def files_of(name: str) -> int:
    """Return how many files of the tree have this name, or a path that ends so."""
    return (ROOT / name).exists() or sum(path.endswith(f"/{name}") for path in tree())


def is_known(module: str) -> bool:
    """Return whether a dotted name leads to a package, a module, or something at the top of one."""
    if module in MODULES:
        return True
    package, _, name = module.rpartition(".")
    if package == "leveret" and name in leveret.__all__:
        return True
    return package in MODULES and name in defined_in(str(MODULES[package].relative_to(ROOT)))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    quoted = set(QUOTED.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))
    quoted -= READERS_OWN.get(ids(page), set())
    files = {name for name in quoted if A_FILE.fullmatch(name)}
    if page != MAP:  # whose tables say which room they mean
        assert [name for name in files if files_of(name) != 1] == []
    assert [name for name in quoted if A_FOLDER.fullmatch(name) and not (ROOT / name).is_dir()] == []
    assert [
        name for name in quoted if A_MODULE.fullmatch(name) and name not in NO_MODULES and not is_known(name)
    ] == []
    imported = [
        f"{module}.{name.split()[0]}"
        for module, names in AN_IMPORT.findall(text)
        for name in names.split(",")
    ]
    assert [name for name in imported if not is_known(name)] == []


def test_a_package_has_one_class_of_each_name() -> None:
    """A search for a name finds one thing. Each protocol counts as a package."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT)
            home = "/".join(place.parts[:2]) if folder == "protocols" else folder
            for name in A_CLASS.findall(path.read_text()):
                found[home, name].append(str(place))
    assert {key: places for key, places in found.items() if len(places) > 1} == {}


def test_the_root_of_the_core_stays_small() -> None:
    """What belongs to a room goes there; the root has what every room stands on."""
    assert len(list((ROOT / "broker_core").glob("[!_]*.py"))) <= 25


def test_the_folders_are_one_package_and_no_code_says_otherwise() -> None:
    """From the root of the repository `import protocols` would find a second copy of each module."""
    assert {package.partition(".")[0] for package in PACKAGES.values()} == {"leveret"}
    places = [
        path
        for folder in ALL_FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "node_modules" not in path.parts and A_FOLDERS_IMPORT.search(path.read_text())
    ]
    assert Path(__file__) in places  # it speaks of such an import
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in places
        for module in modules_in(path)
        if module.partition(".")[0] in FOLDERS
    ]
    assert wrong == []


@cache  # a test for each feature asks for all of them
def modules_in(path: Path) -> tuple[str, ...]:
    """Return the modules that a file imports."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in imports_in(path):
        if isinstance(node, ast.ImportFrom):
            yield from () if node.level else (node.module or "",)
        else:
            yield from (each.name for each in node.names)


@cache
def imports_in(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    found = statements(ast.parse(path.read_text()).body)
    return tuple(node for node in found if isinstance(node, ast.Import | ast.ImportFrom))


def imports_of(path: Path) -> set[str]:
    """Return the modules of ours that a file imports, for types only as well."""
    named = [
        (f"{node.module}", f"{node.module}.{each.name}")
        for node in imports_in(path)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    ]
    return {whole if whole in MODULES else module for module, whole in named} & MODULES.keys()


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the largest sets of modules of which each leads to each (R. Tarjan, 1972; with a stack of its own)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: dict[str, None] = {}  # those whose set is not known yet, in the order in which they were found
    found = []
    for start in graph:
        walk = [] if start in order else [(start, iter(graph[start]))]
        order.setdefault(start, len(order))
        if walk:
            lowest[start], path[start] = order[start], None
        while walk:
            module, following = walk[-1]
            for each in following:
                if each not in order:
                    order[each] = lowest[each] = len(order)
                    path[each] = None
                    walk.append((each, iter(graph[each])))
                    break
                if each in path:
                    lowest[module] = min(lowest[module], order[each])
            else:
                walk.pop()
                if walk:
                    lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[module])
                if lowest[module] == order[module]:
                    members = [name for name in path if order[name] >= order[module]]
                    found.append(set(members))
                    for name in members:
                        del path[name]
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"], ["f"]]


def test_the_largest_circle_of_modules_does_not_grow() -> None:
    """Imports for types count: whoever changes one of these modules has to know all the others."""
    graph = {name: imports_of(path) for name, path in MODULES.items()}
    assert max(map(len, circles(graph))) <= CIRCLE_MAX


def words(name: str) -> list[str]:
    """Return the words of a class or a file, in lower case and without a plural's s, and no version of AMQP."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return [part.lower().removesuffix("s") for part in parts]


def main_class(tree: ast.Module) -> str | None:
    """Return the public class that makes up more than half of what a module defines, if there is one."""
    sizes = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    largest = max(sizes, key=lambda name: sizes[name], default="")
    return largest if 2 * sizes.get(largest, 0) > sum(sizes.values()) and largest[0].isupper() else None


def bears(path: Path, name: str) -> bool:
    """Return whether a class has all words of a file's name, or that and its folder's all words of the class."""
    file = path.stem.replace("_", "")
    if all(word in name.lower() for word in words(path.stem)):
        return True
    return any(word in file for word in words(name)) and all(
        word in f"{path.parent.name} {file}" for word in words(name)
    )


def test_a_class_that_makes_up_a_module_is_called_as_the_file() -> None:
    """Another public class of the module may bear the name, of which the largest is a part. Contracts have none."""
    strange = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("[!_]*.py")):
            if not A_CLASS.search(text := path.read_text()):
                continue
            tree = ast.parse(text)
            largest = main_class(tree)
            names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
            if largest and path.stem != "contract" and not any(bears(path, name) for name in names):
                strange.append(f"{path.relative_to(ROOT)}: {largest}")
    assert strange == []


def test_a_folder_has_several_modules_and_no_module_has_its_name_beside_it() -> None:
    for package in PACKAGES:
        for folder in (
            path for path in (ROOT / package).rglob("*") if path.is_dir() and path.name != "__pycache__"
        ):
            inside = [path for path in folder.iterdir() if path.name not in ("__init__.py", "__pycache__")]
            assert len(inside) != 1, folder
            for twin in (
                folder.with_name(f"{name}.py") for name in (folder.name, folder.name.removesuffix("s"))
            ):
                assert not twin.exists() or twin in FACES, folder


SHARED: Final = frozenset({"parameters", "transfers"})  # no features: several of them stand on these
FEATURES: Final = sorted(path.parent.name for path in (ROOT / "features").glob("*/__init__.py"))


@pytest.mark.parametrize("feature", [each for each in FEATURES if each not in SHARED])
def test_few_files_outside_its_folder_know_a_feature(feature: str) -> None:
    """A feature is one folder and a contract; five files at most name it besides, such as its pages in the API."""
    package = f"leveret.features.{feature}"
    knowing = {
        name
        for name, path in MODULES.items()
        if name != package and not name.startswith(f"{package}.")
        for module in modules_in(path)
        if module == package or module.startswith(f"{package}.")
    }
    assert len(knowing) <= 5, sorted(knowing)


def test_a_class_has_at_most_forty_methods() -> None:
    """A class that has more comes apart along its subjects."""
    sizes = {
        f"{ids(path)}: {node.name}": sum(
            isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body
        )
        for path in sorted(MODULES.values())
        if (text := path.read_text()).count("def ") > 30  # less than that in all of its classes
        for node in statements(ast.parse(text).body)
        if isinstance(node, ast.ClassDef)
    }
    assert max(sizes.values()) > 30  # there are some
    assert {name: size for name, size in sizes.items() if size > 40} == {}


FOLDED: Final = re.compile(r"^ *\w[\w.]*(?:: [^=\n]+)? = \(\n +[^#\n]+  # [^\n]+\n *\)\n", re.MULTILINE)


def test_a_long_comment_stands_above_its_value() -> None:
    """Else the formatter folds a value over three lines to make room for it."""
    folded = {ids(path): FOLDED.findall(path.read_text()) for path in sorted(MODULES.values())}
    assert {path: found for path, found in folded.items() if found} == {}
    assert FOLDED.search("name = (\n    value  # a comment\n)\n")


GUESTS: Final = re.compile(
    r"shovel|federat|\brecording|\bleases?\b|staging|\bxa\b|dtx|unsettled.map", re.IGNORECASE
)
NAME_TABLES: Final = (  # what the core declares by name: settings, arguments, kinds in the store, loggers
    "broker_core/arguments/",
    "broker_core/config/",
    "broker_core/catalogue.py",
    "broker_core/observability/log_levels.py",
)
CORE: Final = [
    path for path in sorted((ROOT / "broker_core").rglob("*.py")) if not ids(path).startswith(NAME_TABLES)
]


def test_the_core_does_not_speak_of_its_guests() -> None:
    lines = [(ids(path), line) for path in CORE for line in path.read_text().splitlines()]
    assert len(lines) > 10_000
    assert [(path, line) for path, line in lines if GUESTS.search(line)] == []
