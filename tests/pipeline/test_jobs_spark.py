"""Jobs with a real Spark and a real node, as their commands are given: what they move, once, and what they tell."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from leveret.server.cli import main
from tests.harness.seldom import spark_jobs
from tests.interop.conftest import need_module
from tests.pipeline.conftest import ROOT, LocalNode

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession

need_module("pyspark")

from leveret.pipeline.jobs.table import table  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), spark_jobs]

JOBS = "jobs: \xe9"  # in a name of a folder it is escaped
STREAM = {"x-queue-type": "stream"}


class Shop:
    """A node, and a channel to it."""

    def __init__(self, node: LocalNode, channel: BlockingChannel) -> None:
        self.node = node
        self.channel = channel
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        channel.exchange_declare("again", "topic", durable=True)
        channel.queue_declare("got", durable=True)
        channel.queue_bind("got", "again", "#")

    def order(self, first: int, until: int) -> None:
        for number in range(first, until):
            properties = pika.BasicProperties(headers={"n": number}, message_id=f"m{number}", user_id="guest")
            self.channel.basic_publish("", "orders", b"%d" % number, properties)

    def got(self) -> list[tuple[str, pika.BasicProperties, bytes]]:
        """All that is in the queue; it is empty afterwards."""
        found = []
        while True:
            method, properties, body = self.channel.basic_get("got", auto_ack=True)
            if method is None:
                return found
            found.append((method.routing_key, properties, body))

    def run(self, *words: str | Path) -> int:
        return main(["pipeline", *map(str, words), "--endpoint", self.node.url], {})


@pytest.fixture
def shop(spark: SparkSession, node: LocalNode) -> Iterator[Shop]:
    connection = pika.BlockingConnection(pika.URLParameters(node.amqp_url))
    try:
        yield Shop(node, connection.channel())
    finally:
        connection.close()


def rows_of(lake: Path) -> list[dict[str, object]]:
    """Return the rows of a table, with all columns."""
    deltalake = need_module("deltalake")
    rows = deltalake.DeltaTable(lake).to_pyarrow_table().sort_by("offset")
    return rows.to_pylist()  # type: ignore[no-any-return]


def test_an_archive_has_each_message_once_and_is_replayed_once(
    shop: Shop, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lake, metrics, checkpoint = tmp_path / "lake", tmp_path / "metrics", tmp_path / "replay"
    alone = tmp_path / "alone"
    archive = (
        "archive",
        "orders",
        lake,
        "--partition-by",
        "day,stream",
        "--metrics",
        metrics,
        "--batch",
        "40",
        "--engine",
    )
    replay = ("replay", lake, "--to-exchange", "again", "--checkpoint", checkpoint)
    shop.order(0, 60)
    assert shop.run(*archive, "spark") == 0
    capsys.readouterr()
    assert shop.run(*replay, "--dry-run") == 0
    assert capsys.readouterr().out.startswith("60 messages of 2 files")
    assert shop.got() == []
    assert shop.run(*replay) == 0
    got = shop.got()
    assert [body for _, _, body in got] == [b"%d" % number for number in range(60)]
    key, properties, _ = got[7]
    assert (key, properties.message_id, properties.headers) == ("orders", "m7", {"n": 7})
    assert properties.user_id == "guest"  # the user that replays

    shop.order(60, 90)
    assert shop.run(*archive, "pyarrow") == 0  # goes on where Spark ended
    assert sorted(row.offset for row in table(spark, str(lake)).collect()) == list(range(90))
    assert shop.run("archive", "orders", alone, "--partition-by", "day,stream", "--engine", "pyarrow") == 0
    assert rows_of(alone) == rows_of(lake)  # whoever has written which of them
    assert len(list(lake.glob("day=*/stream=orders/*.parquet"))) == 3
    said = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["rows"] for line in said] == [40, 20, 60, 30, 30]
    assert [line.get("behind") for line in said] == [20, 0, None, 0, None]
    assert shop.run(*replay) == 0
    assert shop.got() == []
    chosen = ("--where", "cast(headers['n'] as int) % 30 = 0", "--routing-key", "k", "--rate", "1000")
    assert shop.run("replay", lake, "--to-exchange", "again", *chosen) == 0
    assert [(key, body) for key, _, body in shop.got()] == [("k", b"0"), ("k", b"30"), ("k", b"60")]


def test_an_iceberg_archive_is_replayed_once(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    need_module("pyiceberg")
    lake = tmp_path / "lake"
    shop.order(0, 60)
    archive = (
        "archive",
        "orders",
        lake,
        "--format",
        "iceberg",
        "--partition-by",
        "day,stream",
        "--batch",
        "40",
    )
    assert shop.run(*archive) == 0
    replay = ("replay", lake, "--to-exchange", "again", "--checkpoint", tmp_path / "replay")
    assert shop.run(*replay, "--dry-run") == 0
    assert "60 messages of 2 files" in capsys.readouterr().out
    assert shop.run(*replay) == 0
    got = shop.got()
    assert [body for _, _, body in got] == [b"%d" % number for number in range(60)]
    key, properties, _ = got[7]
    assert (key, properties.message_id, properties.headers) == ("orders", "m7", {"n": 7})
    shop.order(60, 70)
    assert shop.run(*archive) == 0
    assert shop.run(*replay) == 0  # it is done, whatever was archived since
    assert shop.got() == []
    assert shop.run("replay", lake, "--format", "delta", "--to-exchange", "again") == 2
    assert "is a table of format iceberg, not delta" in capsys.readouterr().err


def test_a_table_by_a_header_is_the_same_with_spark_and_without(
    shop: Shop, spark: SparkSession, tmp_path: Path
):
    for number, country in enumerate(("FI", "SE", None, "FI")):
        headers = None if country is None else {"country": country}
        shop.channel.basic_publish("", "orders", b"%d" % number, pika.BasicProperties(headers=headers))
    by = ("--partition-by", "header:country")
    for engine in ("spark", "pyarrow"):
        assert shop.run("archive", "orders", tmp_path / engine, *by, "--engine", engine) == 0
    assert rows_of(tmp_path / "spark") == rows_of(tmp_path / "pyarrow")
    assert [row["header_country"] for row in rows_of(tmp_path / "spark")] == ["FI", "SE", None, "FI"]
    rows = table(spark, str(tmp_path / "spark")).where("header_country = 'FI'").collect()
    assert sorted(bytes(row.body) for row in rows) == [b"0", b"3"]
    assert shop.run("archive", "orders", tmp_path / "old", *by, "--format", "parquet") == 0
    assert sorted(each.name for each in (tmp_path / "old").glob("header_country=*")) == [
        "header_country=FI",
        "header_country=SE",
        "header_country=__HIVE_DEFAULT_PARTITION__",
    ]


def test_a_route_changes_and_publishes_each_message_once(shop: Shop, tmp_path: Path):
    sql = "select body, concat('n.', headers['n']) as routing_key from messages where headers['n'] >= 5"
    route = ("route", "orders", "--to-exchange", "again", "--checkpoint", tmp_path / "place", "--sql", sql)
    shop.order(0, 10)
    assert shop.run(*route, "--metrics", tmp_path / "metrics") == 0
    first, last = map(json.loads, (tmp_path / "metrics").read_text().splitlines())
    assert (first["rows"], first["published"], last["published"]) == (10, 5, 5)
    shop.order(0, 7)
    assert shop.run(*route) == 0
    assert sorted((key, body) for key, _, body in shop.got()) == sorted(
        (f"n.{number}", b"%d" % number) for number in (5, 6, 7, 8, 9, 5, 6)
    )


def test_a_queue_moves_to_delta_and_lag_knows_its_reader(
    shop: Shop, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    deltalake = need_module("deltalake")
    channel, lake = shop.channel, tmp_path / "lake"
    channel.queue_declare(JOBS, durable=True)
    archive = ("archive", JOBS, lake, "--partition-by", "routing_key", "--reader", "lake", "--engine")
    for first, engine in ((0, "pyarrow"), (30, "spark")):  # Spark goes on where the other ended
        for number in range(first, first + 30):
            channel.basic_publish("", JOBS, b"%d" % number)
        assert shop.run(*archive, engine) == 0
    assert sorted(deltalake.DeltaTable(lake).to_pyarrow_table()["offset"].to_pylist()) == list(range(60))
    channel.basic_publish("", JOBS, b"60")
    capsys.readouterr()
    assert shop.run("lag", f"{lake}.checkpoint", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["reader"], row["position"], row["behind"]) == ("queue", "lake", 60, 1)
    assert shop.run("replay", lake, "--to-exchange", "again", "--rate", "2000") == 0
    assert [(key, body) for key, _, body in shop.got()] == [(JOBS, b"%d" % number) for number in range(60)]


def test_dead_letters_are_counted_where_they_lie(
    shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    channel = shop.channel
    channel.exchange_declare("dead", "fanout", durable=True)
    for name, arguments in (("dead-stream", STREAM), ("dead-queue", {})):
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, "dead")
    channel.queue_declare(
        "work", durable=True, arguments={"x-dead-letter-exchange": "dead", "x-max-length": 5}
    )
    for number in range(8):
        channel.basic_publish("", "work", b"%d" % number)
    for _ in range(2):
        method, _, _ = channel.basic_get("work")
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.queue_declare("work", passive=True)  # so that the rejections are done
    picture = tmp_path / "dead.svg"
    assert shop.run("dead-letters", "dead-stream", "dead-queue", "--json", "--picture", picture) == 0
    printed = capsys.readouterr()
    counts = json.loads(printed.out)
    told = {(each["queue"], each["reason"], each["routing_key"]): each["messages"] for each in counts}
    assert told == {("work", "maxlen", "work"): 6, ("work", "rejected", "work"): 4}
    assert "work: maxlen" in picture.read_text()
    assert "5 of its messages are reserved, read, and put back" in printed.err
    assert channel.queue_declare("dead-queue", passive=True).method.message_count == 5


PRINTED = {
    "18_archive_and_replay.py": [
        "200 orders in the lake",
        "orders: at 200 of 250, 50 behind",
        "250 orders in the lake",
        "orders: at 250 of 250, 0 behind",
        "78 orders from Finland, in the order they came: True",
    ],
    "20_dead_letters.py": [
        "+-------+--------+-----+",
        "|  queue|  reason|count|",
        "+-------+--------+-----+",
        "|letters| expired|   15|",
        "|parcels|  maxlen|    5|",
        "|parcels|rejected|   10|",
        "+-------+--------+-----+",
        "",
        "30 orders died; of parcels for Finland:",
        "5 rejected in queue parcels",
        "2 maxlen in queue parcels",
    ],
}  # 19_route_and_enrich.py is run by hand: the time for Spark is short


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(name: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    if name == "20_dead_letters.py":
        need_module("matplotlib")
    runpy.run_path(str(ROOT / "examples" / name))
    assert capsys.readouterr().out.splitlines() == PRINTED[name]
