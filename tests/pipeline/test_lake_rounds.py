"""Archives to Iceberg tables and to buckets are killed at any time, and overlap: each message is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.seldom import spark_killed
from tests.interop.conftest import need_module

need_module("pyiceberg")
need_module("deltalake")
need_module("polars")
need_module("pandas")
need_module("duckdb_extension_iceberg")
need_module("duckdb_extension_avro")
need_module("moto")
need_module("flask_cors")

from tests.pipeline.lake_rounds import LakeRounds, store_in_use  # noqa: E402

KILLED = 8

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200), spark_killed]


def test_every_message_is_there_once_in_each_kind_of_table(tmp_path: Path) -> None:
    with store_in_use() as store:
        rounds = LakeRounds(tmp_path, 5, store)
        try:
            rounds.run(KILLED)
            assert rounds.killed >= KILLED
            assert rounds.finish() == []
        finally:
            rounds.close()
