"""What a query's WHERE asks for is what the broker is asked for, and no row that fulfils it is left out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, block, message

datasource = need_module("pyspark.sql.datasource")
pa = pytest.importorskip("pyarrow")

from pyspark.sql.datasource import (  # noqa: E402
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from leveret.message import Facts, Message  # noqa: E402
from leveret.pipeline import decode  # noqa: E402
from leveret.pipeline.decode import Decoder, Rows, pieces  # noqa: E402
from leveret.pipeline.errors import BadOption  # noqa: E402
from leveret.pipeline.filters import Filters  # noqa: E402
from leveret.pipeline.options import Use, read_options  # noqa: E402
from leveret.pipeline.row_filter import RowFilter  # noqa: E402
from leveret.pipeline.shapes import Joined, shapes_of  # noqa: E402
from leveret.pipeline.source import AmqpSource, BatchReader  # noqa: E402
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091  # noqa: E402
from leveret.protocols.amqp091.codec.fields import ByteArray  # noqa: E402
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10  # noqa: E402
from leveret.protocols.amqp10.codec.types import Described, Long, Symbol, UInt, ULong  # noqa: E402
from leveret.protocols.amqp10.codec.types import encode as encoded  # noqa: E402
from leveret.selectors.parser import Selector, compile_selector  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000


def reader(broker: FakeBroker, **given: str) -> BatchReader:
    source = AmqpSource({"endpoints": broker.url, "subscribe": "orders", **given})
    return source.reader(source.schema())


def read(
    broker: FakeBroker, *conditions: Filter, **given: str
) -> tuple[list[tuple[object, ...]], list[Filter]]:
    """The (partition, offset) of what is read, and the conditions that are left for Spark."""
    made = reader(broker, **given)
    left = list(made.pushFilters(list(conditions)))
    found = [
        (row["partition"], row["offset"])
        for task in made.partitions()
        for batch in made.read(task)
        for row in batch.to_pylist()
    ]
    return found, left  # type: ignore[return-value]


def blocks_asked(broker: FakeBroker) -> list[str]:
    return [each.partition("?")[0].split("/")[-2] for each in broker.asked if "/blocks?" in each]


@pytest.mark.parametrize(
    ("condition", "offsets", "is_done"),
    [
        (GreaterThanOrEqual(("offset",), 990), range(990, 1000), True),
        (GreaterThan(("offset",), 990), range(991, 1000), True),
        (LessThan(("offset",), 3), range(3), True),
        (LessThanOrEqual(("offset",), 3), range(4), True),
        (EqualTo(("offset",), 7), range(7, 8), True),
        (In(("offset",), (7, 9)), range(7, 10), False),  # type: ignore[arg-type]
        (GreaterThan(("offset",), 5000), range(0), True),
        (Not(EqualTo(("offset",), 7)), range(1000), False),
        (EqualTo(("offset",), -1), range(0), True),
    ],
)
def test_a_condition_on_offsets_is_a_range_that_is_asked_for(
    broker: FakeBroker, condition: Filter, offsets: range, is_done: bool
):
    broker.stream("orders").fill(1000, commit=1000)
    found, left = read(broker, condition)
    assert found == [(0, each) for each in offsets]
    assert left == ([] if is_done else [condition])
    assert all(
        f"from={offsets.start}&until={offsets.stop}&" in each for each in broker.asked if "/blocks?" in each
    )


def test_conditions_narrow_what_options_have_chosen(broker: FakeBroker):
    broker.stream("orders").fill(100)
    both = GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 50)
    found, _ = read(broker, *both, startingOffsets='{"orders":{"0":45}}')
    assert found == [(0, each) for each in range(45, 50)]


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        (EqualTo(("partition",), 1), ["orders-1"]),
        (In(("partition",), [0, 2]), ["orders-0", "orders-2"]),  # type: ignore[arg-type]
        (Not(EqualTo(("partition",), 1)), ["orders-0", "orders-2"]),
        (EqualTo(("stream",), "other"), []),
        (StringStartsWith(("stream",), "ord"), ["orders-0", "orders-1", "orders-2"]),
    ],
)
def test_partitions_that_are_not_wanted_are_not_read(broker: FakeBroker, condition: Filter, asked: list[str]):
    for each in broker.super_stream("orders", 3):
        each.fill(5)
    _, left = read(broker, condition)
    assert (blocks_asked(broker), left) == (asked, [])


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def test_a_condition_on_times_begins_at_the_first_and_stops_behind_the_last(broker: FakeBroker):
    stream = broker.stream("orders")
    for minute in range(60):
        stream.publish(message(b"x"), message(b"y"), arrived=minute * MINUTE_MS)
    early = GreaterThanOrEqual(("timestamp",), at(20 * MINUTE_MS))
    late = LessThan(("timestamp",), at(30 * MINUTE_MS))
    found, left = read(broker, early, late, fetchBytes="65536", minPartitions="1")
    assert found == [(0, each) for each in range(40, 60)]
    assert left == [early, late]  # of a block, not of a row: Spark tests them, too
    assert any("timestamp=1200000" in each for each in broker.asked)
    exactly = EqualTo(("timestamp",), at(5 * MINUTE_MS))
    assert read(broker, exactly)[0] == [(0, 10), (0, 11)]


def test_of_a_block_only_the_rows_with_the_routing_key_are_given(broker: FakeBroker):
    stream = broker.stream("orders")
    stream.publish(*(message(b"x", "shop", "eu" if n % 3 else "us") for n in range(9)))
    stream.publish(*(message(b"x", "shop", "asia") for _ in range(9)))
    stream.publish(*(message(b"x", "shop", "us") for _ in range(2)))
    american = EqualTo(("routing_key",), "us")
    found, left = read(broker, american, IsNotNull(("routing_key",)), EqualTo(("exchange",), "shop"))
    assert (found, left) == ([(0, 0), (0, 3), (0, 6), (0, 18), (0, 19)], [])
    assert len(read(broker, Not(american))[0]) == 15
    assert read(broker, EqualTo(("key",), b"us"), schema="kafka")[0] == found
    assert read(broker, american, EqualTo(("exchange",), "other"))[0] == []


@pytest.mark.parametrize("tasks", ["1", "3"])
def test_a_condition_on_offsets_makes_the_same_work_as_starting_offsets(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tasks: str
):
    decoded: list[int] = []
    made = Decoder._made
    monkeypatch.setattr(
        Decoder, "_made", lambda self, rows: decoded.append(len(rows.pieces)) or made(self, rows)
    )
    monkeypatch.setattr(Filters, "origins", pytest.fail)  # nothing is looked at row by row
    broker.stream("orders").fill(2000, commit=100)
    given = {"minPartitions": tasks, "fetchBytes": "65536"}
    work: list[tuple[list[str], list[int]]] = []
    wanted = GreaterThanOrEqual(("offset",), 1750), IsNotNull(("offset",))
    for conditions, options in ((wanted, {}), ((), {"startingOffsets": '{"orders":{"0":1750}}'})):
        broker.asked.clear()
        decoded.clear()
        found, left = read(broker, *conditions, **given, **options)
        assert (found, left) == ([(0, each) for each in range(1750, 2000)], [])
        work.append(([each for each in broker.asked if "/blocks?" in each], list(decoded)))
    assert work[0] == work[1]
    assert sum(work[0][1]) == 3  # blocks, of 20
    assert len(broker.asked) == len(work[0][0]) + 1  # and the stream's ends


def finnish(n: int) -> Message:
    return with_headers(b"x" * n, country="FI" if n % 2 else "SE", n=n)


def with_headers(body: bytes, **headers: object) -> Message:
    octets = message(body, headers=headers).properties
    return Message(AMQP091, "", "orders", octets, body, Facts(has_headers=True))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"selector": "country = 'FI'"}, [1, 3, 5, 7, 9]),
        ({"selector": "country = 'FI' AND n > 4"}, [5, 7, 9]),
        ({"selector": "missing IS NOT NULL"}, []),
        ({"selector": "priority = 3"}, []),
        ({"minBodyBytes": "7"}, [7, 8, 9]),
        ({"maxBodyBytes": "1"}, [0, 1]),
        ({"minBodyBytes": "2", "maxBodyBytes": "5", "selector": "country = 'SE'"}, [2, 4]),
    ],
)
@pytest.mark.parametrize("commit", [1, 4, 10])
def test_a_read_leaves_out_what_its_selector_and_lengths_do_not_ask_for(
    broker: FakeBroker, options: dict[str, str], wanted: list[int], commit: int
):
    stream = broker.stream("orders")
    for begin in range(0, 10, commit):
        stream.publish(*map(finnish, range(begin, min(begin + commit, 10))))
    found, _ = read(broker, **options)
    assert found == [(0, each) for each in wanted]
    both, _ = read(broker, GreaterThan(("offset",), 4), EqualTo(("routing_key",), "orders"), **options)
    assert both == [(0, each) for each in wanted if each > 4]


def test_messages_with_the_same_properties_are_looked_at_once(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
):
    looked: list[Message] = []
    matches = Selector.matches
    monkeypatch.setattr(Selector, "matches", lambda self, each: looked.append(each) or matches(self, each))
    stream = broker.stream("orders")
    for _ in range(20):
        stream.publish(*(with_headers(b"%d" % n, country="FI") for n in range(50)))
    stream.publish(*map(finnish, range(1, 5)))
    assert len(read(broker, selector="country = 'FI'")[0]) == 1002
    assert len(looked) == 5


SELECTORS = [
    "country = 'FI'",
    "country = 'FI' AND n > 250",
    "n BETWEEN 100 AND 300 OR missing IS NULL AND NOT country = 'SE'",
    "country LIKE 'F_' AND n / 2 > 10.5",
    "missing IS NULL",
    "odd IN ('x', 'y') OR price > 1",
    "octets IS NOT NULL",
    "-n < -500",
    "amqp.priority = 4 AND n > 5",
]


def mixed(n: int) -> Message:
    """Messages whose headers have several types, or are not there, under several keys."""
    headers: dict[str, object] = {"country": "FI" if n % 3 else "SE", "n": n}
    if n % 2:
        headers["odd"] = "x" if n % 5 else ByteArray(b"\xff")
    if n % 7 == 0:
        headers |= {"price": Decimal("1.25"), "octets": ByteArray(b"\xff"), "list": [1, "a"]}
    if n % 11 == 0:
        headers["n"] = n / 2
    if n % 13 == 0:
        headers = {}
    octets = message(b"", headers=headers or None, message_id=str(n), priority=n % 5 or None).properties
    return Message(AMQP091, "", f"key{n % 2}", octets, b"x", Facts(has_headers=bool(headers)))


def mixed_10(n: int) -> Message:
    known = {"country": "FI" if n % 3 else "SE", "n": Long(n) if n % 2 else UInt(n)}
    if n % 5 == 0:
        known = {"odd": "x"}
    begin = encoded(Described(ULong(0x72), {Symbol("x-missing"): n % 4})) if n % 4 else b""
    octets = begin + encoded(Described(ULong(0x73), [str(n)])) + encoded(Described(ULong(0x74), known))
    return Message(AMQP10, "", "orders", octets, b"\0Su\xa0\x01x", Facts(has_headers=True))


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("made", [mixed, mixed_10])
@pytest.mark.parametrize("size", [1000, 50])
def test_a_selector_decides_on_columns_as_on_messages(
    made: Callable[[int], Message], selector: str, size: int
):
    sent = list(map(made, range(1000)))
    octets = b"".join(block(first, *sent[first : first + size]) for first in range(0, 1000, size))
    run = list(pieces(octets, 3, 998))
    chosen = RowFilter(read_options({"endpoints": "a", "subscribe": "o", "selector": selector}, Use.STREAM))
    condition = compile_selector(selector)
    expected = [condition.matches(each) for each in sent[3:998]]
    assert list(chosen.flags(run)) == expected
    known = Rows(run, "orders", 0, {}, True).header_shapes
    assert known is not None
    assert list(chosen.flags(run, known)) == expected


def test_values_that_are_equal_are_looked_at_once_where_arrow_cannot_tell(monkeypatch: pytest.MonkeyPatch):
    looked: list[bytes] = []
    holds = RowFilter._holds
    monkeypatch.setattr(RowFilter, "_holds", lambda *each: looked.append(each[-1]) or holds(*each))
    selector = f"country = 'FI' AND {1 << 64} > 1"
    chosen = RowFilter(read_options({"endpoints": "a", "subscribe": "o", "selector": selector}, Use.STREAM))
    for first in (0, 1000):
        (piece,) = pieces(block(first, *map(finnish, range(first, first + 1000))), first, first + 1000)
        assert sum(chosen.flags([piece])) == 500
    small = b"".join(block(first, *map(finnish, range(first, first + 50))) for first in range(0, 1000, 50))
    assert sum(chosen.flags(list(pieces(small, 0, 1000)))) == 500
    assert len(looked) == 2


@pytest.mark.parametrize(("selector", "walks"), [("n > 19", 1), ("n > 599", 2)])
def test_shapes_are_found_once_unless_most_blocks_are_left_out(
    monkeypatch: pytest.MonkeyPatch, selector: str, walks: int
):
    walked: list[Joined] = []
    monkeypatch.setattr(
        decode, "shapes_of", lambda joined, *rest: walked.append(joined) or shapes_of(joined, *rest)
    )
    octets = b"".join(block(at, finnish(at), finnish(at + 1)) for at in range(0, 800, 2))
    options = read_options({"endpoints": "a", "subscribe": "o", "selector": selector}, Use.STREAM)
    schema = pa.schema([("offset", pa.int64()), ("headers", pa.map_(pa.string(), pa.string()))])
    decoder = Decoder(schema, "amqp", "orders", 0, row_filter=RowFilter(options))
    found = [row["offset"] for batch, _, _ in decoder.batches(octets, 0, 800) for row in batch.to_pylist()]
    assert found == [at for at in range(800) if compile_selector(selector).matches(finnish(at))]
    assert len(walked) == walks


def test_a_streaming_read_leaves_out_what_its_selector_does_not_ask_for(broker: FakeBroker):
    broker.stream("orders").publish(*map(finnish, range(10)))
    given = {"endpoints": broker.url, "subscribe": "orders", "startingOffsets": "earliest"}
    source = AmqpSource({**given, "selector": "n > 6"})
    made = source.streamReader(source.schema())
    start = made.initialOffset()
    tasks = made.partitions(start, made.latestOffset(start, made.getDefaultReadLimit()))
    rows = [row for task in tasks for batch in made.read(task) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == [7, 8, 9]
    made.stop()


def test_of_a_queue_nothing_is_left_out_as_that_would_be_lost(broker: FakeBroker):
    broker.queue("jobs").fill(3)
    with pytest.raises(BadOption, match="would be lost"):
        read(broker, subscribe="jobs", readerName="r", selector="n > 6")


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "content_type"), "text/plain"),
        IsNotNull(("headers",)),
        EqualTo(("routing_key",), None),
        In(("routing_key",), ["us", None]),  # type: ignore[arg-type]
        EqualTo(("offset",), "7"),
    ],
)
def test_what_the_broker_cannot_tell_is_left_to_spark(broker: FakeBroker, condition: Filter):
    broker.stream("orders").fill(10)
    found, left = read(broker, condition)
    assert (len(found), left) == (10, [condition])


def test_a_session_without_push_down_may_use_the_reader_all_the_same(broker: FakeBroker):
    """PySpark refuses a reader with a `pushFilters` of its own unless the setting is on."""
    found = reader(broker).pushFilters
    assert getattr(found, "__func__", None) is DataSourceReader.pushFilters


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_where_in_spark_asks_for_what_it_names_and_gives_what_it_should(
    spark: SparkSession, broker: FakeBroker
):
    broker.stream("orders").fill(1000)
    rows = spark.read.format("amqp").options(endpoints=broker.url, subscribe="orders").load()
    for setting, asked in (("false", "from=0&"), ("true", "from=995&")):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", setting)
        broker.asked.clear()
        chosen = rows.where("offset >= 995 and routing_key = 'orders' and length(body) = 3").select("offset")
        assert [row.offset for row in chosen.collect()] == [995, 996, 997, 998, 999]
        assert asked in next(each for each in broker.asked if "/blocks?" in each)
