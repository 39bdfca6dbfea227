"""Archives without Spark: each message is in the table once, whatever a run was cut off at; the table's upkeep."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from leveret.pipeline.errors import BadOption, DataLoss, PipelineError, Unauthorized
from leveret.pipeline.jobs import archive_local, checkpoints, data_files, delta, run_lock
from leveret.pipeline.jobs.archive import Target
from leveret.pipeline.jobs.archive_columns import LATER, columns
from leveret.pipeline.jobs.archive_local import Backlog, LocalArchive, local_archive
from leveret.pipeline.jobs.archive_run import (
    MESSAGES_MAX,
    Engine,
    checkpoint_for,
    format_for,
    layout_of,
    reason,
    why_not_here,
)
from leveret.pipeline.jobs.checkpoints import Position, QueryCheckpoint, position, query_id
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.run_lock import held
from leveret.pipeline.jobs.table_positions import ArchiveCheckpoint, TableCheckpoint
from leveret.pipeline.offsets import Marks
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.progress import QueryProgress
from leveret.server.cli import main
from leveret.values import Timestamp
from tests.interop.conftest import need_module
from tests.pipeline.bulk import QUEUED_MS, FakeBroker, message
from tests.pipeline.conftest import ROOT, LocalNode

polars = need_module("polars")
deltalake = need_module("deltalake")
pyarrow = need_module("pyarrow")

from leveret.pipeline.jobs.data_files import Layout  # noqa: E402

NOON = 1_795_780_800_000  # ms since 1970: 2026-11-27T12:00:00Z
DAY = 86_400_000


class Cut(Exception):  # noqa: N818
    """The process is killed here."""


class Fragile(QueryCheckpoint):
    """A checkpoint whose process dies at one of its steps."""

    def __init__(self, folder: Path, dies: str) -> None:
        super().__init__(folder)
        self._dies = dies

    def plan(self, batch: int, end: Marks, now_ms: int) -> None:
        super().plan(batch, end, now_ms)
        if self._dies == "planned":
            raise Cut

    def commit(self, batch: int) -> None:
        if self._dies == "in the table":
            raise Cut
        super().commit(batch)


class Overtaken(QueryCheckpoint):
    """A checkpoint at which another run has just planned the same micro-batch."""

    def plan(self, batch: int, end: Marks, now_ms: int) -> None:
        QueryCheckpoint.plan(self, batch, end, now_ms)
        super().plan(batch, end, now_ms)


class Lake:
    """A table, its checkpoint, and a broker."""

    def __init__(self, broker: FakeBroker, folder: Path) -> None:
        self.broker = broker
        self.where = folder / "lake"
        self.checkpoint = folder / "lake.checkpoint"
        self.lines: list[str] = []

    @contextmanager
    def run(
        self,
        checkpoint: ArchiveCheckpoint | None = None,
        by: tuple[str, ...] = ("day",),
        now: Callable[[], float] = time.time,
        **given: str,
    ) -> Iterator[LocalArchive]:
        said = {"endpoints": self.broker.url, "subscribe": "orders", "startingOffsets": "earliest", **given}
        options = read_options(said, Use.STREAM)
        layout = Layout(str(self.where), by, columns(options, by))
        with local_archive(options, layout, checkpoint or QueryCheckpoint(self.checkpoint), now) as run:
            yield run

    def once(
        self, checkpoint: ArchiveCheckpoint | None = None, by: tuple[str, ...] = ("day",), **given: str
    ) -> None:
        with self.run(checkpoint, by, **given) as run:
            assert run.run(Report("archive", self.lines.append), Stop())

    def agreed(self, checkpoint: ArchiveCheckpoint | None = None, **given: str) -> None:
        """A run as the command does it: the checkpoint is compared with the table before."""
        with self.run(checkpoint, **given) as run:
            if behind := run.agree():
                self.lines.append(behind)
            assert run.run(Report("archive", self.lines.append), Stop())

    def offsets(self) -> list[int]:
        found: list[int] = polars.read_delta(str(self.where))["offset"].to_list()
        return sorted(found)


@pytest.fixture
def lake(broker: FakeBroker, tmp_path: Path) -> Lake:
    return Lake(broker, tmp_path)


def test_each_run_adds_what_is_new(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(250)
    lake.once(maxOffsetsPerTrigger="100")
    assert [line.split(" in ")[0] for line in lake.lines] == [
        "archive: batch 0: 100 rows",
        "archive: batch 1: 100 rows",
        "archive: batch 2: 50 rows",
    ]
    stream.fill(50)
    lake.once()
    lake.once()
    assert lake.offsets() == [*range(300)]
    assert position(lake.checkpoint).done == 3
    assert delta.last_batch(str(lake.where), query_id(lake.checkpoint) or "") == 3


@pytest.mark.parametrize("dies", ["planned", "in the table"])
def test_a_micro_batch_that_was_cut_off_is_in_the_table_once(lake: Lake, dies: str):
    lake.broker.stream("orders").fill(120)
    with pytest.raises(Cut):
        lake.once(Fragile(lake.checkpoint, dies), maxOffsetsPerTrigger="70")
    assert (position(lake.checkpoint).planned, position(lake.checkpoint).done) == (0, -1)
    lake.broker.stream("orders").fill(30)
    lake.once(startingOffsets="latest")  # the first micro-batch is the one that was planned
    assert lake.offsets() == [*range(150)]


class Clock:
    """A time that passes only while a run sleeps. At each of some seconds something happens, and the last of them is a
    request to stop."""

    def __init__(self, *events: tuple[float, Callable[[], object]]) -> None:
        self.at = 0.0
        self.stop = Stop()
        self._events = list(events)

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        while self._events and self._events[0][0] <= self.at + 0.001:
            self._events.pop(0)[1]()
        if not self._events:
            self.stop.asked = 1


def go_on(
    lake: Lake, clock: Clock, every_s: float = 10, checkpoint: ArchiveCheckpoint | None = None, **given: str
) -> list[QueryProgress]:
    """Run until the clock asks it to stop, and return what was reported."""
    found: list[QueryProgress] = []
    with lake.run(checkpoint, now=clock.now, retrySeconds="0", **given) as run:
        report = Report("archive", lake.lines.append)
        run.run_on(report, clock.stop, every_s, found.append, clock.sleep)
    return found


def test_a_run_that_goes_on_archives_what_comes(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(250)
    clock = Clock((5, lambda: stream.fill(40)), (15, lambda: stream.fill(10)), (25, lambda: None))
    found = go_on(lake, clock, maxOffsetsPerTrigger="100")
    # The first three follow each other at once, as each but the third has left messages.
    assert [each.rows for each in found] == [100, 100, 50, 40, 10]
    assert [each.batch for each in found] == [*range(5)]
    assert found[0].behind == 150
    assert lake.offsets() == [*range(300)]
    assert position(lake.checkpoint).done == 4
    lake.agreed()  # a run of another kind goes on there
    assert lake.lines[-1].startswith("archive: batch 4: 10 rows")


def test_a_run_that_goes_on_waits_for_as_many_messages_as_it_is_told(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(10)
    clock = Clock((15, lambda: stream.fill(90)), (25, lambda: None))
    found = go_on(lake, clock, minOffsetsPerTrigger="100")
    assert [each.rows for each in found] == [100]


def test_a_super_stream_and_streams_are_archived_as_they_come(lake: Lake):
    parts = lake.broker.super_stream("orders", 2)
    other = lake.broker.stream("refunds")

    def grow() -> None:
        parts.append(lake.broker.stream("orders-2"))
        lake.broker.supers["orders"].append("orders-2")
        for each in (*parts, other):
            each.fill(10)

    go_on(lake, Clock((5, grow), (15, lambda: None)), subscribe="orders,refunds")
    rows = polars.read_delta(str(lake.where)).group_by("stream", "partition").len()
    assert sorted(rows.rows()) == [
        ("orders", 0, 10),
        ("orders", 1, 10),
        ("orders", 2, 10),
        ("refunds", 0, 10),
    ]


def test_a_broker_that_is_gone_is_waited_for_also_within_a_micro_batch(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(100)
    faults = lake.broker.faults

    def restart() -> None:
        stream.fill(100)
        faults.extend(["hang up"] * 3)  # and again when the micro-batch is planned, and half read

    def half_way() -> None:
        assert lake.lines[-1].endswith("trying again in 2 s")

    events = [
        (5.0, restart),
        (11.0, lambda: faults.extend(["hang up"] * 2)),
        (12.0, half_way),
        (60.0, lambda: None),
    ]
    found = go_on(lake, Clock(*events))
    assert [each.rows for each in found] == [100, 100]
    assert lake.offsets() == [*range(200)]


def test_a_password_that_changes_is_read_again_and_waited_for(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stream, password = lake.broker.stream("orders"), tmp_path / "password"
    password.write_text("guest")
    stream.fill(10)

    def rotate() -> None:
        lake.broker.user = ("guest", "another")  # before the file has it
        stream.fill(10)

    clock = Clock((5, rotate), (12, lambda: password.write_text("another")), (60, lambda: None))
    go_on(lake, clock, passwordFile=str(password))
    assert lake.offsets() == [*range(20)]
    assert any("does not let 'guest' in" in line for line in lake.lines)
    lake.broker.user = ("guest", "a third")
    with pytest.raises(Unauthorized):  # from the start: nothing says that this will change
        go_on(lake, Clock((60, lambda: None)), passwordFile=str(password))


@pytest.mark.parametrize("dies", ["planned", "in the table"])
def test_a_run_that_goes_on_and_is_killed_repeats_nothing(lake: Lake, dies: str):
    stream = lake.broker.stream("orders")
    stream.fill(70)
    with pytest.raises(Cut):
        go_on(lake, Clock((60, lambda: None)), checkpoint=Fragile(lake.checkpoint, dies))
    stream.fill(30)
    go_on(lake, Clock((15, lambda: None)))
    assert lake.offsets() == [*range(100)]


def test_a_run_that_goes_on_settles_what_is_in_the_table_when_it_ends(lake: Lake):
    queue = lake.broker.queue("jobs")
    queue.fill(150)
    go_on(lake, Clock((5, lambda: None)), subscribe="jobs", readerName="lake", maxOffsetsPerTrigger="100")
    lease = queue.leases["lake"]
    assert (len(queue.ready), lease.first, lease.next) == (0, 150, 150)


def test_a_run_with_nothing_to_do_reports_every_minute(lake: Lake):
    lake.broker.stream("orders").fill(10)
    found = go_on(lake, Clock((215, lambda: None)))
    assert [(each.rows, each.batch, each.behind) for each in found] == [(10, 0, 0), *[(0, 0, 0)] * 3]


def test_the_command_goes_on_without_spark_until_a_signal(node: LocalNode, tmp_path: Path):
    pika = need_module("pika")
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        words = ["pipeline", "archive", "orders", str(tmp_path / "lake"), "--endpoint", node.url]
        words += ["--continuous", "--every", "100ms"]
        with subprocess.Popen(
            [sys.executable, "-m", "leveret", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert "and what comes: with pyarrow in this process" in process.stderr.readline()
            for number in range(2):
                channel.basic_publish("", "orders", b"%d" % number)
                assert process.stderr.readline().startswith(f"archive: batch {number}: 1 rows in ")
            process.send_signal(signal.SIGTERM)
            assert process.stderr.readline().startswith("archive: stopped: 2 rows in 2 batches")
            assert process.wait() == 0
    assert polars.read_delta(str(tmp_path / "lake"))["body"].sort().to_list() == [b"0", b"1"]


def test_the_command_goes_on_where_its_broker_was_killed_and_started_again(node: LocalNode, tmp_path: Path):
    pika = need_module("pika")

    def publish(first: int) -> None:
        with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
            channel.confirm_delivery()
            for number in range(first, first + 10):
                channel.basic_publish("", "orders", b"%d" % number)

    publish(0)
    words = ["pipeline", "archive", "orders", str(tmp_path / "lake"), "--endpoint", node.url]
    with subprocess.Popen(
        [sys.executable, "-m", "leveret", *words, "--continuous", "--every", "100ms"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        assert process.stderr.readline().startswith("archive: batch 0: 10 rows in ")
        node.kill()
        line = process.stderr.readline()
        while "no broker answers at" not in line:  # of the report that the broker did not take
            line = process.stderr.readline()
        node.start()
        publish(10)
        rows = 10
        while rows < 20:  # a micro-batch may have some of them
            line = process.stderr.readline()
            assert line, "it has ended"
            rows += sum(map(int, re.findall(r"^archive: batch \d+: (\d+) rows in ", line)))
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait() == 0
    bodies = polars.read_delta(str(tmp_path / "lake"))["body"].cast(polars.String).cast(polars.Int64)
    assert bodies.sort().to_list() == [*range(20)]


def test_files_that_no_commit_names_are_not_in_the_table(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(3000)
    lake.once()
    stream.fill(3000)
    whole = stream.blocks[45]
    stream.blocks[45] = whole[:-1] + b"x"
    with pytest.raises(PipelineError, match="after offset"):
        lake.once(fetchBytes="65536")
    assert lake.offsets() == [*range(3000)]
    stream.blocks[45] = whole
    lake.once()
    assert lake.offsets() == [*range(6000)]


def test_two_runs_with_one_checkpoint_add_a_micro_batch_once(lake: Lake):
    """On a file system without locks, where both begin."""
    lake.broker.stream("orders").fill(100)
    with pytest.raises(Cut):
        lake.once(Fragile(lake.checkpoint, "planned"))
    with lake.run() as first, lake.run() as second:  # both go on with the micro-batch that was planned
        for run in (first, second):
            assert run.run(Report("archive", lake.lines.append), Stop())
    assert lake.offsets() == [*range(100)]

    lake.broker.stream("orders").fill(100)
    with pytest.raises(PipelineError, match="another run goes on at the checkpoint"):
        lake.once(Overtaken(lake.checkpoint))


def test_a_run_that_is_overtaken_between_two_micro_batches_repeats_nothing(lake: Lake):
    """On a file system without locks: the start of a micro-batch and its number are those of one moment."""
    lake.broker.stream("orders").fill(300)

    class Slow(QueryCheckpoint):
        """A checkpoint at which another run does everything before the first look is over."""

        is_first = True

        def position(self) -> Position:
            found = super().position()
            if self.is_first:
                self.is_first = False
                lake.once(maxOffsetsPerTrigger="100")
            return found

    with pytest.raises(PipelineError, match="another run goes on at the checkpoint"):
        lake.once(Slow(lake.checkpoint), maxOffsetsPerTrigger="100")
    lake.once()
    assert lake.offsets() == [*range(300)]


def test_the_log_refuses_offsets_that_another_checkpoint_has_added(lake: Lake):
    lake.broker.stream("orders").fill(100)
    with lake.run(QueryCheckpoint(lake.checkpoint.with_name("other"))) as run:
        lake.once()
        with pytest.raises(
            PipelineError, match=r"has the offsets up to 99 of partition 0 of 'orders' already"
        ):
            run.run(Report("archive", lake.lines.append), Stop())
    lake.broker.stream("orders").fill(50)
    lake.agreed(QueryCheckpoint(lake.checkpoint.with_name("other")))
    lake.agreed()
    assert lake.offsets() == [*range(150)]


def test_a_second_run_ends_with_a_line_and_a_killed_one_leaves_no_lock(
    lake: Lake, capsys: pytest.CaptureFixture[str]
):
    lake.broker.stream("orders").fill(10)
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url, "--once"]
    with held(lake.checkpoint, now=lambda: NOON / 1000):
        assert main(words, {}) == 1
        assert f"process {os.getpid()} on {os.uname().nodename}, since 2026-11-27 12:00:00 UTC" in (
            capsys.readouterr().err
        )
    holder = "import sys, time; from pathlib import Path; from leveret.pipeline.jobs.run_lock import held\n"
    holder += "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(lake.checkpoint)], stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert main(words, {}) == 1
        process.kill()
        process.wait()
        assert main(words, {}) == 0
    assert lake.offsets() == [*range(10)]


def test_a_run_that_fails_leaves_no_checkpoint(lake: Lake, capsys: pytest.CaptureFixture[str]):
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url, "--once"]
    assert main(words, {}) == 1
    assert "orders" in capsys.readouterr().err
    assert not lake.checkpoint.exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_does_no_harm(lake: Lake, monkeypatch: pytest.MonkeyPatch, number: int):
    def refuse(lock: int, how: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
    with held(lake.checkpoint):
        (lake.checkpoint / "offsets").mkdir()
        (lake.checkpoint / "offsets/0").touch()
    assert lake.checkpoint.exists()


def test_a_lost_checkpoint_goes_on_where_the_table_ends(lake: Lake, tmp_path: Path):
    stream = lake.broker.stream("orders")
    stream.fill(100)
    lake.agreed()
    old = tmp_path / "old"
    shutil.copytree(lake.checkpoint, old)
    stream.fill(100)
    lake.agreed(maxOffsetsPerTrigger="50")
    shutil.rmtree(lake.checkpoint)
    stream.fill(50)
    lake.agreed(startingOffsets="latest")  # it is not new
    assert lake.lines[-2].endswith("it goes on where the table ends, with batch 1")
    assert lake.offsets() == [*range(250)]
    shutil.rmtree(lake.checkpoint)
    shutil.copytree(old, lake.checkpoint)
    stream.fill(50)
    lake.agreed()
    lake.agreed()
    assert lake.offsets() == [*range(300)]
    numbers = {each.name for each in (lake.checkpoint / "offsets").iterdir()}
    assert numbers == {"0", "1", "2", "3"}  # Spark wants those between, too


def test_a_lost_table_is_not_begun_in_the_middle(lake: Lake):
    lake.broker.stream("orders").fill(100)
    lake.agreed()
    shutil.rmtree(lake.where)
    with pytest.raises(PipelineError, match=r"has done batch 0, and .* has nothing of this query"):
        lake.agreed()
    assert not lake.where.exists()
    shutil.rmtree(lake.checkpoint)
    lake.agreed()
    assert lake.offsets() == [*range(100)]


def test_a_table_of_an_earlier_version_is_not_doubled(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    stream = lake.broker.stream("orders")
    stream.fill(100)
    with monkeypatch.context() as patch:
        patch.setattr(archive_local, "read_by", lambda ranges: {})
        lake.agreed()
    stream.fill(100)
    lake.agreed()  # with its checkpoint
    assert lake.offsets() == [*range(200)]
    with monkeypatch.context() as patch:
        patch.setattr(delta, "position_in", lambda *each: None)
        shutil.rmtree(lake.checkpoint)
        with pytest.raises(PipelineError, match=r"has rows of partition 0 of stream 'orders', and its log"):
            lake.agreed()
    lake.broker.stream("refunds").fill(10)
    shutil.rmtree(lake.checkpoint)
    lake.agreed(subscribe="refunds")  # of which there are none
    assert len(lake.offsets()) == 210


def test_a_table_that_is_elsewhere_needs_no_checkpoint(lake: Lake):
    assert checkpoint_for(Target("s3://lake/orders"), None) is None
    assert checkpoint_for(Target("/lake/orders"), None) == "/lake/orders.checkpoint"
    stream = lake.broker.stream("orders")
    for _ in range(3):
        stream.fill(70)
        lake.agreed(TableCheckpoint(str(lake.where), ["orders"]), maxOffsetsPerTrigger="50")
    versions = len([*(lake.where / delta.LOG).glob("*.json")])
    lake.agreed(TableCheckpoint(str(lake.where), ["orders"]))
    assert lake.offsets() == [*range(210)]
    assert len([*(lake.where / delta.LOG).glob("*.json")]) == versions
    with pytest.raises(
        BadOption, match=r"with Spark \(--engine spark says so\), s3://lake needs a checkpoint"
    ):
        why_not_here(Target("s3://lake"), None, Engine.SPARK, "local[*]", ())


def test_a_run_that_another_overtook_with_fewer_messages_does_not_skip_the_rest(lake: Lake):
    def begun() -> TableCheckpoint:
        return TableCheckpoint(str(lake.where), ["orders"])

    stream = lake.broker.stream("orders")
    stream.fill(10)
    lake.agreed(begun())
    with lake.run(begun()) as slow:
        slow.agree()
        stream.fill(10)
        lake.agreed(begun())
        stream.fill(10)  # the slow run plans up to here what has the same number in the table
        with pytest.raises(PipelineError, match="another run has added batch 1, which ends at offset 19"):
            slow.run(Report("archive", lake.lines.append), Stop())
    stream.fill(10)
    lake.agreed(begun())
    assert lake.offsets() == [*range(40)]


def test_of_two_drivers_that_commit_a_micro_batch_at_once_one_does(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    lake.broker.stream("orders").fill(100)
    with pytest.raises(Cut):
        lake.once(Fragile(lake.checkpoint, "planned"))
    before = delta.prepared

    def overtaken(where: str, by: Sequence[str], *more: object) -> deltalake.DeltaTable:
        """Return the table as it was before another driver commits the same micro-batch."""
        table = before(where, by, *more)  # type: ignore[arg-type]
        monkeypatch.setattr(delta, "prepared", before)
        lake.once()
        return table

    monkeypatch.setattr(delta, "prepared", overtaken)
    lake.once()
    assert [line.split(" in ")[0] for line in lake.lines] == [
        "archive: batch 0: 100 rows",
        "archive: batch 0: 0 rows",
    ]
    assert lake.offsets() == [*range(100)]


def test_the_log_refuses_a_micro_batch_that_is_in_the_table(lake: Lake):
    lake.broker.stream("orders").fill(10)
    lake.once()
    table = delta.found(str(lake.where))
    schema = table.schema().to_arrow()
    query = query_id(lake.checkpoint) or ""
    assert not delta.append(str(lake.where), ["day"], schema, [], delta.CommittedBatch(query, 0))
    assert delta.append(str(lake.where), ["day"], schema, [], delta.CommittedBatch(query, 1))
    assert lake.offsets() == [*range(10)]


def test_a_queue_moves_to_the_table_and_the_last_micro_batch_is_settled(lake: Lake):
    queue = lake.broker.queue("jobs")
    queue.fill(150)
    given = {"subscribe": "jobs", "readerName": "lake", "maxOffsetsPerTrigger": "100"}
    with pytest.raises(Cut):
        lake.once(Fragile(lake.checkpoint, "in the table"), **given)
    assert queue.leases["lake"].first == 0
    lake.once(**given)
    lease = queue.leases["lake"]
    assert (len(queue.ready), lease.first, lease.next) == (0, 150, 150)
    assert lake.offsets() == [*range(150)]
    times = delta.found(str(lake.where)).to_pyarrow_table(columns=["timestamp"])["timestamp"].to_pylist()
    arrived = sorted(round(each.timestamp() * 1000) for each in times)
    assert arrived == [*range(QUEUED_MS, QUEUED_MS + 150)]  # not when the lease was made


def test_an_archive_has_the_columns_that_are_asked_for(lake: Lake):
    lake.broker.stream("orders").fill(10)
    lake.once(by=(), columns="offset, body")
    table = delta.found(str(lake.where)).to_pyarrow_table()
    assert table.column_names == ["offset", "body"]
    assert table["body"].to_pylist() == [b"%d" % each for each in table["offset"].to_pylist()]
    assert table.num_rows == 10


@pytest.mark.parametrize(
    ("by", "names", "said"),
    [
        (("day",), "offset,body", "by day needs the column timestamp"),
        (("stream",), "offset,body", "by stream needs the column stream"),
        ((), "offset,bodies", "names 'bodies'; an archive can have body, exchange"),
    ],
)
def test_columns_that_make_no_archive_are_refused(lake: Lake, by: tuple[str, ...], names: str, said: str):
    lake.broker.stream("orders").fill(1)
    with pytest.raises(BadOption, match=said):
        lake.once(by=by, columns=names)


def test_messages_that_are_gone_end_a_run_or_are_passed_over(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(100)
    lake.once()
    stream.fill(300)
    stream.drop(300)
    with pytest.raises(DataLoss, match="offsets 100 to 299 are gone"):
        lake.once()
    lake.once(failOnDataLoss="false")
    assert lake.offsets() == [*range(100), *range(300, 400)]


def test_a_table_is_partitioned_by_times_and_names(lake: Lake):
    first, second = lake.broker.super_stream("orders", 2)
    first.publish(message(b"a", key="eu"), message(b"b", key=""), arrived=NOON)
    first.publish(message(b"c", key="eu"), arrived=NOON + DAY)
    second.publish(message(b"d", key="us: \xe9/%x"), arrived=NOON)
    lake.once(by=("day", "hour", "routing_key"))
    rows = polars.read_delta(str(lake.where)).sort("body")
    days = [f"{each:%d}" for each in rows["day"]]
    assert days == ["27", "27", "28", "27"]
    assert rows["hour"].to_list() == ["2026-11-27-12", "2026-11-27-12", "2026-11-28-12", "2026-11-27-12"]
    assert rows["routing_key"].to_list() == ["eu", None, "eu", "us: \xe9/%x"]
    assert rows["timestamp"][0] == datetime(2026, 11, 27, 12, tzinfo=UTC)
    assert sorted(each.rows or 0 for each in delta.committed(delta.found(str(lake.where)))) == [1, 1, 1, 1]


def test_a_table_is_partitioned_by_a_header(lake: Lake, capsys: pytest.CaptureFixture[str]):
    lake.broker.stream("orders").publish(
        message(b"a", headers={"country": "FI", "n": 1}),
        message(b"b", headers={"country": "SE"}),
        message(b"c"),
        message(b"d", headers={"n": 1}),
        message(b"e", headers={"country": ""}),
        message(b"f", headers={"country": "FI"}),
    )
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url]
    assert main([*words, "--partition-by", "header:country"], {}) == 0
    rows = polars.read_delta(str(lake.where)).sort("body")
    assert rows["header_country"].to_list() == ["FI", "SE", None, None, None, "FI"]
    assert (lake.where / "header_country=FI").is_dir()
    assert main([*words, "--partition-by", "day"], {}) == 2
    assert "is partitioned by header_country, not by day" in capsys.readouterr().err
    assert main([*words, "--partition-by", "header_country"], {}) == 0
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--partition-by", "header:a b"], {})
    none = ["--option", "headersFormat=none", "--partition-by", "header:country"]
    assert main([*words[:3], str(lake.where.with_name("other")), *words[4:], *none], {}) == 2
    assert "an archive by header_country needs the column headers" in capsys.readouterr().err


def test_headers_of_every_type_are_texts_in_the_table(lake: Lake):
    headers = {
        "text": "caf\xe9",
        "whole": -7,
        "large": 1 << 40,
        "half": 0.5,
        "yes": True,
        "none": None,
        "octets": b"\xff\x00",
        "price": Decimal("1.25"),
        "at": Timestamp(NOON // 1000),
        "list": ["a", 1, [True]],
        "table": {"a": {"b": 2}},
    }
    lake.broker.stream("orders").publish(
        message(b"a", headers=headers), message(b"b"), message(b"c", headers={})
    )
    lake.once()
    table = delta.found(str(lake.where)).to_pyarrow_table()
    found = [None if each is None else dict(each) for each in table["headers"].to_pylist()]
    assert found[1:] == [None, {}]
    assert found[0] == {
        "text": "caf\xe9",
        "whole": "-7",
        "large": "1099511627776",
        "half": "0.5",
        "yes": "true",
        "none": None,
        "octets": "\\xff\x00",
        "price": "1.25",
        "at": str(NOON // 1000),
        "list": '["a", 1, [true]]',
        "table": '{"a": {"b": 2}}',
    }


def test_a_table_with_other_columns_or_partitions_is_refused(lake: Lake):
    lake.broker.stream("orders").fill(10)
    lake.once()
    lake.broker.stream("orders").fill(10)
    with pytest.raises(BadOption, match="partitioned by day, not by none"):
        lake.once(by=())
    with pytest.raises(BadOption, match=r"other columns .* headers"):
        lake.once(headersFormat="none")
    with pytest.raises(BadOption, match="headers as a map of texts"):
        lake.once(headersFormat="variant")


def test_an_archive_of_an_earlier_version_keeps_its_columns(lake: Lake):
    options = read_options({"endpoints": "a", "subscribe": "orders"}, Use.STREAM)
    target = Target(str(lake.where))
    every = layout_of(target, options).columns.names
    assert {*LATER} < {*every}
    lake.broker.stream("orders").fill(10)
    lake.once(columns=",".join(name for name in every if name not in LATER))
    earlier = layout_of(target, options).columns.names
    assert earlier == [name for name in every if name not in LATER]


def test_only_a_spark_that_is_needed_is_started():
    here = Target("/lake/orders")

    def why(engine: Engine = Engine.AUTO, target: Target = here, **given: object) -> str | None:
        said: dict[str, object] = {"master": "local[*]", "settings": (), **given}
        return why_not_here(target, "/lake/c", engine, **said)  # type: ignore[arg-type]

    assert why() is None
    assert why(Engine.SPARK) == "--engine spark says so"
    assert why(master="spark://head:7077") == why(settings=("k=v",)) == "--master or --spark is given"
    assert why(Engine.PYARROW, master="spark://head:7077") is None
    assert why(target=Target("/lake/orders", "parquet")) is not None
    with pytest.raises(BadOption, match="--engine pyarrow cannot do this: a folder of Parquet"):
        why(Engine.PYARROW, Target("/lake/orders", "parquet"))
    few, many = Backlog(10, 1000), Backlog(MESSAGES_MAX + 1, 1000)
    assert reason(few, Engine.AUTO)[0]
    is_here, line = reason(many, Engine.AUTO)
    assert not is_here
    assert "with Spark, which is quicker above 10,000,000 messages or 4 GiB" in line
    assert reason(many, Engine.PYARROW)[0]
    assert reason(many, Engine.AUTO, goes_on=True) == (
        True,
        "10,000,001 messages, about 1,000 bytes, and what comes: with pyarrow in this process, which needs no Spark",
    )


def test_the_command_says_what_was_chosen_and_starts_no_java(
    lake: Lake, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    lake.broker.stream("orders").fill(10)
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url, "--once"]
    assert main([*words, "--metrics", str(tmp_path / "metrics")], {}) == 0
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == (
        "archive: 10 messages, about 10 bytes: with pyarrow in this process, which needs no Spark up to"
        " 10,000,000 messages or 4 GiB"
    )
    assert second.startswith("archive: batch 0: 10 rows in ")
    assert third.startswith("archive: done: 10 rows in 1 batch, ")
    done = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert [each["rows"] for each in done] == [10, 10]
    assert main([*words, "--format", "parquet"], {}) == 2
    assert "is a table of format delta, not parquet" in capsys.readouterr().err


def test_a_full_disk_is_told_with_its_place(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    lake.broker.stream("orders").fill(10)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_files, "sync_file", full)
    with pytest.raises(PipelineError, match=r"/lake cannot be written: No space left on device"):
        lake.once()
    assert not [*lake.where.rglob("*.parquet")]


def test_a_full_disk_of_a_checkpoint_is_told_with_its_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    lake.broker.stream("orders").fill(10)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "sync_file", full)
    assert main(["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url], {}) == 1
    assert capsys.readouterr().err.endswith(f"leveret: {lake.checkpoint}/metadata: No space left on device\n")


def test_the_broker_knows_how_far_an_archive_is(lake: Lake):
    stream = lake.broker.stream("orders")
    stream.fill(250)
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url, "--once"]
    assert main([*words, "--batch", "100"], {}) == 0
    name = f"archive orders to {lake.where}"
    said = lake.broker.pipelines[name]
    (partition,) = said["partitions"]
    assert (said["rows"], said["batch"], partition["position"], partition["behind"]) == (250, 2, 250, 0)
    lake.broker.pipelines.clear()
    assert main(words, {}) == 0  # with nothing to do
    (said,) = lake.broker.pipelines.values()
    assert (said["rows"], said["batch"], said["partitions"]) == (0, 2, [partition])


def test_an_old_folder_of_parquet_stays_one_until_it_is_converted(tmp_path: Path):
    (tmp_path / "old/_spark_metadata").mkdir(parents=True)
    assert format_for(str(tmp_path / "old"), None) == "parquet"
    assert format_for(str(tmp_path / "new"), None) == "delta"
    with pytest.raises(BadOption, match="`leveret pipeline convert"):
        format_for(str(tmp_path / "old"), "delta")
