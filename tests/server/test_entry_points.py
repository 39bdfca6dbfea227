"""Entry points of installed packages are those that `importlib.metadata` finds, without its help."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.server import entry_points
from leveret.server.entry_points import installed

GROUPS = ("leveret.exchanges", "leveret.protocols", "leveret.commands", "leveret.guests")
TEXT = """\
[console_scripts]
carrot = carrot.cli:main

# a comment
[leveret.exchanges]
x-carrot = json:JSONDecoder
x-nested = json:JSONDecoder.decode [fast]
[leveret.protocols]
mqtt=json
[leveret.exchanges]
x-late = json:loads
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    entry_points._ours.cache_clear()
    yield
    entry_points._ours.cache_clear()


def package(folder: Path, name: str, text: str, metadata: str = "") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "entry_points.txt").write_text(text)
    (folder / name / "METADATA").write_text(metadata)


def found(group: str) -> list[tuple[str, str, str]]:
    return [(each.name, each.value, each.dist.name) for each in installed(group) if each.dist is not None]


def theirs(group: str) -> list[tuple[str, str, str]]:
    points = importlib.metadata.entry_points(group=group)
    return [(each.name, each.value, each.dist.name) for each in points if each.dist is not None]


def site(folder: Path) -> Path:
    package(
        folder,
        "carrot_field-1.0.dist-info",
        TEXT,
        "Metadata-Version: 2.1\nName: Carrot.Field\nVersion: 1.0\n",
    )
    package(folder, "plain-2.dist-info", "[console_scripts]\nplain = plain:main\n", "Name: plain\n")
    (folder / "single.egg-info").write_text("Name: single\n")
    return folder


def test_they_are_those_of_this_environment() -> None:
    for group in GROUPS:
        assert sorted(found(group)) == sorted(theirs(group))
    assert {name for name, _, _ in found("leveret.protocols")} >= {"amqp091", "amqp10", "http"}


def test_a_package_has_entry_points_in_several_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(site(tmp_path / "site"))])
    for group in GROUPS:
        assert found(group) == theirs(group)
    assert found("leveret.protocols") == [("mqtt", "json", "Carrot.Field")]
    assert [name for name, _, _ in found("leveret.exchanges")] == ["x-carrot", "x-nested", "x-late"]


def test_an_entry_point_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setattr(sys, "path", [str(site(tmp_path)), *sys.path])
    loaded = {
        each.name: each.load() for group in GROUPS for each in installed(group) if each.value[:4] == "json"
    }
    expected = {
        "x-carrot": json.JSONDecoder,
        "x-nested": json.JSONDecoder.decode,
        "x-late": json.loads,
        "mqtt": json,
    }
    assert loaded == expected


def test_of_two_copies_of_a_package_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(
        tmp_path / "first",
        "Carrot.Field-2.dist-info",
        "[leveret.guests]\nx-new = json:loads\n",
        "Name: new\n",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(site(tmp_path / "site"))])
    for group in GROUPS:
        assert found(group) == theirs(group)
    assert [found(group) for group in GROUPS] == [[], [], [], [("x-new", "json:loads", "new")]]


def test_a_package_that_says_no_name_is_called_as_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "nameless.egg-info", "[leveret.guests]\nx-a = json:loads\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert found("leveret.guests") == [("x-a", "json:loads", "nameless")]


def test_packages_in_archives_are_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "carrots.zip", "w") as archive:
        archive.writestr("carrot-1.dist-info/entry_points.txt", TEXT)
        archive.writestr("carrot-1.dist-info/METADATA", "Name: carrot\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "carrots.zip")])
    assert found("leveret.protocols") == [("mqtt", "json", "carrot")]


def test_packages_of_another_finder_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        @staticmethod
        def find_distributions(context: object) -> list[importlib.metadata.Distribution]:
            return [Remote()]

        @staticmethod
        def find_spec(*_: object) -> None:
            return None

    class Remote(importlib.metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return {"entry_points.txt": TEXT, "METADATA": "Name: far\n"}.get(filename)

        def locate_file(self, path: object) -> Path:
            return Path()

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Elsewhere])
    assert ("mqtt", "json", "far") in found("leveret.protocols")
