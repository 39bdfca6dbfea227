"""How the code was built is told truly, and where the tests are said to run compiled, they do.

`make test-compiled` sets LEVERET_TESTED, and puts build/compiled first on the path, for child processes too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import trio

from leveret.config.config import parse
from leveret.server import cli
from leveret.server.node.assembly import welcome
from leveret.server.node.build_info import COMPILED, FOR_ANOTHER, FROM_SOURCE, NOTE, Build, built
from leveret.server.node.node import Node
from leveret.version import VERSION
from tests.sources import FOLDERS, module_of

ROOT = Path(__file__).parents[1]
LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["leveret"]["compiled"]
MODULES = [module_of(each) for each in LISTED]
TESTED = os.environ.get("LEVERET_TESTED")
compiled_only = pytest.mark.skipif(TESTED != "compiled", reason="runs with `make test-compiled`")
SUFFIX = EXTENSION_SUFFIXES[0]
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Something installed: the note that was written, and the modules that are compiled in it."""

    def make(how: str, modules: list[str], compiled: list[str], suffix: str = SUFFIX) -> Path:
        folder = tmp_path / "leveret"
        folder.mkdir()
        (folder / NOTE).write_text("\n".join([how, *modules, ""]))
        for module in modules:
            path = tmp_path.joinpath(*module.split("."))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".py").touch()
            if module in compiled:
                path.with_name(path.name + suffix).touch()
        return folder

    return make


TWO = ["leveret.queues.queue", "leveret.protocols.amqp091.codec.wire"]


def test_a_build_with_all_its_modules_is_compiled(install: Install):
    found = built(install(COMPILED, TWO, TWO))
    assert found == Build(2, 2)
    assert found.is_compiled
    assert str(found) == "compiled"


def test_a_plain_build_tells_why(install: Install):
    found = built(install("there was no C compiler when it was built", TWO, []))
    assert not found.is_compiled
    assert str(found) == "plain Python, several times slower: there was no C compiler when it was built"


def test_modules_for_another_python_do_not_count(install: Install):
    found = built(install(COMPILED, TWO, TWO, ".cpython-38-x86_64-linux-gnu.so"))
    assert (found.compiled, found.reason) == (0, FOR_ANOTHER)


def test_a_module_that_is_gone_is_missed(install: Install):
    found = built(install(COMPILED, TWO, TWO[:1]))
    assert not found.is_compiled
    assert str(found) == f"partly compiled, 1 of 2 modules: {FOR_ANOTHER}"


def test_a_folder_without_a_note_is_a_source_folder(tmp_path: Path):
    assert built(tmp_path) == Build(0, 0, FROM_SOURCE)
    assert not built(tmp_path).is_compiled


def test_whoever_asks_for_the_version_learns_how_it_was_built(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"], {})
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"leveret {VERSION} ({built()})\n"


@pytest.mark.system
def test_a_node_that_starts_says_how_it_was_built():
    quiet = '[http]\nenabled = false\n[[listeners]]\naddress = "127.0.0.1:0"\n'

    async def started() -> tuple[str, object]:
        async with Node(parse(quiet)) as node:
            return welcome(node, ""), node.admin.status()["build"]

    said, status = trio.run(started)
    assert said.startswith(f"Leveret {VERSION}, {built()}\n")
    assert status == str(built())


def test_nothing_compiled_lies_in_the_source_tree():
    """It would be imported in place of the file beside it, whatever is edited there afterwards."""
    binaries = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.so")]
    assert [*binaries, *ROOT.glob("*.so")] == []


def test_what_is_compiled_is_listed_once_and_exists():
    assert len(set(LISTED)) == len(LISTED)
    assert [each for each in LISTED if not (ROOT / each).exists()] == []


def test_the_tests_run_what_they_are_said_to_run():
    if TESTED is not None:
        assert built().is_compiled == (TESTED == "compiled")


@compiled_only
@pytest.mark.parametrize("module", MODULES)
def test_the_module_that_is_tested_is_compiled(module: str):
    path = import_module(module).__file__
    assert path is not None
    assert path.endswith(tuple(EXTENSION_SUFFIXES))


@compiled_only
@pytest.mark.system
@pytest.mark.parametrize(
    "command",
    [
        [str(Path(sys.executable).with_name("leveret"))],
        [sys.executable, "-m", "leveret"],
        [sys.executable, "-c", "from leveret.server.cli import main; main()"],
    ],
    ids=["leveret", "python -m", "python -c"],
)
def test_child_processes_run_what_is_compiled(command: list[str]):
    said = subprocess.run([*command, "--version"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == f"leveret {VERSION} (compiled)\n"
