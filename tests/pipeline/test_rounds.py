"""Driver, task and broker are killed in mid-batch: every message is in the tables and on the exchanges once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import need_module
from tests.pipeline.rounds import VICTIMS, Rounds

need_module("pyspark")

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_every_message_is_there_once_whatever_was_killed(tmp_path: Path):
    rounds = Rounds(tmp_path, seed=5, queries=("stream-to-table", "queue-to-exchange"))  # `make rounds`: four
    try:
        for _ in VICTIMS:
            rounds.run()
        assert rounds.killed == ["driver", "task", "broker"]
        assert rounds.finish() == []
    finally:
        rounds.close()
