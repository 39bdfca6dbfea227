"""Options and columns of the sink: mistakes are named before anything is written."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from leveret.pipeline.columns import PASSED_OVER, Columns, columns_of
from leveret.pipeline.errors import BadOption, BadRow
from leveret.pipeline.options import documentation
from leveret.pipeline.schema import SCHEMAS, record
from leveret.pipeline.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions, read_sink_options
from leveret.pipeline.source import AmqpSource

KINDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "properties": record(ttl_ms=IntegerType(), message_id=StringType()),
    "coloured": record(colour=IntegerType()),
    "texts": record(ttl_ms=StringType()),
    "map": MapType(StringType(), StringType()),
    "numbers": MapType(StringType(), IntegerType()),
    "strings": ArrayType(StringType()),
    "keys": ArrayType(record(key=StringType())),
    "kafkas": ArrayType(record(key=StringType(), value=BinaryType())),
}


def options(**given: str) -> SinkOptions:
    return read_sink_options(
        {"endpoints": "a", **{name.replace("_", "."): each for name, each in given.items()}}
    )


def schema(text: str) -> StructType:
    """Columns as "name type, name type"."""
    return StructType([StructField(name, KINDS[kind]) for name, kind in map(str.split, text.split(", "))])


def test_one_option_is_enough():
    read = options()
    assert (read.endpoints, read.vhost, read.delivery) == (("http://a:15672",), "/", EXACTLY_ONCE)
    assert (read.exchange, read.routing_key, read.mandatory, read.persistent) == (None, None, True, True)


def test_names_may_be_in_any_case_and_the_default_exchange_has_an_empty_one():
    read = read_sink_options(
        {"ENDPOINTS": "a", "Exchange": "", "routingkey": "q", "DELIVERY": "At-Least-Once"}
    )
    assert (read.exchange, read.routing_key, read.delivery) == ("", "q", AT_LEAST_ONCE)


def test_what_spark_says_to_every_sink_is_no_mistake():
    assert options(checkpointLocation="/tmp/x", queryName="q") == options()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"routingkeys": "x"}, "unknown option 'routingkeys'; did you mean routingKey?"),
        ({"maxOffsetsPerTrigger": "1"}, "unknown option 'maxOffsetsPerTrigger'"),
        ({"password": "s3cret"}, "passwordFile or the environment variable LEVERET_PASSWORD"),
        ({"path": "x"}, "the options exchange and routingKey"),
        ({"topic": "x"}, "the options exchange and routingKey"),
        ({"subscribe": "x"}, "the options exchange and routingKey"),
        (
            {"delivery": "at-most-once"},
            "option delivery is 'at-most-once': must be exactly-once or at-least-once",
        ),
        ({"mandatory": "yes"}, "option mandatory is 'yes': must be true or false"),
        ({"exchange": "x" * 256}, "option exchange"),
        ({"endpoints": "http://me:s3cret@localhost"}, "must not hold a user or password"),
    ],
)
def test_a_mistake_is_named(given: dict[str, str], said: str):
    with pytest.raises(BadOption) as caught:
        options(**given)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_endpoints_must_be_given():
    with pytest.raises(BadOption, match="option endpoints is missing"):
        read_sink_options({"exchange": "x"})


def test_options_travel_pickled():
    read = options(exchange="e", tls_caFile="/ca.pem")
    assert pickle.loads(pickle.dumps(read)) == read


def test_the_page_has_the_table_of_options():
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    own = [line for line in documentation(SinkOptions) if line not in set(documentation())]
    assert "\n".join(["| Option | Default | What for |", "|---|---|---|", *own]) in page


# Columns.


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("body binary", Columns("body", None, None, None, None)),
        ("value string, key binary", Columns("value", None, "key", None, None)),
        (
            "exchange string, routing_key string, body string, headers map",
            Columns("body", "exchange", "routing_key", None, "headers"),
        ),
        (
            "body string, properties properties",
            Columns("body", None, None, "properties", None, ("ttl_ms", "message_id")),
        ),
        ("value binary, headers kafkas", Columns("value", None, None, None, "headers")),
    ],
)
def test_columns_are_found_by_their_names(given: str, read: Columns):
    otherwise = {} if read.exchange else {"exchange": "e"}
    assert columns_of(schema(given), options(**otherwise)) == read


def test_an_option_takes_the_place_of_a_column():
    given = schema("exchange string, routing_key string, body string")
    assert columns_of(given, options(exchange="e")).exchange is None
    assert columns_of(given, options(routingKey="")).routing_key is None


def test_what_the_source_reads_may_be_written_as_it_is():
    assert columns_of(SCHEMAS["amqp"], options(exchange="e")).headers == "headers"
    assert {"stream", "partition", "offset", "timestamp", "timestampType"} <= PASSED_OVER


def test_a_topic_is_not_passed_over():
    for given in (options(), options(exchange="e")):
        with pytest.raises(BadRow, match=r"no topics: withColumnRenamed\('topic', 'exchange'\)"):
            columns_of(SCHEMAS["kafka"], given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("body binary, colour string", "column 'colour' is no part of a message: those are body, value,"),
        ("bodies binary", "did you mean body?"),
        ("colour string", "to_json(struct(*)) makes one body of several columns"),
        ("exchange string", "there is no column 'body' (or 'value')"),
        ("body binary, value binary", "columns 'body' and 'value' are for the same thing"),
        (
            "body binary, key string, routing_key string",
            "columns 'routing_key' and 'key' are for the same thing",
        ),
        ("body int", "column 'body' is int; it must be binary or string"),
        ("body binary, exchange binary", "column 'exchange' is binary; it must be string"),
        ("body binary, key int", "column 'key' is int; it must be string or binary"),
        ("body binary, properties string", "column 'properties' is string; it must be a struct of some of"),
        ("body binary, properties coloured", "column 'properties' has a field 'colour'; known are"),
        ("body binary, properties texts", "column 'properties.ttl_ms' is string; it must be bigint"),
        ("body binary, headers numbers", "column 'headers' is map<string,int>; it must be map<"),
        ("body binary, headers strings", "column 'headers' is array<string>"),
        ("body binary, headers keys", "column 'headers' is array<struct<key:string>>"),
    ],
)
def test_a_column_that_cannot_be_published_is_named(given: str, said: str):
    with pytest.raises(BadRow) as caught:
        columns_of(schema(given), options(exchange="e"))
    assert said in str(caught.value)


def test_columns_of_one_name_are_no_column():
    with pytest.raises(BadRow, match="there are two columns 'body'"):
        columns_of(StructType([*schema("body binary").fields, *schema("body string").fields]), options())


@pytest.mark.parametrize(
    ("columns", "given", "said"),
    [
        ("body binary", {}, "nothing says to which exchange rows go"),
        ("body binary", {"exchange": ""}, "the default exchange routes by queue name"),
    ],
)
def test_something_must_say_where_rows_go(columns: str, given: dict[str, str], said: str):
    with pytest.raises(BadRow, match=said):
        columns_of(schema(columns), options(**given))


@pytest.mark.parametrize(
    ("columns", "given"),
    [
        ("body binary", {"exchange": "e"}),
        ("body binary", {"exchange": "", "routingKey": "q"}),
        ("body binary, key string", {"exchange": ""}),
        ("body binary, exchange string", {}),
    ],
)
def test_that_is_enough(columns: str, given: dict[str, str]):
    assert columns_of(schema(columns), options(**given)).body == "body"


def test_what_was_published_is_not_overwritten():
    source = AmqpSource({"endpoints": "a", "exchange": "e"})
    with pytest.raises(BadOption, match=r"cannot be overwritten; write with mode\('append'\)"):
        source.writer(schema("body binary"), overwrite=True)
    with pytest.raises(BadOption, match=r"write with outputMode\('append'\)"):
        source.streamWriter(schema("body binary"), overwrite=True)
