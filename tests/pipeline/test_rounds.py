"""Driver, task, broker and archives without Spark are killed in mid-batch: every message is in the tables and on the
exchanges once, whoever reads the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.seldom import spark_killed
from tests.interop.conftest import need_module
from tests.pipeline.rounds import ARCHIVES_KILLED, Rounds

need_module("pyspark")
need_module("deltalake")
need_module("polars")
need_module("duckdb_extension_delta")
need_module("pandas")

ROUNDS_MAX = 6  # two will do, unless a micro-batch is over too soon

VICTIMS = {"driver", "task", "broker"}

pytestmark = [pytest.mark.system, pytest.mark.timeout(600), spark_killed]


def test_every_message_is_there_once_whatever_was_killed(tmp_path: Path):
    queries = ("stream-to-table", "queue-to-exchange")  # `make rounds`: four
    rounds = Rounds(tmp_path, seed=5, queries=queries, archives=ARCHIVES_KILLED // 2)
    try:
        while rounds.number < ROUNDS_MAX and not set(rounds.killed) >= VICTIMS:
            rounds.run()
        assert set(rounds.killed) == VICTIMS
        assert rounds.archives_killed >= ARCHIVES_KILLED
        assert rounds.finish() == []
    finally:
        rounds.close()
