"""Staged publishing in memory: pieces, commits, what nobody comes back for, and what a row costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from leveret.broker import WORK_MAX
from leveret.errors import NotAllowed, NotFound
from leveret.features.staging.batch import BatchPart, pieces_in
from leveret.features.staging.publication import LOOK_S, PORTION
from leveret.features.staging.staging import (
    BATCH_MAX_S,
    LOOK_AGAIN_S,
    NAME_MAX_S,
    NotStaged,
    OutOfOrder,
    Staging,
    forget_staging,
    new_staging,
    stagings_of,
)
from leveret.message import Message
from leveret.queues.discarded_messages import PAUSE_S
from leveret.values import Value
from tests.core.fakes import waiting
from tests.harness.bench import CoreBench, StoredBench, message
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

DAY_S = 24 * 3600


class Stage:
    """A bench with a queue, and a staging."""

    def __init__(self, **arguments: Value) -> None:
        """`arguments` of the queue."""
        self.bench = CoreBench()
        self.queue = self.bench.queue(**arguments)
        self.staging = new_staging(self.bench.host, "job", "user")

    def take(self, part: BatchPart, number: int, *bodies: bytes, key: str = "q") -> list[float]:
        """Stage a piece at once. Returns the pauses that it asked for."""
        return list(self.staging.take(part, number, iter([message(key, body) for body in bodies])))

    def commit(self, batch: int, *parts: tuple[BatchPart, int]) -> None:
        self.staging.commit(batch, parts)
        self.run()

    def run(self) -> None:
        """Until everything is published that can be."""
        for _ in range(100):
            self.bench.advance(PAUSE_S)

    @property
    def bodies(self) -> str:
        return waiting(self.queue)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_batch_is_published_by_partition_and_piece_whatever_the_order_of_staging(stage: Stage) -> None:
    late, early = BatchPart(7, 2, 0), BatchPart(7, 1, 5)
    stage.take(late, 0, b"2a")
    stage.take(early, 0, b"1a", b"1b")
    stage.take(late, 1, b"2b")
    stage.take(early, 1, b"1c")
    assert stage.bodies == ""
    stage.commit(7, (late, 2), (early, 3))
    assert (stage.bodies, stage.staging.log.messages) == ("1a 1b 1c 2a 2b", 0)


def test_a_piece_that_is_there_is_not_looked_at_again(stage: Stage) -> None:
    def never() -> Iterator[Message]:
        raise AssertionError("it is there already")
        yield

    part = BatchPart(7, 0, 0)
    stage.take(part, 0, b"a")
    assert list(stage.staging.take(part, 0, never())) == []
    stage.commit(7, (part, 1))
    assert list(stage.staging.take(part, 1, never())) == []
    with pytest.raises(OutOfOrder):
        stage.take(BatchPart(8, 0, 0), 1, b"b")


def test_pieces_come_in_one_after_the_other_with_pauses(stage: Stage) -> None:
    stage.staging.portion = 2
    slow = stage.staging.take(BatchPart(7, 0, 0), 0, iter([message("q", b"%d" % n) for n in range(5)]))
    quick = stage.staging.take(BatchPart(7, 1, 0), 0, iter([message("q", b"x")]))
    assert [next(slow), next(quick), next(slow), next(quick)] == [PAUSE_S] * 4
    assert list(slow) == []
    assert list(quick) == []
    stage.commit(7, (BatchPart(7, 0, 0), 5), (BatchPart(7, 1, 0), 1))
    assert stage.bodies == "0 1 2 3 4 x"


def test_a_piece_that_is_given_up_leaves_its_place_to_the_next(stage: Stage) -> None:
    stage.staging.portion = 1
    part = BatchPart(7, 0, 0)
    given_up = stage.staging.take(part, 0, iter([message("q", b"no"), message("q", b"no")]))
    next(given_up)
    given_up.close()  # type: ignore[attr-defined]
    stage.take(part, 0, b"yes")
    stage.commit(7, (part, 1))
    assert (stage.bodies, stage.staging.log.messages) == ("yes", 0)


def test_what_is_still_needed_is_not_let_go(stage: Stage) -> None:
    """Not what another batch has staged, nor what comes in just now."""
    stage.staging.portion = 1
    first, second, third = BatchPart(7, 0, 0), BatchPart(8, 0, 0), BatchPart(9, 0, 0)
    stage.take(second, 0, b"8")
    stage.take(first, 0, b"7")
    coming = stage.staging.take(third, 0, iter([message("q", b"9a"), message("q", b"9b")]))
    next(coming)
    stage.commit(7, (first, 1))
    stage.commit(8, (second, 1))
    assert list(coming) == [PAUSE_S]
    stage.commit(9, (third, 2))
    assert stage.bodies == "7 8 9a 9b"


def test_a_commit_of_other_rows_leaves_everything_as_it_was(stage: Stage) -> None:
    part = BatchPart(7, 0, 0)
    stage.take(part, 0, b"a")
    before = dict(stage.staging.log.sequences)
    with pytest.raises(NotStaged) as refused:
        stage.staging.commit(7, [(part, 1), (BatchPart(7, 1, 0), 3)])
    assert refused.value.part == BatchPart(7, 1, 0)
    assert stage.staging.log.sequences == before
    stage.commit(7, (part, 1))
    assert stage.bodies == "a"


def test_pouring_leaves_turns_to_others(stage: Stage) -> None:
    part = BatchPart(7, 0, 0)
    stage.take(part, 0, *[b"x"] * (2 * PORTION + 1))
    stage.staging.commit(7, [(part, 2 * PORTION + 1)])
    stage.bench.settle()
    ready = [stage.queue.ready]
    for _ in range(3):
        stage.bench.advance(PAUSE_S)
        ready.append(stage.queue.ready)
    assert ready == [PORTION, 2 * PORTION, 2 * PORTION + 1, 2 * PORTION + 1]


def test_large_rows_count_as_several(stage: Stage) -> None:
    part = BatchPart(7, 0, 0)
    stage.take(part, 0, *[bytes(100_000)] * 20)
    stage.staging.commit(7, [(part, 20)])
    stage.bench.settle()
    assert 1 < stage.queue.ready < 10
    stage.run()
    assert stage.queue.ready == 20


def test_a_row_for_many_queues_counts_as_many(stage: Stage) -> None:
    exchange = stage.bench.host.declare_exchange("x", "fanout")
    for number in range(100):
        stage.bench.host.bind(exchange, stage.bench.queue(f"q{number}"), "", {})
    part = BatchPart(7, 0, 0)
    rows = [message("", b"x", exchange="x") for _ in range(300)]
    list(stage.staging.take(part, 0, iter(rows)))
    stage.staging.commit(7, [(part, 300)])
    stage.bench.settle()
    queue = stage.bench.host.queues["q0"]
    assert WORK_MAX <= queue.ready * 100 <= WORK_MAX + 100
    stage.run()
    assert queue.ready == 300


def test_what_is_in_memory_anyhow_is_published_in_spite_of_an_alarm(stage: Stage) -> None:
    """It may be what has raised it, and is consumed from queues only."""
    part = BatchPart(7, 0, 0)
    stage.take(part, 0, b"a")
    stage.bench.broker.alarms.set("low on memory")
    stage.commit(7, (part, 1))
    assert stage.bodies == "a"


def test_a_full_queue_is_looked_at_now_and_then() -> None:
    stage, part = Stage(x_max_length=1, x_overflow="reject-publish"), BatchPart(7, 0, 0)
    stage.take(part, 0, b"a", b"b")
    stage.staging.commit(7, [(part, 2)])
    stage.bench.settle()
    stage.queue.purge()
    stage.bench.advance(LOOK_S * 0.9)
    assert stage.bodies == ""
    stage.bench.advance(LOOK_S * 0.2)
    assert stage.bodies == "b"


# What nobody comes back for.


def test_what_is_not_committed_goes_after_a_day_without_a_sign_of_life(stage: Stage) -> None:
    for part in (BatchPart(7, 0, 0), BatchPart(8, 0, 0)):
        stage.take(part, 0, b"a")
    stage.bench.advance(BATCH_MAX_S - 1.5 * LOOK_AGAIN_S)
    stage.take(BatchPart(8, 0, 0), 0, b"a")  # a repeat is a sign of life, too
    for _ in range(3):
        stage.bench.advance(LOOK_AGAIN_S)
    assert stage.staging.staged == {8: 1}
    assert [piece.part.batch for piece in pieces_in(stage.staging.log.sequences)] == [8]
    stage.bench.advance(BATCH_MAX_S)
    assert (stage.staging.staged, stage.staging.log.messages) == ({}, 0)
    assert sorted(stage.staging.log.sequences) == ["used"]


def test_a_name_that_has_nothing_goes_after_a_month(stage: Stage) -> None:
    stage.commit(7)
    for _ in range(29):
        stage.bench.advance(DAY_S)
    stage.take(BatchPart(7, 0, 0), 0, b"repeated")
    for _ in range(29):
        stage.bench.advance(DAY_S)
    assert stagings_of(stage.bench.host) == {"job": stage.staging}
    stage.bench.advance(NAME_MAX_S - 29 * DAY_S + LOOK_AGAIN_S)
    assert stagings_of(stage.bench.host) == {}
    assert stage.staging.ended


def test_a_name_with_something_to_publish_does_not_go() -> None:
    stage, part = Stage(x_max_length=1, x_overflow="reject-publish"), BatchPart(7, 0, 0)
    stage.take(part, 0, b"a", b"b")
    stage.commit(7, (part, 2))
    for _ in range(40):
        stage.bench.advance(DAY_S)
    assert stagings_of(stage.bench.host) == {"job": stage.staging}
    with pytest.raises(NotAllowed):
        forget_staging(stage.staging)
    stage.queue.purge()
    stage.bench.advance(LOOK_S)
    assert stage.bodies == "b"


def test_what_comes_in_while_the_staging_goes_is_refused(stage: Stage) -> None:
    stage.staging.portion = 1
    coming = stage.staging.take(BatchPart(7, 0, 0), 0, iter([message("q", b"a"), message("q", b"b")]))
    next(coming)
    forget_staging(stage.staging)
    with pytest.raises(NotFound):
        next(coming)
    with pytest.raises(NotFound):
        stage.take(BatchPart(7, 0, 0), 0, b"a")
    again = new_staging(stage.bench.host, "job", "user")
    assert (again.committed, again.staged) == (-1, {})


# Costs.


def staging_costs(rows: int) -> Counter[str]:
    stage = Stage()
    part = BatchPart(7, 0, 0)
    messages = [message("q", b"x") for _ in range(rows)]

    def go() -> None:
        for _ in stage.staging.take(part, 0, iter(messages)):
            pass
        stage.staging.commit(7, [(part, rows)])
        stage.bench.settle()

    counted = calls(go)
    assert stage.queue.ready == rows
    return counted


@plain_only
def test_a_row_is_appended_and_delivered_and_nothing_else_is_called_for_it() -> None:
    """Or the figure of rows a second is gone. A log in memory adds notes, and takes them off again."""
    few, many = staging_costs(100), staging_costs(200)
    assert {name: many[name] - few[name] for name in many if many[name] != few[name]} == ROW


ROW = {
    "MemoryLog.append": 100,
    "numbered": 100,
    "Notes.__init__": 100,
    "unnumbered": 100,
    "_with_notes": 200,
    "Message.__init__": 200,
    "MemoryLog._drop": 100,
    "Delivery.__init__": 100,
}


def test_a_batch_of_many_pieces_costs_no_more_for_each() -> None:
    def of_pieces(count: int) -> int:
        stage = Stage()
        part = BatchPart(7, 0, 0)

        def go() -> None:
            for number in range(count):
                stage.take(part, number, b"x")
            stage.staging.commit(7, [(part, count)])
            stage.bench.settle()

        counted = calls(go)
        assert stage.queue.ready == count
        return sum(counted.values())

    assert of_pieces(400) <= 4.2 * of_pieces(100)


def test_a_new_staging_is_known_by_its_name(stage: Stage) -> None:
    assert isinstance(stagings_of(stage.bench.host)["job"], Staging)
    assert stage.staging.user == "user"


def test_a_deleted_users_stagings_are_not_the_next_users() -> None:
    bench = StoredBench()
    new_staging(bench.host, "job", bench.user("ann"))
    new_staging(bench.host, "other", "guest")
    bench.broker.access.delete_user("ann")
    bench.user("ann")
    for each in (bench, bench.again()):
        assert {name: staging.user for name, staging in stagings_of(each.host).items()} == {
            "job": "",
            "other": "guest",
        }


def test_batches_go_with_their_virtual_host(stage: Stage) -> None:
    stage.take(BatchPart(7, 0, 0), 0, b"a")
    stage.bench.broker.delete_virtual_host("/")
    assert (stagings_of(stage.bench.host), stage.staging.ended) == ({}, True)
