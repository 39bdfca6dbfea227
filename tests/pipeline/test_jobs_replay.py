"""Replays: where they are cut, what is staged, how they go on, and how fast, with a broker in memory and no Spark."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from leveret.durable.store.block import Block, header
from leveret.pipeline.errors import BadOption, PipelineError, Refused, Unroutable
from leveret.pipeline.jobs.replay import Checkpoint, Content, Plan, ReplayRequest, cut
from leveret.pipeline.publisher import Part, Published, State, Taken
from leveret.pipeline.sink_options import read_sink_options
from tests.interop.conftest import need_module

need_module("pyspark")

import pyarrow as pa  # noqa: E402

from leveret.pipeline.jobs.replay_batches import Pace, Poured, Replaying  # noqa: E402

ASKED = ReplayRequest("/lake", "again")
PLAN = Plan("replay-1", ASKED, Content(("/lake/a.parquet",), ("stream",)), (10, 20, 31), (5, 7))
SINK = read_sink_options({"endpoints": "localhost", "exchange": "again"})


class Broker:
    """Keeps what was committed, once for each number. `die_after`: so many commits are answered, and one is not."""

    def __init__(self) -> None:
        self.last = -1
        self.bodies: list[bytes] = []
        self.sizes: list[int] = []
        self.die_after: int | None = None
        self.unbound = b""  # the body of a message that no queue takes
        self._staged: dict[tuple[int, int], list[bytes]] = {}

    def stage(self, name: str, batch: int, partition: int, attempt: int, piece: int, blocks: bytes) -> Taken:
        kept = self._staged.setdefault((batch, attempt), [])
        assert piece == 0 or kept
        if self.unbound in bodies(blocks):
            raise Unroutable("a row would get into no queue", "k")
        kept += bodies(blocks)
        return Taken(len(kept), repeated=False)

    def drop(self, name: str, batch: int) -> None:
        self._staged = {each: kept for each, kept in self._staged.items() if each[0] != batch}

    def commit(self, name: str, batch: int, parts: Sequence[Part]) -> Published:
        ((_, attempt, rows),) = parts
        kept = self._staged.pop((batch, attempt))
        assert len(kept) == rows
        if batch > self.last:
            self.last = batch
            self.bodies += kept
            self.sizes.append(rows)
        if self.die_after is not None:
            self.die_after -= 1
            if self.die_after < 0:
                raise PipelineError("the answer is lost")
        return Published(rows, 0)

    @property
    def staged(self) -> int:
        return len(self._staged)

    def state(self, name: str) -> State | None:
        return State(self.last, 0) if self.last >= 0 else None

    def forget(self, name: str) -> None:
        self.last = -1


def bodies(blocks: bytes) -> list[bytes]:
    found: list[bytes] = []
    place = 0
    while place < len(blocks):
        block = Block(blocks, place)
        ends = block.body_ends
        found += [bytes(block.bodies[ends[row] : ends[row + 1]]) for row in range(len(ends) - 1)]
        place += header(blocks, place).octets
    return found


def table(first: int, until: int) -> pa.Table:
    octets = pa.array([b"%d" % number for number in range(first, until)], pa.binary())
    return pa.table({"body": octets, "routing_key": pa.array(["k"] * (until - first), pa.string())})


def said(first: int, until: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, until)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace(rate: int, clock: Clock | None = None) -> Pace:
    clock = clock or Clock()
    return Pace(rate, lambda: clock.now, clock.sleep)


def test_pieces_are_cut_where_the_time_changes():
    times = [(10, 3), (12, 2), (15, 9), (16, 1), (30, 4)]
    assert cut(iter(times), 5) == ((10, 15, 16, 31), (5, 9, 5))
    assert cut(iter(times), 100) == ((10, 31), (19,))
    assert cut(iter([]), 5) == ((), ())


def test_a_batch_has_the_number_of_its_last_row():
    broker = Broker()
    assert list(Replaying(PLAN, broker, SINK).pour(100, table(100, 125), pace(100))) == [
        Poured(110, 0),
        Poured(120, 0),
        Poured(125, 0),
    ]
    assert (broker.last, broker.sizes, broker.bodies) == (124, [10, 10, 5], said(100, 125))


def test_a_row_that_no_queue_takes_is_refused_before_any_is_published():
    broker = Broker()
    broker.unbound = b"22"
    rows = table(0, 25)
    for name, kind, value in (("stream", pa.string(), "orders"), ("partition", pa.int32(), 0)):
        rows = rows.append_column(name, pa.array([value] * 25, kind))
    rows = rows.append_column("offset", pa.array(range(100, 125), pa.int64()))
    said = "into no queue (such as offset 100 of partition 0 of stream 'orders', offset 101"
    with pytest.raises(Refused, match=f"{re.escape(said)}.*; nothing is published$"):
        list(Replaying(PLAN, broker, SINK).pour(0, rows, pace(100)))
    assert (broker.bodies, broker.staged) == ([], 0)
    with pytest.raises(Refused, match=r"; 20 rows before it are published$"):
        list(Replaying(PLAN, broker, SINK).pour(20, table(20, 25), pace(100)))


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_that_is_interrupted_anywhere_publishes_each_row_once(seed: int, tmp_path: Path):
    """Whatever the rate was, and whichever of broker and checkpoint knows more."""
    chance = random.Random(seed)
    broker = Broker()
    checkpoint = Checkpoint(tmp_path)
    checkpoint.keep_plan(PLAN)
    replaying = Replaying(PLAN, broker, SINK, checkpoint)
    for _ in range(50):
        begin = replaying.done()
        if begin == 300:
            break
        broker.die_after = chance.randrange(4)
        try:
            for poured in replaying.pour(begin, table(begin, 300), pace(chance.choice((70, 300, 1000)))):
                if chance.random() < 0.7:
                    checkpoint.keep_done(poured.done)
        except PipelineError:
            continue
    assert broker.bodies == said(0, 300)


def test_a_rate_is_kept_on_the_whole_and_a_pause_is_not_made_good_for():
    clock = Clock()
    slow = pace(100, clock)
    for _ in range(20):
        slow.wait(slow.step)
    assert (slow.step, round(clock.now, 6)) == (10, 1.9)
    clock.now += 60
    before = clock.now
    for _ in range(20):
        slow.wait(slow.step)
    assert round(clock.now - before, 6) == 0.9  # of the minute, one second
    assert pace(3).step == 1


def test_as_fast_as_it_goes_does_not_wait():
    clock = Clock()
    pace(0, clock).wait(1_000_000)
    assert clock.now == 0


def test_a_checkpoint_keeps_the_plan_and_is_of_one_replay(tmp_path: Path):
    checkpoint = Checkpoint(tmp_path / "new")
    assert (checkpoint.plan(ASKED), checkpoint.done) == (None, 0)
    checkpoint.keep_plan(PLAN)
    checkpoint.keep_done(7)
    again = Checkpoint(tmp_path / "new")
    assert (again.plan(ASKED), again.done) == (PLAN, 7)
    with pytest.raises(BadOption, match=r"another replay \(see exchange, since\)"):
        again.plan(attrs.evolve(ASKED, exchange="other", since=5))
    (tmp_path / "new/replay.json").write_text("[]")
    with pytest.raises(PipelineError, match="no plan of a replay"):
        again.plan(ASKED)
