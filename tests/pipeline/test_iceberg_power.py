"""Iceberg tables and power cuts: all that a catalogue names is on disk before it does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.pipeline.jobs.archive import ICEBERG
from leveret.pipeline.jobs.lake_table import lake_table
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.test_decoded_archive import DecodedLake
from tests.pipeline.test_iceberg import Lake

need_module("pyiceberg")
need_module("polars")

from pyiceberg.utils.config import Config  # noqa: E402
from sqlalchemy import Engine, event, text  # noqa: E402

from leveret.pipeline.jobs import iceberg  # noqa: E402


class Disk:
    """What is on disk for certain: the contents of files at their last sync, and the names in folders at theirs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: dict[Path, bytes] = {}
        self.names: dict[Path, set[str]] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._sync)

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[path] = {each.name for each in path.iterdir()}
        else:
            self.contents[path] = path.read_bytes()

    def lost(self, folder: Path) -> list[str]:
        """Return what a power cut would take of the files of tables, wherever in a folder they are."""
        return [
            str(path.relative_to(folder))
            for path in sorted(folder.rglob("*"))
            if {"data", "metadata"} & {*path.relative_to(folder).parts} and not self.has(path, folder)
        ]

    def has(self, path: Path, root: Path) -> bool:
        """Return whether a path below a folder, and what is in a file, are on disk."""
        above = [each for each in (path, *path.parents) if each.is_relative_to(root) and each != root]
        if any(each.name not in self.names.get(each.parent, ()) for each in above):
            return False
        return path.is_dir() or self.contents.get(path) == path.read_bytes()

    def cut(self, folder: Path, to: Path) -> None:
        """Copy what is left of a folder after a power cut. Of SQLite's own syncs nothing is known here."""
        for path in (each for each in folder.rglob("*") if each.is_file()):
            there = path.name.startswith("catalog.db") or path in self.contents
            if there and (path.name.startswith("catalog.db") or self.has(path, folder.parent)):
                copy = to / path.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@contextmanager
def at_commits(disk: Disk, folder: Path) -> Iterator[list[list[str]]]:
    """Yield what a power cut would take at each commit of a catalogue, when SQLite has not done it yet."""
    found: list[list[str]] = []

    def told(_: object) -> None:
        found.append(disk.lost(folder))

    event.listen(Engine, "commit", told)
    try:
        yield found
    finally:
        event.remove(Engine, "commit", told)


def test_what_a_catalogue_names_is_on_disk_before(broker: FakeBroker, tmp_path: Path, disk: Disk) -> None:
    broker.stream("orders")
    lake = DecodedLake(broker, tmp_path, ICEBERG)
    with at_commits(disk, tmp_path) as lost:
        for number in range(3):
            lake.publish(b'{"n": %d}' % number, b"not yet")
            lake.once()
        assert len(lost) > 8  # two tables, their columns, and commits to each
        lake.file.write_text("n bigint, more string")
        lake.publish(b'{"n": 1, "more": "x"}')
        lake.once()
        done = len(lost)
        assert lake_table(str(lake.where)).optimized(1 << 20).read == 4
        assert len(lost) == done + 1
    assert not any(lost)
    files = [*lake.where.rglob("*.parquet"), *Path(lake.beside).rglob("*.parquet")]
    assert len(files) == 8


def test_a_table_is_whole_after_a_power_cut_right_behind_a_commit(
    broker: FakeBroker, tmp_path: Path, disk: Disk
) -> None:
    lake = Lake(broker, tmp_path)
    broker.stream("orders").fill(30)
    lake.once(by=("day",), maxOffsetsPerTrigger="10")
    left = tmp_path / "left"
    disk.cut(lake.where, left)
    shutil.rmtree(lake.where)
    left.rename(lake.where)
    assert lake.offsets() == [*range(30)]


@pytest.mark.parametrize("name", [None, "lakehouse"])
def test_a_commit_of_sqlite_does_not_come_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """A journal whose removal is not on disk would be played back."""
    for key, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{tmp_path / 'c.db'}"),
        ("WAREHOUSE", tmp_path.as_uri()),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKEHOUSE__{key}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalogue, _ = iceberg.catalogue_of(str(tmp_path / "lake") if name is None else "shop.orders", name)
    with catalogue.engine.connect() as connection:  # type: ignore[attr-defined]
        assert connection.execute(text("pragma synchronous")).scalar() == 3
        assert connection.execute(text("pragma fullfsync")).scalar() == 1


def test_a_class_for_files_that_the_configuration_names_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = "pyiceberg.io.fsspec.FsspecFileIO"
    for key, value in (("TYPE", "sql"), ("URI", f"sqlite:///{tmp_path / 'c.db'}"), ("PY_IO_IMPL", chosen)):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKEHOUSE__{key}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalogue, _ = iceberg.catalogue_of("shop.orders", "lakehouse")
    assert catalogue.properties[iceberg.FILE_IO] == chosen
