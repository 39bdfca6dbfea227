"""A store is copied between a data folder and a database, whole, by the commands that operators use."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from leveret.server.cli import main
from tests.durable.site import Site
from tests.durable.store.shelf import Found, Shelf, append, content_of, entries
from tests.harness.postgres import Pair, schema_in


def filled(shelf: Shelf) -> Shelf:
    """Something of each kind, and a proper end."""
    site = Site()
    for name in ("b", "a", "\N{SNOWMAN}"):
        site.queue(name)
    site.settle()
    shelf.start()
    volatile = entries(30, b"not kept")
    volatile.volatile = True
    shelf.commit(
        objects=site.objects,
        chunks=[*(entries(number, b"%d" % number, b"second") for number in range(1, 20, 2)), volatile],
        settled={3: b"\1"},
        marks={1: 7, 5: 3},
        appends=[append(1, 0, b"x" * 5000, b"y"), append(1, 2, b"z", segment=2), append(2, 0, b"other")],
        producers={(1, "p\udc80"): 4, (2, ""): 0},
    )
    return shelf.closed(marks={0: 19})


def content(shelf: Shelf) -> tuple[Found, list[object], list[object], object]:
    """All that a start finds."""
    spans = list(shelf.store.spans())
    found = shelf.found()
    producers = list(shelf.store.producers())
    with shelf.store.reader() as reader:
        bodies, damage = content_of(reader, spans)
    assert not damage
    found.chunks.pop(30, None)
    return found, list(spans), list(producers), bodies


def command(*words: str) -> int:
    return main(["store", *words])


def test_a_store_is_the_same_after_it_went_to_a_database_and_back(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shelf = filled(Shelf.of(tmp_path / "data"))
    before = content(shelf)
    shelf.store.close(None)
    schema = ("--schema", database.schema)
    assert command("copy", str(tmp_path / "data"), database.dsn, *schema) == 0
    assert "23 messages" in capsys.readouterr().out
    assert command("copy", database.dsn, str(tmp_path / "back"), *schema) == 0
    assert command("verify", str(tmp_path / "back")) == 0
    back = Shelf.of(tmp_path / "back")
    assert back.store.was_clean
    assert content(back) == before
    back.store.close(None)
    there = Shelf.of_database(database, tmp_path / "copy")
    assert there.store.was_clean
    assert content(there) == before
    there.store.close(None)


def test_nothing_is_copied_to_what_is_not_empty_or_is_in_use(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    filled(Shelf.of(tmp_path / "data")).store.close(None)
    schema = ("--schema", database.schema)
    with closing(Shard(database)) as shard:
        shard.claim(0, "alpha", None)
        assert command("copy", str(tmp_path / "data"), database.dsn, *schema) == 1
        assert "the node 'alpha' serves it" in capsys.readouterr().err
        shard.release(1)
    assert command("copy", str(tmp_path / "data"), database.dsn, *schema) == 0
    assert command("copy", str(tmp_path / "data"), database.dsn, *schema) == 1
    assert "there is something in it" in capsys.readouterr().err
    assert command("copy", database.dsn, str(tmp_path / "data"), *schema) == 1
    assert "is not empty" in capsys.readouterr().err
    assert command("copy", database.dsn, database.dsn) == 1


def test_a_database_in_use_is_verified_counted_and_saved(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shelf = filled(Shelf.of_database(database, tmp_path / "copy")).start()
    dsn = tmp_path / "dsn"
    dsn.write_text(database.dsn + "\n")
    named = (f"@{dsn}", "--schema", database.schema)
    assert command("stats", *named) == 0
    out = capsys.readouterr().out
    assert "in use by the node 'test'" in out
    assert re.search(r"^segments +3$", out, re.MULTILINE)
    assert command("verify", *named, "--json") == 0
    assert '"ok": true' in capsys.readouterr().out
    assert command("backup", str(named[0]), str(tmp_path / "saved"), *named[1:]) == 0
    shelf.store.backup(tmp_path / "saved too")
    for name in ("saved", "saved too"):
        saved = Shelf.of(tmp_path / name)
        assert not saved.store.was_clean, "it was in use: messages may have been delivered"
        assert len(saved.found().chunks) == 10
        saved.store.close(None)
    session = Session(database, "test")
    session.done(
        "update {s}.chunks set messages = overlay(messages placing '\\xff' from 1 for 1) where first = 7"
    )
    session.close()
    capsys.readouterr()
    assert command("verify", *named) == 1
    assert "chunk 7" in capsys.readouterr().out
    shelf.store.close(None)


def test_tables_are_made_once(postgres_pair: Pair, capsys: pytest.CaptureFixture[str]):
    with schema_in(postgres_pair) as made:
        session = Session(made, "test")
        session.connection.execute(session.statement("drop schema {s} cascade"))
        session.close()
        words = ("init", "--dsn", made.dsn, "--schema", made.schema)
        assert command(*words) == 0
        assert "the tables are made" in capsys.readouterr().out
        assert command(*words) == 0
        assert "there already" in capsys.readouterr().out
    assert command("init", "--dsn", "/a/folder") == 1
    assert command("init", "--dsn", "host=127.0.0.1 port=1 password=geheim") == 1
    assert "geheim" not in capsys.readouterr().err
