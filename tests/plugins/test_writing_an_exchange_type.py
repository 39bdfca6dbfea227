"""The page on writing exchange types tells the truth: its code is executed, and its tests pass."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

from leveret.server import plugin_loader as loader
from leveret.server.plugin_loader import Plugins

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "writing-an-exchange-type.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def page() -> Iterator[dict[str, object]]:
    """What the page's blocks define, executed one after the other."""
    before = list(loader._announced)
    names: dict[str, object] = {"__name__": "page"}
    exec("\n".join(blocks("python")), names)
    yield names
    loader._announced[:] = before


def test_the_tests_on_the_page_pass(page: dict[str, object]) -> None:
    tests = [
        value for name, value in page.items() if name.startswith("test_") and isinstance(value, FunctionType)
    ]
    for test in tests:
        test()
    assert len(tests) == PAGE.count("\ndef test_")


def test_the_decorator_on_the_page_registers(page: dict[str, object]) -> None:
    plugins = Plugins(entry_points=lambda group: [])
    plugins.load()
    assert plugins.exchange_types["x-farthest"] is page["Farthest"]


def test_the_first_block_is_a_file_for_a_plugin_folder(tmp_path: Path) -> None:
    (tmp_path / "nearest.py").write_text(blocks("python")[0])
    plugins = Plugins([tmp_path], entry_points=lambda group: [])
    plugins.load()
    assert "x-nearest" in plugins.exchange_types


def test_the_settings_on_the_page_exist() -> None:
    settings, project = (tomllib.loads(block) for block in blocks("toml"))
    assert set(settings["plugins"]) <= {"folders", "watch", "disabled"}
    assert set(project["project"]["entry-points"]) <= set(loader.GROUPS)
