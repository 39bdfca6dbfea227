"""`leveret cluster` against a real database: what is checked, and what is shown without any node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.schema import SHARD
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from leveret.server.cli import DONE, REFUSED, main
from leveret.server.cli.cluster import status_text
from leveret.server.cluster import inspection, overview
from tests.harness.postgres import Pair


@pytest.fixture
def database(postgres_pair: Pair) -> Iterator[Database]:
    """A store in a schema whose name a configuration can have."""
    made = Database(postgres_pair.dsn, f"cluster_{os.getpid()}")
    session = Session(made, "test")
    schema.create(session)
    yield made
    session.connection.execute(session.statement("drop schema {s} cascade"))
    session.close()


@pytest.fixture
def file(database: Database, tmp_path: Path) -> Path:
    """The configuration of a node with the store of the test."""
    made = tmp_path / "leveret.toml"
    made.write_text(
        f"""
        [cluster]
        name = "prod"
        node = "a"
        address = "127.0.0.1:5680"
        [store]
        engine = "postgres"
        [store.postgres]
        dsn = {json.dumps(database.dsn)}
        schema = {json.dumps(database.schema)}
        """
    )
    return made


def test_a_database_with_a_synchronous_standby_can_carry_a_cluster(
    database: Database, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = count()
    found = list(inspection.inspect(database, True, lambda: next(ticks) / 1000))
    assert {each.what: each.ok for each in found} == {
        "connection": True,
        "primary": True,
        "version": True,
        "durability": True,
        "synchronous_commit": None,
        "synchronous standby": True,
        "pooler": True,
        "schema": True,
        "rights": True,
        "round trip": None,
        "commit": True,
    }
    assert found[-1].found == "median 1.00 ms, p99 1.0 ms, of 200"
    main(["cluster", "check", str(file), "--json"], {})  # a busy machine may be too slow for it
    assert [each["what"] for each in json.loads(capsys.readouterr().out)] == [each.what for each in found]


def test_what_is_wrong_with_a_database_is_told(
    database: Database, postgres_pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    standby = Database(postgres_pair.standby.dsn, database.schema)
    [first] = inspection.inspect(standby, True)
    assert (first.ok, "read-only" in first.found) == (False, True)
    without = Database(database.dsn, "not_there")
    last = list(inspection.inspect(without, True))[-1]
    assert (last.ok, "leveret store init" in last.found) == (False, True)
    single = tmp_path / "single.toml"
    single.write_text("")
    assert main(["cluster", "check", str(single)], {}) == REFUSED
    assert "a cluster has its store in PostgreSQL" in capsys.readouterr().err


def test_the_state_of_a_cluster_is_shown_without_a_node(
    database: Database, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner, standby = Shard(database, "a"), Shard(database, "b")
    epoch = owner.claim(0, "a", "10.0.0.1:5680/00ff")
    assert epoch == 1
    assert standby.observe().owner == "a"
    session = Session(database, "test")
    overview.note_takeover(session, SHARD, epoch, "a", "its owner's session has gone", 1.234)
    session.close()
    assert main(["cluster", "status", "--config", str(file)], {}) == DONE
    said = capsys.readouterr().out
    assert "cluster prod, epoch 1\na serves\n" in said
    assert "b     standby" in said
    assert "standby           sync" in said
    assert "1.234 s  its owner's session has gone" in said
    assert "00ff" not in said  # the key of those that may relay
    owner.close()
    standby.close()


def test_a_node_without_a_cluster_says_so() -> None:
    assert "not one of a cluster" in status_text({"state": "single", "owner": "leveret"})
