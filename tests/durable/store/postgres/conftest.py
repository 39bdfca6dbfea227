"""A store with one chunk in the database, and a connection beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.durable.store.postgres.session import Database, Session
from tests.durable.store.shelf import Shelf, entries
from tests.harness.postgres import small_database, small_disk

__all__ = ["small_database", "small_disk"]


@pytest.fixture
def shelf(database: Database, tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf.of_database(database, tmp_path / "copy").start()
    assert made.commit(chunks=[entries(1, b"first")]) == 1
    yield made
    made.store.close(None)


@pytest.fixture
def asked(database: Database) -> Iterator[Session]:
    """A connection to look at the tables, and to interfere."""
    session = Session(database, "test")
    yield session
    session.close()
