"""Bodies that name their schema by an id: the registry is asked once, within limits, and its secrets stay secret."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from leveret.pipeline.decoding.body_schema import Undecodable  # noqa: E402
from leveret.pipeline.decoding.registry import (  # noqa: E402
    SCHEMA_MAX,
    TOKEN,
    UNKNOWN_MAX,
    UNKNOWN_S,
    RegistryClient,
    RegistryEndpoint,
    RegistrySchemas,
    indexes_at,
)
from leveret.pipeline.decoding.row_decoder import RowDecoder  # noqa: E402
from leveret.pipeline.errors import BadOption, PipelineError, Unauthorized, Unreachable  # noqa: E402
from tests.pipeline.decoding.registry_server import FakeRegistry, serving  # noqa: E402
from tests.pipeline.decoding.samples import (  # noqa: E402
    NO_COLUMNS,
    avro_body,
    descriptor_file,
    made,
    record,
    rows,
)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with serving() as found:
        yield found


def head(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def client(registry: FakeRegistry, environ: dict[str, str] | None = None, **given: Any) -> RegistryClient:
    return RegistryClient(RegistryEndpoint(registry.url, **given), environ or {}, lambda seconds: None)


def decoder(registry: FakeRegistry, kind: str, table: pa.Schema = NO_COLUMNS) -> RowDecoder:
    return RowDecoder(RegistrySchemas(client(registry), kind), table, ("body", "offset"))


FIRST = record("Order", id="int")
SECOND = record("Order", id="long", name=["null", "string"])


def test_each_body_is_decoded_by_the_schema_that_it_names(registry: FakeRegistry):
    registry.avro(1, FIRST)
    registry.avro(2, SECOND)
    decoding = decoder(registry, "avro")
    bodies = [
        head(1) + avro_body(FIRST, {"id": 7}),
        head(2) + avro_body(SECOND, {"id": 8, "name": "hare"}),
        head(1) + avro_body(FIRST, {"id": 9}),
    ]
    found = decoding.decode(rows(*bodies))
    assert found.rows.select(["id", "name"]).to_pylist() == [
        {"id": 7, "name": None},
        {"id": 8, "name": "hare"},
        {"id": 9, "name": None},
    ]
    decoding.decode(rows(*bodies))
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_schema_that_does_not_fit_the_table_makes_its_rows_undecodable(registry: FakeRegistry):
    other = record("Order", id="string")
    registry.avro(1, FIRST)
    registry.avro(2, other)
    bodies = [head(1) + avro_body(FIRST, {"id": 7}), head(2) + avro_body(other, {"id": "x"})]
    found = decoder(registry, "avro").decode(rows(*bodies))
    assert found.rows["id"].to_pylist() == [7]
    assert found.undecoded is not None
    assert found.undecoded["reason"].to_pylist() == [
        "schema 2: the column id is string in the schema, and bigint in the table"
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body has no id of a schema: it is empty"),
        (b'{"id": 1}', "the body has no id of a schema: it begins with byte 0x7b, not 0"),
        (b"\0\0\0", "the body has no id of a schema: it begins with byte 0x00, not 0"),
        (head(9), "the registry has no schema 9"),
        (head(3), "schema 3 is of json, not of avro"),
        (head(4), "schema 4 is no Avro schema"),
        (head(5), "the registry has no version 1 of of Money"),
        (head(6), "schemas refer to each other: A"),
        (head(1), "the body ends within a value of schema 1"),
    ],
)
def test_a_body_whose_schema_is_not_there_has_a_reason(registry: FakeRegistry, body: bytes, why: str):
    registry.avro(1, FIRST)
    registry.json(3, {"type": "object", "properties": {"a": {"type": "string"}}})
    registry.avro(4, [1])
    registry.avro(5, FIRST, references=("Money",))
    registry.avro(6, FIRST, references=("A",))
    registry.avro(7, FIRST, references=("A",))
    registry.subjects["of A", "1"] = registry.schemas[7]
    found = decoder(registry, "avro").decode(rows(body))
    assert found.undecoded is not None
    assert found.undecoded["reason"][0].as_py().startswith(why.replace("0x00, not 0", "0x00, not 0"))


def test_referred_schemas_come_along(registry: FakeRegistry):
    money = record("Money", amount="long")
    registry.avro(1, record("Order", price="Money"), references=("Money",))
    registry.avro(99, money)
    registry.subjects["of Money", "1"] = registry.schemas.pop(99)
    body = head(1) + avro_body(record("Order", price=money), {"price": {"amount": 3}})
    assert decoder(registry, "avro").decode(rows(body)).rows["price"].to_pylist() == [{"amount": 3}]
    assert registry.asked == ["/schemas/ids/1", "/subjects/of%20Money/versions/1"]


def test_bodies_of_json_have_ids_too(registry: FakeRegistry):
    registry.json(1, {"type": "object", "properties": {"id": {"type": "integer"}}})
    found = decoder(registry, "json").decode(rows(head(1) + b'{"id": 3}'))
    assert found.rows["id"].to_pylist() == [3]


def test_bodies_of_protocol_buffers_name_a_message_too(registry: FakeRegistry):
    money = descriptor_file("", Money=[("amount", "int64")])  # a registry does not know the name of a file
    order = descriptor_file(
        "",
        Order=[("id", "int64"), ("price", "message", {"type_name": ".shop.Money"})],
        Refund=[("reason", "string")],
    )
    line = order.message_type[0].nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=5, label=1)
    order.dependency.append("money.proto")
    registry.protobuf(1, order, references=("money.proto",))
    registry.protobuf(2, money)
    registry.subjects["of money.proto", "1"] = registry.schemas.pop(2)
    money.name = "money.proto"
    files = [money, order]
    bodies = [
        head(1) + b"\x00" + made(files, "shop.Order", id=7, price={"amount": 3}),
        head(1) + b"\x02\x02" + made(files, "shop.Refund", reason="torn"),
        head(1) + b"\x04\x00\x00" + made(files, "shop.Order.Line", count=2),
        head(1) + b"\x02\x08",
    ]
    found = decoder(registry, "protobuf").decode(rows(*bodies))
    assert found.rows.drop_columns(["body", "offset"]).to_pylist() == [
        {"id": 7, "price": {"amount": 3}, "reason": None, "count": None},
        {"id": None, "price": None, "reason": "torn", "count": None},
        {"id": None, "price": None, "reason": None, "count": 2},
    ]
    assert found.undecoded is not None
    assert found.undecoded["reason"].to_pylist() == ["schema 1 has no message at index 4"]
    assert registry.asked[0] == "/schemas/ids/1?format=serialized"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.binary(max_size=3))
def test_indexes_are_read_as_they_are_written(indexes: list[int], tail: bytes):
    def varint(number: int) -> bytes:
        number <<= 1
        found = b""
        while number > 0x7F:
            found += bytes([number & 0x7F | 0x80])
            number >>= 7
        return found + bytes([number])

    octets = varint(len(indexes)) + b"".join(map(varint, indexes))
    assert indexes_at(b"12345" + octets + tail, 5) == (tuple(indexes), 5 + len(octets))
    for length in range(len(octets)):
        with pytest.raises(Undecodable):
            indexes_at(octets[:length], 0)


@pytest.mark.parametrize("octets", [b"\x01", b"\x42" + b"\0" * 33, b"\x02\x01", b"\xff" * 9])
def test_indexes_that_cannot_be_are_refused(octets: bytes):
    with pytest.raises(Undecodable, match="index"):
        indexes_at(octets, 0)


# Limits.


def test_an_unknown_id_is_asked_about_again_after_a_while(registry: FakeRegistry):
    at = [0.0]
    schemas = RegistrySchemas(client(registry), "avro", lambda: at[0])
    for _ in range(3):
        with pytest.raises(Undecodable, match="has no schema 1"):
            schemas.schema_for(head(1))
    registry.avro(1, FIRST)
    at[0] = UNKNOWN_S
    assert schemas.schema_for(head(1))[0].columns.names == ["id"]
    assert len(registry.asked) == 2


def test_ids_of_a_publisher_do_not_become_as_many_requests(registry: FakeRegistry):
    at = [0.0]
    schemas = RegistrySchemas(client(registry), "avro", lambda: at[0])
    for number in range(UNKNOWN_MAX):
        with pytest.raises(Undecodable, match="has no schema"):
            schemas.schema_for(head(number))
    with pytest.raises(Undecodable, match="schema 5000 was not asked for"):
        schemas.schema_for(head(5000))
    assert len(registry.asked) == UNKNOWN_MAX
    at[0] = UNKNOWN_S
    with pytest.raises(Undecodable, match="has no schema 5000"):
        schemas.schema_for(head(5000))


def test_a_registry_that_is_gone_is_no_reason_of_a_row(registry: FakeRegistry):
    registry.avro(1, FIRST)
    registry.faults = [503, 500]
    assert client(registry).ask("/schemas/ids/1") is not None
    registry.faults = [503, 502, 500]
    decoding = decoder(registry, "avro")
    with pytest.raises(Unreachable, match="does not answer: it answers 500"):
        decoding.decode(rows(head(1)))
    gone = RegistryClient(RegistryEndpoint("http://127.0.0.1:1"), {}, lambda seconds: None)
    with pytest.raises(Unreachable, match="refused"):
        gone.ask("/schemas/ids/1")


def test_an_answer_that_is_too_long_or_none_of_a_registry_is_an_error(registry: FakeRegistry):
    registry.schemas[1] = {"schema": "x" * SCHEMA_MAX}
    with pytest.raises(PipelineError, match="more than 4194304 bytes"):
        client(registry).ask("/schemas/ids/1")
    registry.schemas[2] = [1]  # type: ignore[assignment]
    with pytest.raises(PipelineError, match="no JSON object"):
        client(registry).ask("/schemas/ids/2")


# Who asks.


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_password_or_a_token_lets_in_and_is_not_shown(registry: FakeRegistry, tmp_path: Path):
    registry.avro(1, FIRST)
    file = tmp_path / "secret"
    file.write_text("sesame\n")
    cases: list[tuple[str, dict[str, str], dict[str, str]]] = [
        (basic("hare", "sesame"), {"user": "hare", "password_file": str(file)}, {}),
        (basic("hare", "sesame"), {"user": "hare"}, {"LEVERET_REGISTRY_PASSWORD": "sesame"}),
        ("Bearer sesame", {"token_file": str(file)}, {}),
        ("Bearer sesame", {}, {TOKEN: "sesame"}),
    ]
    for allowed, given_fields, environ in cases:
        registry.allowed = allowed
        assert client(registry, environ, **given_fields).ask("/schemas/ids/1") is not None
        registry.allowed = "another"
        with pytest.raises(Unauthorized, match="does not let") as caught:
            client(registry, environ, **given_fields).ask("/schemas/ids/1")
        assert "sesame" not in str(caught.value)
    endpoint = RegistryEndpoint(registry.url, "hare", str(file))
    assert "sesame" not in repr(endpoint)


def test_a_token_that_was_renewed_is_read_again(registry: FakeRegistry, tmp_path: Path):
    file = tmp_path / "token"
    registry.avro(1, FIRST)
    asking = client(registry, token_file=str(file))
    for token in ("one", "two"):
        file.write_text(token)
        registry.allowed = f"Bearer {token}"
        assert asking.ask("/schemas/ids/1") is not None


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        (RegistryEndpoint("registry:8081"), "is not such as https"),
        (RegistryEndpoint("http://hare:sesame@registry"), "has a user or password in it"),
        (RegistryEndpoint("http://registry", "hare", token_file="x"), "with a token, or with a user"),
        (RegistryEndpoint("http://registry", password_file="x"), "of no use without --registry-user"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused(endpoint: RegistryEndpoint, why: str):
    with pytest.raises(BadOption, match=why) as caught:
        RegistryClient(endpoint)
    assert "sesame" not in str(caught.value)
