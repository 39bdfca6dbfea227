"""Driver, task and broker are killed in mid-batch: every message is in the tables and on the exchanges once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import need_module
from tests.pipeline.rounds import Rounds

need_module("pyspark")

ROUNDS_MAX = 6  # two will do, unless a micro-batch is over too soon

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_every_message_is_there_once_whatever_was_killed(tmp_path: Path):
    rounds = Rounds(tmp_path, seed=5, queries=("stream-to-table", "queue-to-exchange"))  # `make rounds`: four
    try:
        while rounds.number < ROUNDS_MAX and not set(rounds.killed) >= {"driver", "task", "broker"}:
            rounds.run()
        assert set(rounds.killed) == {"driver", "task", "broker"}
        assert rounds.finish() == []
    finally:
        rounds.close()
