"""Bodies of Avro become typed columns by the schema that they were written with."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")

from leveret.pipeline.decoding.avro_bodies import schema_of  # noqa: E402
from leveret.pipeline.decoding.column_types import sql_name  # noqa: E402
from leveret.pipeline.errors import BadOption  # noqa: E402
from tests.pipeline.decoding.samples import avro_body, decoded, reason, record, values  # noqa: E402

MONEY = record("Money", amount={"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2})
ORDER = record(
    "Order",
    id="int",
    name=["null", "string"],
    weight="float",
    at={"type": "long", "logicalType": "timestamp-micros"},
    day={"type": "int", "logicalType": "date"},
    clock={"type": "int", "logicalType": "time-millis"},
    key={"type": "string", "logicalType": "uuid"},
    price=MONEY,
    prices={"type": "array", "items": "Money"},
    state={"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]},
    counts={"type": "map", "values": "long"},
    seal={"type": "fixed", "name": "Seal", "size": 2},
)
VALUE = {
    "id": 7,
    "name": None,
    "weight": 0.5,
    "at": datetime(2026, 11, 29, 8, 30, tzinfo=UTC),
    "day": date(2026, 11, 29),
    "clock": time(8, 30),
    "key": UUID(int=1),
    "price": {"amount": Decimal("1.25")},
    "prices": [{"amount": Decimal("2.50")}],
    "state": "SENT",
    "counts": {"x": 1},
    "seal": b"ab",
}


def made(schema: object) -> Any:
    return schema_of(json.dumps(schema), "order.avsc")


def test_a_record_becomes_columns():
    columns = made(ORDER).columns
    assert ", ".join(f"{each.name} {sql_name(each.type)}" for each in columns) == (
        "id bigint, name string, weight double, at timestamp, day date, clock string, key string,"
        " price struct<amount:decimal(6,2)>, prices array<struct<amount:decimal(6,2)>>, state string,"
        " counts map<string,bigint>, seal binary"
    )


def test_values_become_those_of_the_columns():
    expected = {**VALUE, "clock": "08:30:00", "key": str(VALUE["key"]), "counts": [("x", 1)]}
    assert values(made(ORDER), avro_body(ORDER, VALUE)) == [expected]


def test_a_body_that_is_cut_off_or_too_long_has_a_reason():
    schema = record("Order", id="long", name="string")
    body = avro_body(schema, {"id": 300, "name": "hare"})
    for length in range(len(body)):
        assert (
            reason(made(schema), body[:length])
            == "the body ends within a value of order.avsc, or is not of it"
        )
    assert reason(made(schema), body + b"ab") == "the body has 2 bytes more than a value of order.avsc"
    assert reason(made(schema), b"\x00\x02\xff").startswith(
        "the body is not of order.avsc: UnicodeDecodeError"
    )


def test_a_decimal_with_too_many_digits_has_a_reason():
    wide = record("Money", amount={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})
    body = avro_body(wide, {"amount": Decimal("12345678.00")})
    assert reason(made(MONEY), body) == "$.amount: the decimal has more than 6 digits"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "is no record"),
        (record("A"), "is no record with fields"),
        (record("A", a=["int", "string"]), r"union of several types at \$\.a"),
        (record("A", a="null"), r"null at \$\.a"),
        (record("A", a=["null", "A"]), "contains itself"),
        (record("A", a="B"), "names a type B"),
        (record("A", a={"type": "array", "items": "null"}), "no column"),
        (record("A", a={"type": "array", "items": record("B")}), "items may take no bytes"),
        (record("A", a={"type": "bytes", "logicalType": "decimal", "precision": 50}), "50 digits"),
        ({"type": "map"}, "is no Avro schema"),
        ([1], "is no Avro schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: object, why: str):
    with pytest.raises(BadOption, match=why):
        made(schema)


def test_named_types_of_other_schemas_are_found():
    schema = schema_of(json.dumps(record("Order", price="Money")), "schema 2", {"Money": json.dumps(MONEY)})
    whole = record("Order", price=MONEY)
    body = avro_body(whole, {"price": {"amount": Decimal("1.25")}})
    assert values(schema, body) == [{"price": {"amount": Decimal("1.25")}}]


FIELDS: dict[str, tuple[object, st.SearchStrategy[object]]] = {
    "long": ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(st.characters(codec="utf-8"))),
    "bytes": ("bytes", st.binary()),
    "boolean": ("boolean", st.booleans()),
    "maybe": (["null", "long"], st.none() | st.integers(0, 9)),
    "list": ({"type": "array", "items": ["null", "string"]}, st.lists(st.none() | st.text("ab"))),
    "nested": (
        record("N", x="long", y=["null", "string"]),
        st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.none() | st.text("ab")}),
    ),
}


@given(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, unique=True), st.data())
def test_rows_come_back_as_they_were(names: list[str], data: st.DataObject):
    schema = record("Row", **{name: FIELDS[name][0] for name in names})
    row = st.fixed_dictionaries({name: FIELDS[name][1] for name in names})
    given_rows = data.draw(st.lists(row, max_size=4))
    assert values(made(schema), *(avro_body(schema, each) for each in given_rows)) == given_rows


@given(st.binary(max_size=80))
def test_any_bytes_are_a_row_or_have_a_reason(body: bytes):
    found = decoded(made(ORDER), body)
    many = 0 if found.undecoded is None else found.undecoded.num_rows
    assert found.rows.num_rows + many == 1
