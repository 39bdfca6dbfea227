"""What the columns `headers` and `annotations` hold: of dead letters, of AMQP 1.0, as texts and as variants."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import StructType, VariantVal

from leveret.message import Death, Message, Notes
from leveret.pipeline.arrow import schema_of
from leveret.pipeline.decode import Decoder
from leveret.pipeline.errors import BadOption
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.schema import ANNOTATIONS, SCHEMAS, VARIANT, check, full
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp091.broker.encoding import rendered
from leveret.protocols.amqp091.codec.fields import ByteArray
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.broker.envelope import annotations_section, entry
from leveret.protocols.amqp10.codec.types import Symbol, ULong
from tests.pipeline.bulk import FACTS, block, message

HEADERS = SCHEMAS["amqp"]["headers"]


def column(octets: bytes, field: object = HEADERS, kind: str = "amqp") -> list[object]:
    schema = StructType([field])  # type: ignore[list-item]
    (name,) = schema.names
    decoder = Decoder(schema_of(schema), kind, "jobs", 0)
    return [row[name] for batch, _, _ in decoder.batches(octets, 0, 10**9) for row in batch.to_pylist()]


def maps(octets: bytes) -> list[dict[str, object] | None]:
    return [None if each is None else dict(each) for each in column(octets)]  # type: ignore[call-overload]


def died(sent: Message, queue: str = "jobs", time: int = 1_700_000_000) -> Message:
    notes = Notes()
    older = Death("waiting", "expired", 3, time - 60, time - 1, "shop", ("new",), 5000)
    notes.deaths = (Death(queue, "rejected", 1, time, time, "", ("jobs", "x"), None), older)
    notes.first_death, notes.last_death = ("expired", "waiting", "shop"), ("rejected", queue, "")
    return Message(sent.encoding, sent.exchange, sent.key, sent.properties, sent.body, FACTS, notes)


def message10(**annotations: object) -> Message:
    entries = [entry(f"x-opt-{name}", value) for name, value in annotations.items()]  # type: ignore[arg-type]
    return Message(AMQP10, "", "jobs", annotations_section(entries), b"\0Su\xa0\x01x", FACTS)


def test_a_dead_letter_says_where_and_why_it_died():
    (found,) = maps(block(0, died(message(b"x", headers={"retries": 3}))))
    assert found is not None
    assert json.loads(str(found.pop("x-death"))) == [
        {
            "count": 1,
            "reason": "rejected",
            "queue": "jobs",
            "time": 1_700_000_000,
            "exchange": "",
            "routing-keys": ["jobs", "x"],
        },
        {
            "count": 3,
            "reason": "expired",
            "queue": "waiting",
            "time": 1_699_999_940,
            "exchange": "shop",
            "routing-keys": ["new"],
            "original-expiration": "5000",
        },
    ]
    assert found == {
        "retries": "3",
        "x-first-death-reason": "expired",
        "x-first-death-queue": "waiting",
        "x-first-death-exchange": "shop",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "jobs",
        "x-last-death-exchange": "",
    }


@pytest.mark.parametrize(
    "sent", [message(b"x", headers={"a": 1, "CC": ["k"]}), message(b"x"), message10(a=1)]
)
def test_headers_of_a_dead_letter_are_those_that_a_consumer_gets(sent: Message):
    dead = died(sent)
    seen = AMQP091.headers(rendered(dead)[0])
    (found,) = maps(block(0, dead))
    assert found is not None
    assert list(found) == list(seen)
    assert found["x-last-death-reason"] == seen["x-last-death-reason"]


def test_each_dead_letter_has_its_own_history_and_the_living_have_none():
    same = message(b"x", headers={"a": 1})
    sent = [
        same,
        died(same, "one"),
        died(same, "two"),
        message(b"y"),
        died(message10(b=2), "one"),
        died(same, "one"),
    ]
    found = maps(block(0, *sent))
    assert [each and each.get("x-last-death-queue") for each in found] == [
        None,
        "one",
        "two",
        None,
        "one",
        "one",
    ]
    assert [each and each.get("a") for each in found] == ["1", "1", "1", None, None, "1"]


def test_properties_of_a_dead_letter_are_the_publishers():
    sent = message(b"x", message_id="m", expiration="60000")
    (properties,) = column(block(0, died(sent)), SCHEMAS["amqp"]["properties"])
    assert (properties["message_id"], properties["ttl_ms"]) == ("m", 60_000)  # type: ignore[index]


def test_columns_of_kafka_have_deaths_too():
    (found,) = column(block(0, died(message(b"x"))), SCHEMAS["kafka"]["headers"], "kafka")
    assert {"key": "x-last-death-queue", "value": b"jobs"} in found  # type: ignore[operator]


def test_long_histories_are_not_repeated_without_bound():
    long = [died(message(b""), "q" * 60_000) for _ in range(500)]
    schema = StructType([HEADERS])
    batches = [
        batch
        for batch, _, _ in Decoder(schema_of(schema), "amqp", "jobs", 0).batches(block(0, *long), 0, 999)
    ]
    assert sum(each.num_rows for each in batches) == 500
    assert max(each.nbytes for each in batches) < 64 << 20


def test_headers_may_be_variants_with_the_types_they_have():
    headers = {
        "n": 3,
        "f": 2.5,
        "t": True,
        "tags": ["a", 1, None],
        "raw": ByteArray(b"\xff"),
        "odd": float("nan"),
    }
    sent = [message(b"x", headers=headers), message(b"y"), message(b"z", headers={})]
    found = [
        None if each is None else VariantVal(each["value"], each["metadata"]).toPython()  # type: ignore[index]
        for each in column(block(0, *sent), VARIANT)
    ]
    assert found == [{**headers, "raw": "\\xff", "odd": "nan"}, None, {}]


def test_annotations_are_those_of_amqp_1_0():
    sent = [message10(kind=Symbol("new"), size=ULong(7)), message(b"x", headers={"a": 1}), message10()]
    assert column(block(0, *sent), ANNOTATIONS) == [[("x-opt-kind", "new"), ("x-opt-size", "7")], None, []]


# Options and schemas.


def options(**given: str) -> Options:
    return read_options({"endpoints": "a", "subscribe": "b", **given}, Use.BATCH)


def test_the_default_columns_are_as_ever():
    assert full(options()) == SCHEMAS["amqp"]
    assert full(options(headersFormat="map", includeAnnotations="false")) == SCHEMAS["amqp"]


def test_headers_may_be_left_out_in_two_words():
    without = full(options(includeHeaders="false"))
    assert without == full(options(headersFormat="none"))
    assert "headers" not in without.names
    with pytest.raises(BadOption, match="options headersFormat and includeHeaders exclude each other"):
        options(includeHeaders="false", headersFormat="none")


def test_headers_are_a_variant_if_that_is_asked_for():
    assert full(options(headersFormat="Variant"))["headers"] == VARIANT
    check(StructType([VARIANT]), options(headersFormat="variant"))
    with pytest.raises(BadOption, match="column 'headers' of the schema given is variant; it must be map"):
        check(StructType([VARIANT]), options())


def test_annotations_are_there_if_an_option_or_a_schema_names_them():
    assert full(options(includeAnnotations="true")).names == [*SCHEMAS["amqp"].names, "annotations"]
    check(StructType([ANNOTATIONS]), options())
    with pytest.raises(BadOption, match="has a column 'annotations'"):
        check(StructType([ANNOTATIONS]), options(schema="kafka"))


@pytest.mark.parametrize("given", [{"headersFormat": "variant"}, {"includeAnnotations": "true"}])
def test_kafkas_columns_are_kafkas(given: dict[str, str]):
    with pytest.raises(BadOption, match="are for schema=amqp"):
        options(schema="kafka", **given)


def test_only_the_columns_that_an_option_names_are_there():
    assert full(options(columns="offset, body")).names == ["offset", "body"]
    assert full(options(columns="annotations,headers", headersFormat="variant")).names == [
        "annotations",
        "headers",
    ]
    assert full(options(columns="topic", schema="kafka")).names == ["topic"]
    with pytest.raises(BadOption, match="option columns names 'bodies'; known are body, exchange"):
        full(options(columns="bodies"))
    with pytest.raises(BadOption, match="option columns is 'body,,offset': must name columns"):
        options(columns="body,,offset")
