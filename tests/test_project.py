"""What the repository says about itself is true: pages, commands, links, imports."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import leveret
from leveret.arguments import docs
from leveret.config.docs import documentation
from leveret.protocols.http import docs as routes
from leveret.server import cli
from leveret.version import VERSION
from tests.sources import ROOT, sources

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DEBIAN_12 = "3.11.2"
TARGETS = set(re.findall(r"^([a-z-]+):(?! [A-Z])", (ROOT / "Makefile").read_text(), re.MULTILINE))


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines() if line]


def test_the_configuration_page_is_fresh():
    assert (ROOT / "docs/configuration.md").read_text() == documentation(), "run `make docs`"


def test_the_map_of_the_source_is_fresh():
    made = runpy.run_path(str(ROOT / "scripts/map.py"))
    text = made["PAGE"].read_text()
    assert text == made["written"](text), "run `make docs`"


def test_the_api_reference_is_fresh():
    """It is made from the source: compiled classes do not tell their signatures."""
    code = "import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['page']())"
    command = [sys.executable, "-c", code, str(ROOT / "scripts/api_reference.py")]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    made = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert (ROOT / "docs/api-reference.md").read_text() == made.stdout, "run `make docs`"


def test_the_changelog_has_the_version_and_its_date():
    found = re.findall(
        r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert found[0] == ("Unreleased", "")
    assert (found[1][0], bool(found[1][1])) == (VERSION, True)


def test_the_page_of_arguments_is_fresh():
    assert (ROOT / "docs/arguments.md").read_text() == docs.documentation(ROOT / "pyproject.toml"), (
        "run `make docs`"
    )


def test_the_page_of_routes_is_fresh():
    fresh = (ROOT / "docs/http.md").read_text() == routes.documentation()
    assert fresh, "run `make docs`, or python -m leveret.protocols.http.docs > docs/http.md"


def test_every_page_has_one_place_in_the_navigation_and_is_named_in_the_index():
    """What is new goes into `zensical.toml`, where readers will look for it, and into docs/index.md."""
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = [name for name in leaves(navigation) if not name.startswith(("files/", "project/"))]
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    decisions = {page for page in pages if page.startswith("decisions/")}
    assert sorted(listed) == sorted(pages - decisions | {"decisions/index.md"})
    index = (ROOT / "docs/index.md").read_text()
    assert [page for page in sorted(pages - decisions - {"index.md"}) if f"]({page})" not in index] == []


def leaves(navigation: object) -> Iterator[str]:
    """Yield the pages in a part of the navigation."""
    if isinstance(navigation, str):
        yield navigation
        return
    assert isinstance(navigation, list | dict)
    for each in navigation.values() if isinstance(navigation, dict) else navigation:
        yield from leaves(each)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_on_a_page_exists(page: Path):
    for command, *arguments in commands(page):
        if command == "make":
            assert arguments[0] in TARGETS
        elif command == "leveret":
            cli.parser({}).parse_args(arguments)


def test_commands_for_people_who_know_rabbitmq_can_be_typed():
    named = re.findall(r"`leveret ([^`]+)`", (ROOT / "docs/coming-from-rabbitmq.md").read_text())
    assert len(named) > 40
    for command in named:
        cli.parser({}).parse_args(shlex.split(command))


def test_the_page_for_people_who_know_rabbitmq_denies_nothing_that_is_there():
    there = (ROOT / "docs/compatibility.md").read_text().partition("has and Leveret has not")[2]
    assert "management API" not in there
    assert "local-random" not in there


def test_the_readme_shows_how_to_start():
    shown = [" ".join(command) for command in commands(ROOT / "README.md")]
    assert shown[2] == "make run"
    assert "leveret serve" in shown


def test_every_target_is_listed_by_make_help():
    help_text = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  make ([a-z-]+)", help_text.stdout, re.MULTILINE)) == TARGETS


def test_the_build_server_runs_every_test():
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().rstrip().endswith("\nmake test\nexec make rest")


def test_the_version_is_in_the_form_of_semantic_versioning():
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


def test_what_is_pinned_is_what_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {normal(re.split(r"[<>=\[]", each)[0]) for each in asked}
    pinned = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names <= pinned


def normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


# Marks of unfinished work, and folders of somebody's own machine. Written so that this page is none itself.
FORBIDDEN = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b|(?<![\w.])/(?:root|hom[e]|wor[k])/")
TEXT = {".py", ".md", ".toml", ".sh", ".js", ".json", ".yaml", ".css", ".html", ".c", ".txt", ""}


def test_what_is_pinned_can_be_installed_with_the_python_of_debian_12():
    """Else that takes other versions, of everything. What is not installed here cannot be asked."""
    names = {
        line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    refusing = {}
    for name in names:
        with suppress(PackageNotFoundError):
            needed = distribution(name).metadata["Requires-Python"]
            if needed and not SpecifierSet(needed).contains(DEBIAN_12):
                refusing[name] = needed
    assert refusing == {}


def test_nothing_unfinished_or_private_is_in_the_sources():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


@pytest.mark.system
def test_the_imports_keep_to_the_layout():
    """One way between the wings, for instance (`[tool.importlinter]` in pyproject.toml)."""
    subprocess.run([sys.executable, "setup.py", "-q", "link"], cwd=ROOT, capture_output=True, check=True)
    linter = Path(sys.executable).with_name("lint-imports")
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "build/linked")}
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


ALIKE = ("durable", "features", "perf", "pipeline", "server", "testing", "ui")
OWN = {
    "plugins/__init__.py": "",
    "plugins/nearest.py": """
from leveret.exchange import ExchangeType

class Nearest(ExchangeType):
    name = "x-nearest"

    def route(self, message):
        return self.exchange.destinations[:1]
""",
    "protocols/__init__.py": "WORDS = ['carrot']\n",
    **dict.fromkeys([f"{name}.py" for name in ALIKE], "WHOSE = 'mine'\n"),
    "tests/__init__.py": "",
    "tests/names.py": "SHOP = 'shop'\n",
    "tests/test_shop.py": """
import durable, features, perf, pipeline, server, testing, ui
import leveret.pipeline, leveret.server.cli
from leveret import ThreadedNode, embedded
from plugins.nearest import Nearest
from protocols import WORDS
from tests.names import SHOP

def test_what_is_mine_is_imported():
    assert {each.WHOSE for each in (durable, features, perf, pipeline, server, testing, ui)} == {"mine"}
    assert WORDS == ["carrot"]
    assert leveret.pipeline is not pipeline

def test_a_broker_is_there(leveret_broker):
    assert leveret_broker.url.startswith("amqp://")
    assert leveret_broker.virtual_host != SHOP

def test_a_node_starts_and_has_my_plugin():
    with ThreadedNode(embedded({"plugins": {"folders": ["plugins"]}})) as node:
        assert node.port
        assert Nearest.name in node.node.broker.exchange_types
""",
}  # fmt: skip


@pytest.mark.system
def test_a_project_may_call_its_own_modules_as_ours_are_called(tmp_path: Path):
    """Of ours, one name is installed. What is imported is the project's, and not a folder of this repository."""
    for name, text in OWN.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    package = Path(leveret.__file__).parent
    if package.name == "leveret":  # compiled, not installed
        environ["PYTHONPATH"] = str(package.parent)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
