"""Options: what is read, and what is said of those that make no sense."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from leveret.pipeline.broker_client import password_of
from leveret.pipeline.errors import BadOption
from leveret.pipeline.options import (
    Edge,
    Offsets,
    Options,
    Since,
    SinceEach,
    Use,
    documentation,
    read_options,
)

LEAST = {"endpoints": "http://localhost:15672", "subscribe": "orders"}


def options(use: Use = Use.STREAM, **given: str) -> Options:
    return read_options({**LEAST, **{name.replace("_", "."): value for name, value in given.items()}}, use)


def test_two_options_are_enough():
    read = options()
    assert (read.endpoints, read.subscribe, read.vhost) == (("http://localhost:15672",), ("orders",), "/")
    assert read.fail_on_data_loss
    assert read.starting is None
    assert read.ending is Edge.LATEST


def test_names_may_be_in_any_case():
    assert read_options(
        {"ENDPOINTS": "a", "subScribe": "b", "failondataloss": "FALSE"}, Use.BATCH
    ) == options(Use.BATCH, endpoints="a", subscribe="b", failOnDataLoss="false")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("localhost", ("http://localhost:15672",)),
        ("https://a.example/", ("https://a.example:443",)),
        ("http://a:1/prefix/, b:2 ,,b:2", ("http://a:1/prefix", "http://b:2")),
        ("http://[::1]:15672", ("http://[::1]:15672",)),
    ],
)
def test_endpoints_are_urls_or_hosts(given: str, read: tuple[str, ...]):
    assert options(endpoints=given).endpoints == read


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"startingOffsets": "Earliest"}, Edge.EARLIEST),
        ({"startingOffsets": '{"a":{"0":23,"1":-1}}'}, Offsets({"a": {0: 23, 1: -1}})),
        ({"startingTimestamp": "0"}, Since(0)),
        ({"startingOffsetsByTimestamp": '{"a":{"0":7}}'}, SinceEach({"a": {0: 7}})),
    ],
)
def test_a_query_begins_where_it_is_told(given: dict[str, str], read: object):
    assert options(**given).starting == read


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscrib": "x"}, "unknown option 'subscrib'; did you mean subscribe?"),
        ({"Zzz": "x"}, "unknown option 'Zzz'"),
        ({"password": "x"}, "passwordFile or the environment variable LEVERET_PASSWORD"),
        ({"path": "x"}, "subscribe"),
        (
            {"kafka.bootstrap.servers": "x"},
            "unknown option 'kafka.bootstrap.servers': say where the broker is with",
        ),
        (
            {"host": "x"},
            "the URL of its management address, such as http://localhost:15672, not that of AMQP",
        ),
        (
            {"groupId": "x"},
            "a query goes on at its checkpoint, and one that reads queues is named with readerName",
        ),
        ({"kafka.fetch.max.bytes": "1"}, "it is for Kafka's client, and has no counterpart here"),
        ({"queueName": "x"}, "name streams and queues with the option subscribe"),
        ({"columns": "body,,offset"}, "must name columns with commas between them, each once"),
        ({"endpoints": "http://me:secret@localhost"}, "must not hold a user or password"),
        ({"endpoints": "ftp://localhost"}, "option endpoints is 'ftp://localhost'"),
        ({"endpoints": "http://localhost:x"}, "option endpoints"),
        ({"endpoints": " , "}, "option endpoints"),
        ({"subscribe": ","}, "option subscribe"),
        ({"subscribePattern": "x"}, "options subscribe and subscribePattern exclude each other"),
        ({"assign": '{"a":[0]}'}, "options subscribe and assign exclude each other"),
        ({"startingOffsets": "first"}, "must be earliest, latest, or JSON"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a":[1]}'}, "option startingOffsets"),
        ({"startingOffsets": "[" * 100_000}, "option startingOffsets"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingTimestamp": "-1"}, "option startingTimestamp is '-1'"),
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch reads only"),
        ({"failOnDataLoss": "no"}, "must be true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "must be a whole number from 1"),
        ({"minPartitions": "1e3"}, "must be a whole number from 1 to 100000"),
        ({"fetchBytes": "16777217"}, "from 65536 to 16777216"),
        ({"minOffsetsPerTrigger": "0"}, "option minOffsetsPerTrigger"),
        (
            {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
            "option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon': must be a time such as 500ms"),
        ({"maxTriggerDelay": "3 weeks"}, "option maxTriggerDelay"),
        ({"readerName": ""}, "must have 1 to 255 bytes"),
        ({"readerName": "ü" * 128}, "must have 1 to 255 bytes"),
        ({"schema": "avro"}, "must be amqp or kafka"),
    ],
)
def test_a_mistake_is_named(given: dict[str, str], said: str):
    with pytest.raises(BadOption) as caught:
        options(**given)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribePattern": "("}, "regular expression"),
        ({"assign": "{}"}, "must be JSON such as"),
        ({"assign": '{"a":[]}'}, "must be JSON such as"),
        ({"assign": '{"a":[true]}'}, "must be JSON such as"),
        ({}, "one of the options subscribe, subscribePattern and assign"),
    ],
)
def test_the_streams_must_be_named(given: dict[str, str], said: str):
    with pytest.raises(BadOption, match=said):
        read_options({"endpoints": "a", **given}, Use.BATCH)


def test_the_endpoints_must_be_given():
    with pytest.raises(BadOption, match="option endpoints is missing"):
        read_options({"subscribe": "a"}, Use.BATCH)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("15m", 900), ("30 s", 30), ("500", 0.5), ("500ms", 0.5), ("2MIN", 120), ("1h", 3600), ("1d", 86_400)],
)
def test_times_are_said_as_spark_says_them(given: str, seconds: float):
    assert options(maxTriggerDelay=given).max_trigger_delay.seconds == seconds


def test_a_micro_batch_waits_for_a_quarter_of_an_hour_unless_it_is_told_otherwise():
    assert options().max_trigger_delay.seconds == 900


def test_an_option_of_micro_batches_is_none_of_a_batch():
    with pytest.raises(BadOption, match="maxOffsetsPerTrigger is for streaming reads only"):
        options(Use.BATCH, maxOffsetsPerTrigger="1")
    assert options(Use.ALWAYS, maxOffsetsPerTrigger="1", endingOffsets="latest").max_offsets_per_trigger == 1


def test_options_travel_pickled():
    read = read_options({"endpoints": "a", "subscribePattern": "a.*"}, Use.BATCH)
    assert pickle.loads(pickle.dumps(read)) == read


def test_the_password_is_that_of_the_file_or_the_environment(tmp_path: Path):
    file = tmp_path / "password"
    file.write_bytes("gehe1m-ü\r\nmore\n".encode())
    read = options(passwordFile=str(file))
    assert password_of(read, {"LEVERET_PASSWORD": "other"}) == "gehe1m-ü"
    assert password_of(options(), {"LEVERET_PASSWORD": "other"}) == "other"
    assert password_of(options(), {}) == "guest"
    assert "gehe1m" not in repr(read)


def test_a_password_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(BadOption, match=r"option passwordFile: .* cannot be read here"):
        password_of(options(passwordFile=str(tmp_path / "gone")), {})


def test_the_page_has_the_table_of_options():
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    assert "\n".join(documentation()) in page
