"""Jobs without Spark: what they are told, what they would do, how far queries are, how they end."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from leveret.pipeline.client import Client
from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs.activity import SparkLog
from leveret.pipeline.jobs.archive import LOG, Target, require_checkpoint
from leveret.pipeline.jobs.checkpoints import position
from leveret.pipeline.jobs.dry_run import planned
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.jobs.java_process import JavaEnded, java_named
from leveret.pipeline.jobs.job_options import JobOptions, sorted_options
from leveret.pipeline.jobs.lag import LeaseLag, measured
from leveret.pipeline.jobs.route import function_named, routed
from leveret.pipeline.jobs.run import (
    STARTS_MAX,
    Report,
    Stop,
    WrittenRows,
    behind,
    done_in,
    on_a_busy_machine,
    patiently,
    told_again,
    watch,
)
from leveret.pipeline.offsets import Mark
from leveret.server.cli import extensions, main, parser
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, said

need_module("pyspark")

from leveret.pipeline.jobs import commands  # noqa: E402

LEASES = "/api/leveret/leases/%2F"


class Broker(FakeBroker):
    """One with leases, and queues that are no streams."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[dict[str, object]] = []
        self.queues: set[str] = set()

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        if target.startswith(LEASES):
            return said(200, self.leases)
        if target.rpartition("/")[2] in self.queues:
            return said(400, {"reason": "it is no stream", "is_queue": True})
        return super().answer(target)


@pytest.fixture
def broker() -> Iterator[Broker]:
    from tests.pipeline.bulk import serving

    with serving(Broker()) as broker:
        yield broker  # type: ignore[misc]


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    client = BrokerEndpoint(broker.url).client()
    yield client
    client.close()


def lease(queue: str, reader: str, first: int, next_: int, ready: int) -> dict[str, object]:
    numbers = {"first": first, "next": next_, "messages": next_ - first, "octets": 1, "ready": ready}
    return {"queue": queue, "reader": reader, "incarnation": f"{queue}@{reader}", **numbers}


def checkpoint(folder: Path, *batches: object, done: int | None = None) -> Path:
    """As Spark makes it. `batches`: the offsets at the end of each; all but the last are done, or `done` of them."""
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
    for number, offsets in enumerate(batches):
        lines = ["v1", '{"batchWatermarkMs":0}', "-", json.dumps(offsets), '{"logOffset":3}']
        (folder / "offsets" / str(number)).write_text("\n".join(lines))
        if number < (len(batches) - 1 if done is None else done):
            (folder / "commits" / str(number)).write_text("v1\n{}")
    (folder / "offsets" / ".2.crc").write_bytes(b"")
    (folder / "metadata").write_text("{}")
    return folder


def at(offset: int, incarnation: str = "orders#1") -> dict[str, object]:
    return {"next": offset, "id": incarnation, "from": 0}


# The command line.


def test_a_command_of_another_package_is_loaded_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    loaded: list[str] = []

    def found() -> Iterator[tuple[str, extensions.Command]]:
        loaded.append("all")
        yield from ()

    monkeypatch.setattr(extensions, "found", found)
    parser({}).parse_args(["status"])
    assert loaded == []
    with pytest.raises(SystemExit):
        parser({}).parse_args(["dance"])
    assert loaded == ["all"]


def test_help_lists_it(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--help"], {})
    assert ended.value.code == 0
    assert "pipeline" in capsys.readouterr().out


def test_what_cannot_be_loaded_is_told_and_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    class Broken:
        name = "broken"

        def load(self) -> object:
            raise ImportError("no module named x")

    monkeypatch.setattr("leveret.server.cli.extensions.installed", lambda group: [Broken()])
    assert list(extensions.found()) == []
    assert capsys.readouterr().err == "leveret: the command 'broken' cannot be loaded: no module named x\n"


WRONG = [
    ["archive", "orders"],
    ["archive", "orders", "lake", "--partition-by", "month"],
    ["archive", "orders", "lake", "--continuous", "--available-now"],
    ["archive", "orders", "lake", "--every", "soon"],
    ["archive", "orders", "lake", "--batch", "0"],
    ["dead-letters", "dead", "--most", "0"],
    ["archive", "orders", "lake", "--option", "failOnDataLoss"],
    ["replay", "lake"],
    ["replay", "lake", "--to-exchange", "x", "--from", "yesterday"],
    ["replay", "lake", "--to-exchange", "x", "--rate", "-1"],
    ["route", "orders", "--to-exchange", "x", "--sql", "select 1"],
    ["route", "orders", "--to-exchange", "x", "--checkpoint", "c"],
    ["route", "orders", "--to-exchange", "x", "--checkpoint", "c", "--function", "shop"],
    ["dead-letters", "dead", "--csv", "--json"],
    ["lag"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_usage_is_exit_code_2(words: list[str]):
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *words], {})
    assert ended.value.code == 2


def test_what_is_said_reaches_the_job():
    words = "archive a b lake --partition-by hour,stream --continuous --every 5m --spark k=v=w"
    options = parser({"LEVERET_URL": "http://b:1", "LEVERET_USER": "ann"}).parse_args(
        ["pipeline", *words.split()]
    )
    assert (options.sources, options.target, options.partition_by) == (["a", "b"], "lake", ("hour", "stream"))
    assert (options.every, options.spark) == ("5 minutes", [("k", "v=w")])
    assert (options.endpoint, options.user) == ("http://b:1", "ann")
    words = "replay lake --to-exchange x --from 2026-11-22 --until 2026-11-22T01:00+01:00"
    options = parser({}).parse_args(["pipeline", *words.split()])
    assert options.since == options.until == 1_795_305_600_000


@pytest.mark.parametrize(
    ("code", "given"),
    [
        (1, ["nowhere"]),
        (3, ["orders", "--user", "mallory"]),
        (2, ["orders", "--endpoint", "ftp://x"]),
        (3, ["orders", "--endpoint", "http://127.0.0.1:9", "--option", "retrySeconds=0"]),
        (2, ["orders", "--option", "retrySecond=0"]),
        (1, ["jobs"]),
    ],
)
def test_what_is_wrong_is_known_without_spark(
    broker: Broker, code: int, given: list[str], capsys: pytest.CaptureFixture[str]
):
    broker.stream("orders")
    broker.queues = {"jobs"}
    source, *more = given
    words = ["archive", source, "lake", "--dry-run", "--endpoint", broker.url, *more]
    assert main(["pipeline", *words], {}) == code
    assert capsys.readouterr().err.count("\n") == 1


SINK = ["--to-exchange", "x"]
ROUTE = ["route", "orders", *SINK, "--checkpoint", "c", "--sql", "select 1"]


@pytest.mark.parametrize(
    ("words", "option", "said"),
    [
        (
            ["archive", "orders", "lake"],
            "mandatory=false",
            "option mandatory is of no use here: this command publ",
        ),
        (["archive", "orders", "lake"], "subscribe=x", "option subscribe: the argument SOURCE says that"),
        (
            ["replay", "lake", *SINK],
            "startingOffsets=latest",
            "this command reads no messages from the broker",
        ),
        (["replay", "lake", *SINK], "delivery=at-least-once", "a replay is always staged"),
        (
            ["replay", "lake", *SINK],
            "mandatory=perhaps",
            "option mandatory is 'perhaps': must be true or false",
        ),
        (["replay", "lake", *SINK], "mandatroy=false", "unknown option 'mandatroy'; did you mean mandatory?"),
        (["replay", "lake", *SINK], "Exchange=y", "option Exchange: --to-exchange says that"),
        (ROUTE, "exchange=y", "option exchange: --to-exchange says that"),
        (ROUTE, "queue=y", "unknown option 'queue': name streams"),
        (["dead-letters", "dead"], "failOnDataLoss=false", "reads no messages from the broker"),
        (["lag", "c"], "selector=x", "reads no messages from the broker"),
        (["check", "lake"], "topic=x", "unknown option 'topic'"),
    ],
)
def test_an_option_that_does_nothing_is_refused(
    words: list[str], option: str, said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["pipeline", *words, "--option", option], {}) == 2
    assert said in capsys.readouterr().err


def test_options_go_to_the_side_that_knows_them():
    given = [("retrySeconds", "1"), ("Mandatory", "false"), ("failondataloss", "false")]
    found = sorted_options(given, reads=True, writes=True, fields={})
    assert found == JobOptions({"retrySeconds": "1"}, {"failondataloss": "false"}, {"Mandatory": "false"})


def test_an_error_of_sparks_is_told_in_our_words_or_its_first_line():
    trace = "[FAILED] x\nTraceback:\n  File y\nleveret.pipeline.errors.DataLoss: offsets 1 to 2 are gone\n\tat java\n"
    assert commands.what_spark_says(trace) == ("DataLoss", "offsets 1 to 2 are gone")
    trace = "[FAILED] Query x\nTraceback:\n  File y\nZeroDivisionError: division by zero\n\tat java\n"
    assert commands.what_spark_says(trace) == ("", "ZeroDivisionError: division by zero")
    assert commands.what_spark_says("[COLUMN] no column\nPlan:\n") == ("", "[COLUMN] no column")
    trace = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"\n\tat java'
    assert commands.what_spark_says(trace)[1].startswith(
        "Spark knows no s3:// URIs: it needs Hadoop's package"
    )


# Dry runs.


def test_a_dry_run_tells_what_a_query_would_read(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    broker.stream("orders").fill(100)
    broker.super_stream("mails", 2)[1].fill(20)
    broker.queues = {"jobs", "more"}
    broker.leases = [lease("jobs", "other", 0, 9, 9), lease("jobs", "lake", 5, 8, 4)]
    target = tmp_path / "lake"
    checkpoint(tmp_path / "lake.checkpoint", {"orders": {"0": at(70)}}, {"orders": {"0": at(90)}})
    words = ["archive", "orders", "mails", "jobs", "more", str(target), "--reader", "lake", "--dry-run"]
    assert main(["pipeline", *words, "--endpoint", broker.url], {}) == 0
    assert capsys.readouterr().out.splitlines() == [
        "stream 'orders': 30 messages from offset 70, about 57 bytes",
        "stream 'mails': 0 messages from offset 0, about 0 bytes",
        "stream 'mails', partition 1: 20 messages from offset 0, about 30 bytes",
        "queue 'jobs': 7 messages from offset 5",
        "queue 'more': all waiting messages; their number is known once the queue has been read under this name",
        "in all: 57 messages",
        f"to delta at {target}, partitioned by day",
        f"checkpoint {target}.checkpoint",
    ]
    assert not target.exists()
    assert all("/blocks" not in asked for asked in broker.asked)


def test_a_query_that_is_new_begins_where_it_is_told_and_one_made_anew_at_its_beginning(
    broker: Broker, client: Client
):
    broker.stream("orders").fill(10)
    assert [each.first for each in planned(["orders"], {}, "latest", client, [], None)] == [10]
    read = {("orders", 0): Mark(7, "orders#1")}
    assert [each.messages for each in planned(["orders"], read, "latest", client, [], None)] == [3]
    broker.stream("orders").remake()
    broker.stream("orders").fill(4)
    assert [each.messages for each in planned(["orders"], read, "latest", client, [], None)] == [4]


# Lag.


def test_a_checkpoint_says_which_batch_is_in_the_sink(tmp_path: Path):
    found = position(checkpoint(tmp_path / "a", {"orders": {"0": at(5)}}, {"orders": {"0": at(9)}}))
    assert (found.planned, found.done, found.marks) == (1, 0, {("orders", 0): Mark(5, "orders#1", 0)})
    assert position(checkpoint(tmp_path / "b", {"orders": {"0": at(5)}}, done=0)).marks == {}
    with pytest.raises(PipelineError, match="no checkpoint of a streaming query"):
        position(tmp_path)
    with pytest.raises(PipelineError, match="no offsets of the source 'amqp'"):
        position(checkpoint(tmp_path / "c", {"topic": {"0": 5}}, done=1))
    (tmp_path / "b/offsets/0").write_text("v2\n{}\n{}")
    (tmp_path / "b/commits/0").write_text("")
    with pytest.raises(PipelineError, match="version 'v2'"):
        position(tmp_path / "b")


def test_lag_is_what_is_behind_the_sink(broker: Broker, client: Client, tmp_path: Path):
    broker.stream("orders").fill(10)
    first, second = broker.super_stream("mails", 2)
    first.fill(300)
    first.drop(200)
    second.fill(5)
    second.remake()
    marks = {
        "orders": {"0": at(4)},
        "mails": {"0": at(150, "mails-0#1"), "1": at(5, "mails-1#1"), "2": at(1, "mails-2#1")},
        "gone": {"0": at(3, "gone#1")},
        "jobs": {"0": at(6, "jobs@lake")},
    }
    leases = [LeaseLag("jobs", "lake", "jobs@lake", 6, 8, 2, 1, 40)]
    folder = checkpoint(tmp_path / "c", marks, done=1)
    found = {(each.source, each.partition): each for each in measured([folder], client, leases, now=31.0)}
    orders = found["orders", 0]
    assert (orders.position, orders.end, orders.behind, orders.behind_s, orders.trouble) == (
        4,
        10,
        6,
        30.0,
        None,
    )
    assert (found["mails", 0].behind, found["mails", 0].trouble) == (150, "50 messages are gone unread")
    assert (found["mails", 1].behind, found["mails", 1].trouble) == (None, "deleted and made anew")
    assert found["mails", 2].trouble == "no such partition"
    assert "there is no stream 'gone'" in (found["gone", 0].trouble or "")
    jobs = found["jobs", 0]
    assert (jobs.kind, jobs.leased, jobs.ready, jobs.behind, jobs.reader) == ("queue", 2, 40, 42, "lake")


def test_the_command_tells_the_lag(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broker.stream("orders").fill(1234)
    folder = checkpoint(tmp_path / "lake.checkpoint", {"orders": {"0": at(1234)}}, done=1)
    assert main(["pipeline", "lag", str(folder), "--endpoint", broker.url, "--json"], {}) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["position"], row["behind"], row["behind_s"]) == (1234, 0, 0.0)
    broker.stream("orders").fill(6)
    assert main(["pipeline", "lag", str(folder), "--endpoint", broker.url], {}) == 0
    head, line, total = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["checkpoint", "source", "partition"]
    assert line.split()[:5] == ["lake.checkpoint", "orders", "0", "1234", "1240"]
    assert total == "6 messages behind in all"
    assert main(["pipeline", "lag", str(tmp_path), "--endpoint", broker.url], {}) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["--max-behind", "6"], 0),
        (["--max-behind", "5"], 1),
        (["--max-age", "99999999999"], 0),
        (["--max-age", "60"], 1),
        (["--max-behind", "6", "--max-age", "60"], 1),
    ],
)
def test_lag_is_a_condition_of_what_comes_next(broker: Broker, tmp_path: Path, words: list[str], code: int):
    broker.stream("orders").fill(10)
    folder = checkpoint(tmp_path / "lake.checkpoint", {"orders": {"0": at(10)}}, done=1)
    lag = ["pipeline", "lag", str(folder), "--endpoint", broker.url]
    assert main([*lag, "--max-behind", "0", "--max-age", "0"], {}) == 0
    broker.streams["orders"].fill(6)
    assert main([*lag, *words], {}) == code


def test_a_lag_that_is_unknown_is_too_much(broker: Broker, tmp_path: Path):
    broker.stream("orders").remake()
    folder = checkpoint(tmp_path / "lake.checkpoint", {"orders": {"0": at(10)}}, done=1)
    unread = checkpoint(tmp_path / "unread.checkpoint", {"orders": {"0": at(10)}}, done=0)
    for each in (folder, unread):
        lag = ["pipeline", "lag", str(each), "--endpoint", broker.url]
        assert main(lag, {}) == 0
        assert main([*lag, "--max-behind", "1000"], {}) == 1
        assert main([*lag, "--max-age", "1000"], {}) == 1


# Progress.


def progress(batch: int, rows: int, end: int, latest: int) -> dict[str, object]:
    source = {"endOffset": {"orders": {"0": at(end)}}, "latestOffset": {"orders": {"0": at(latest)}}}
    other = {"endOffset": 7, "latestOffset": 9}
    return {"batchId": batch, "numInputRows": rows, "batchDuration": 500, "sources": [source, other]}


def test_progress_says_how_far_a_query_is_behind():
    done = done_in(progress(3, 40, 60, 100))
    assert (done.number, done.rows, done.seconds, done.behind) == (3, 40, 0.5, 40)
    assert behind({"sources": [{"endOffset": None, "latestOffset": None}]}) is None


def test_a_report_is_lines_for_people_and_for_programs():
    lines: list[str] = []
    metrics = StringIO()
    times = iter([0.0, 1.0, 4.0, 4.0])
    report = Report("archive", lines.append, metrics, lambda: next(times))
    report.batch(0, 3000, 1.5, 200)
    report.end("done")
    assert lines == [
        "archive: batch 0: 3,000 rows in 1.5 s, 2,000 rows/s, 200 behind",
        "archive: done: 3,000 rows in 1 batch, 4.0 s, 750 rows/s",
    ]
    first, last = map(json.loads, metrics.getvalue().splitlines())
    assert (first["job"], first["batch"], first["rows"], first["behind"]) == ("archive", 0, 3000, 200)
    assert (last["end"], last["batches"], last["rows_per_s"]) == ("done", 1, 750)
    assert "published" not in first


def test_rows_that_no_queue_took_are_told(tmp_path: Path):
    lines: list[str] = []
    metrics = StringIO()
    report = Report("replay", lines.append, metrics, lambda: 1.0)
    report.batch(0, 5, 1.0, 0, unroutable=2)
    report.end("done")
    assert [line.split(" in ")[0] for line in lines] == [
        "replay: batch 0: 5 rows, of which 2 reached no queue",
        "replay: done: 5 rows, of which 2 reached no queue",
    ]
    assert [json.loads(line)["unroutable"] for line in metrics.getvalue().splitlines()] == [2, 2]
    log = tmp_path / "log"
    log.write_text("micro-batch 1: 7 rows matched no queue and are gone\n")
    spark = SparkLog(log)
    with log.open("a") as more:
        more.write(
            "INFO x\nmicro-batch 1: 7 rows matched no queue and are gone (option mandatory=false)\n" * 2
        )
    assert spark.unroutable() == 14


def test_rows_that_are_read_are_told_from_rows_that_are_published():
    lines: list[str] = []
    done = done_in({**progress(3, 40, 60, 100), "observedMetrics": {"published": {"rows": 12}}})
    report = Report("route", lines.append, None, lambda: 0.0)
    report.batch(done.number, done.rows, done.seconds, done.behind, done.published)
    report.batch(4, 1000, 1.0, 0, 0)
    report.end("done")
    assert lines == [
        "route: batch 3: 40 rows read, 12 published in 0.5 s, 80 rows/s, 40 behind",
        "route: batch 4: 1,000 rows read, 0 published in 1.0 s, 1,000 rows/s, 0 behind",
        "route: done: 1,040 rows read, 12 published in 2 batches, 0.0 s, 1,040,000 rows/s",
    ]


# Archives.


def test_a_table_whose_checkpoint_is_lost_is_not_written_to(tmp_path: Path):
    """Spark would number micro-batches from 0 again, and drop those that its log in the folder has."""
    target = Target(str(tmp_path / "lake"), "parquet")
    require_checkpoint(target, str(tmp_path / "c"))
    (tmp_path / "lake" / LOG).mkdir(parents=True)
    with pytest.raises(PipelineError, match="name its checkpoint"):
        require_checkpoint(target, str(tmp_path / "c"))
    checkpoint(tmp_path / "c")
    require_checkpoint(target, str(tmp_path / "c"))


# Watching.


class Progressing:
    """Spark's progress of a micro-batch."""

    def __init__(self, batch: int) -> None:
        self.json = json.dumps(progress(batch, 10, 10 * batch + 10, 100))


class Query:
    """Does a micro-batch each time somebody looks, `batches` in all; in the midst of one somebody wants an end."""

    def __init__(self, batches: int, stop: Stop, stopped_in: int | None = None) -> None:
        self._batches = batches
        self._stop = stop
        self._stopped_in = stopped_in
        self._idle = False
        self.recentProgress: list[Progressing] = []
        self.was_stopped = False

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802 - Spark's name
        done = len(self.recentProgress)
        if self._stop.asked == 0 and done == self._stopped_in:
            self._stop.asked = 1  # the micro-batch goes on
            return False
        if done == self._batches:
            self._idle = True
            return self._stopped_in is None
        self.recentProgress.append(Progressing(done))
        return False

    @property
    def status(self) -> dict[str, object]:
        return {"isTriggerActive": not self._idle}

    def stop(self) -> None:
        self.was_stopped = True


@pytest.mark.parametrize(
    ("batches", "stopped_in", "reported", "by_itself"),
    [(3, None, 3, True), (5, 2, 3, False), (2, 2, 2, False)],
)
def test_a_query_is_watched_to_its_end_or_to_that_of_its_micro_batch(
    batches: int, stopped_in: int | None, reported: int, by_itself: bool
):
    stop = Stop()
    lines: list[str] = []
    report = Report("archive", lines.append)
    query = Query(batches, stop, stopped_in)
    assert watch(query, report, stop) is by_itself  # type: ignore[arg-type]
    assert (report.batches, len(lines), query.was_stopped) == (reported, reported, not by_itself)


class SparkError(Exception):
    pass


LATE = SparkError("[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back.")


class Failing(Query):
    """Does one micro-batch more than anybody has seen, and fails."""

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802 - Spark's name
        self.recentProgress.append(Progressing(len(self.recentProgress)))
        raise LATE


def test_rows_of_an_archive_are_messages_and_not_files():
    told: list[tuple[object, int]] = []
    stop = Stop()
    query = Query(2, stop)
    written = {number: WrittenRows(1000 + number, 1 + number) for number in range(2)}
    report = Report("archive", lambda line: None, None, lambda: 0.0)

    def progressed(said: dict[str, object], rows: int) -> None:
        told.append((said["batchId"], rows))

    assert watch(query, report, stop, written, progressed=progressed)  # type: ignore[arg-type]
    assert told == [(0, 1000), (1, 1001)]
    assert report.rows == 2001
    assert report.undecoded == 3


def test_micro_batches_before_a_failure_are_reported():
    lines: list[str] = []
    report, stop = Report("archive", lines.append), Stop()
    with pytest.raises(SparkError):
        watch(Failing(3, stop), report, stop)  # type: ignore[arg-type]
    assert report.batches == 1


@pytest.mark.parametrize("failures", range(STARTS_MAX + 1))
def test_a_query_is_started_again_where_a_python_worker_was_late(failures: int):
    lines: list[str] = []
    starts: list[int] = []

    def run() -> bool:
        starts.append(1)
        if len(starts) <= failures:
            raise LATE
        return True

    if failures < STARTS_MAX:
        assert on_a_busy_machine("route", lines.append, run, Stop())
    else:
        with pytest.raises(SparkError):
            on_a_busy_machine("route", lines.append, run, Stop())
    assert len(starts) == min(failures + 1, STARTS_MAX)
    assert len(lines) == len(starts) - 1
    assert all(line.startswith("route: the machine is busy") for line in lines)


def test_dead_letters_are_counted_again_where_a_python_worker_was_late():
    lines: list[str] = []
    outcomes = iter([LATE, LATE, ["a count"]])

    def collect() -> list[str]:
        outcome = next(outcomes)
        if isinstance(outcome, SparkError):
            raise outcome
        return outcome

    assert patiently(collect, told_again("dead-letters", lines.append)) == ["a count"]
    assert [line.partition(":")[0] for line in lines] == ["dead-letters"] * 2


def test_an_error_of_the_system_names_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    place = tmp_path / "missing/leveret.zip"
    assert commands.bundle(argparse.Namespace(file=place), {}) == commands.FAILED
    assert capsys.readouterr().err == f"leveret: {place}: No such file or directory\n"


class Java:
    """A process that has ended, or goes on."""

    def __init__(self, code: int | None) -> None:
        self._code = code

    def wait(self, timeout: float) -> int:
        if self._code is None:
            raise subprocess.TimeoutExpired("java", timeout)
        return self._code


def test_a_java_process_that_was_killed_is_called_that():
    with (
        pytest.raises(JavaEnded, match=r"killed \(SIGKILL\), by the system if memory was short"),
        java_named(Java(-9)),
    ):
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(JavaEnded, match="has ended with exit code 1"), java_named(Java(1)):
        raise ConnectionRefusedError(111, "Connection refused")
    for java, error in ((Java(None), OSError("x")), (Java(-9), PipelineError("x")), (None, OSError("x"))):
        with pytest.raises(type(error), match="x"), java_named(java, 0.0):
            raise error


def test_an_error_has_no_colours_and_no_control_characters():
    assert commands.printable("\x1b[1;31mred\x1b[0m\tand \x07 \x9b") == "red\tand \\x07 \x9b"


def test_what_a_replay_cannot_have_is_known_without_spark(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["pipeline", "replay", str(tmp_path / "lake"), *SINK, "--endpoint", broker.url]
    assert main(words, {}) == 1
    assert f"there is no table at {tmp_path / 'lake'}" in capsys.readouterr().err
    (tmp_path / "lake").mkdir()
    assert main(words, {}) == 1
    assert "there is no exchange 'x' in virtual host '/'" in capsys.readouterr().err


def test_a_query_that_fails_otherwise_is_not_started_again():
    def run() -> bool:
        raise SparkError("the column is unknown")

    with pytest.raises(SparkError, match="unknown"):
        on_a_busy_machine("route", pytest.fail, run, Stop())


def test_a_query_that_was_to_stop_is_not_started_again():
    stop = Stop()

    def run() -> bool:
        stop.asked = 1
        raise LATE

    assert not on_a_busy_machine("route", pytest.fail, run, stop)


def test_the_second_ctrl_c_means_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with Stop().listening() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.asked == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_jobs_are_there_without_spark_and_say_how_to_get_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    loaded = "import sys, leveret.pipeline.jobs.commands; print({'pyspark', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    monkeypatch.setattr("leveret.pipeline.session.find_spec", lambda name: None)
    broker.stream("orders")
    words = ["archive", "orders", str(tmp_path / "lake"), "--endpoint", broker.url, "--engine", "spark"]
    assert main(["pipeline", *words], {}) == 1
    assert capsys.readouterr().err.endswith(
        "leveret: PySpark is not installed: `pip install 'leveret[spark]'`\n"
    )


# Routes.


def test_a_function_may_be_in_a_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shop_rules.py").write_text("def checked(rows):\n    return rows\n\nNUMBER = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = object()
    assert function_named("shop_rules:checked")(given) is given  # type: ignore[arg-type, comparison-overlap]
    for name, reason in (
        ("shop_rules:absent", "no function 'shop_rules:absent'"),
        ("shop_rule:checked", "No module named 'shop_rule'"),
        ("shop_rules:NUMBER", "'shop_rules:NUMBER' is no function"),
    ):
        with pytest.raises(BadOption, match=reason):
            function_named(name)
    with pytest.raises(BadOption, match="returns a int, not a DataFrame"):
        routed(given, lambda rows: 7)  # type: ignore[arg-type, return-value]
