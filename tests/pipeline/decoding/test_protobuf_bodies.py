"""Bodies of Protocol Buffers become typed columns by descriptors of their messages."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("google.protobuf")

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet  # noqa: E402

from leveret.pipeline.decoding.column_types import sql_name  # noqa: E402
from leveret.pipeline.decoding.protobuf_bodies import message_schema, schema_in  # noqa: E402
from leveret.pipeline.errors import BadOption  # noqa: E402
from tests.pipeline.decoding.samples import (  # noqa: E402
    decoded,
    descriptor_file,
    made,
    optional,
    reason,
    values,
)

REPEATED = {"label": FieldDescriptorProto.LABEL_REPEATED}
MONEY = descriptor_file("money.proto", Money=[("amount", "int64"), ("currency", "string")])


def order_file() -> Any:
    """Return the descriptor of orders: all kinds of fields."""
    found = descriptor_file(
        "order.proto",
        Order=[
            ("id", "uint32"),
            ("serial", "uint64"),
            ("name", "string"),
            ("note", "string"),
            ("weight", "float"),
            ("paid", "bool"),
            ("seal", "bytes"),
            ("state", "enum", {"type_name": ".shop.State"}),
            ("price", "message", {"type_name": ".shop.Money"}),
            ("tags", "string", REPEATED),
            ("parts", "message", {**REPEATED, "type_name": ".shop.Money"}),
            ("counts", "message", {**REPEATED, "type_name": ".shop.Order.CountsEntry"}),
            ("at", "message", {"type_name": ".google.protobuf.Timestamp"}),
            ("limit", "message", {"type_name": ".google.protobuf.Int64Value"}),
            ("more", "message", {"type_name": ".google.protobuf.Struct"}),
        ],
    )
    order = found.message_type[0]
    optional(order.field[3], order)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", "INT32"), ("value", "INT64")), 1):
        kind_number = getattr(FieldDescriptorProto, f"TYPE_{kind}")
        entry.field.add(name=name, number=number, type=kind_number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    states = found.enum_type.add(name="State")
    states.value.add(name="NEW", number=0)
    states.value.add(name="SENT", number=1)
    found.dependency.extend(
        ["money.proto", *(f"google/protobuf/{each}.proto" for each in ("timestamp", "wrappers", "struct"))]
    )
    return found


FILES = [MONEY, order_file()]
ORDER = message_schema(FILES, "shop.Order", "order.desc")


def test_a_message_becomes_columns():
    assert ", ".join(f"{each.name} {sql_name(each.type)}" for each in ORDER.columns) == (
        "id bigint, serial decimal(20,0), name string, note string, weight double, paid boolean, seal binary,"
        " state string, price struct<amount:bigint,currency:string>, tags array<string>,"
        " parts array<struct<amount:bigint,currency:string>>, counts map<string,bigint>, at timestamp,"
        " limit bigint, more string"
    )


def test_values_become_those_of_the_columns():
    body = made(
        FILES,
        "shop.Order",
        id=(1 << 32) - 1,
        serial=(1 << 64) - 1,
        name="hare",
        note="",
        weight=0.5,
        seal=b"\xff",
        state=1,
        price={"amount": 3},
        tags=["a"],
        parts=[{"currency": "EUR"}],
        counts={4: 5},
        at={"seconds": 1_795_940_000, "nanos": 1000},
        limit={"value": 0},
        more={"a": [1]},
    )
    assert values(ORDER, body) == [
        {
            "id": 4294967295,
            "serial": Decimal(18446744073709551615),
            "name": "hare",
            "note": "",
            "weight": 0.5,
            "paid": False,
            "seal": b"\xff",
            "state": "SENT",
            "price": {"amount": 3, "currency": ""},
            "tags": ["a"],
            "parts": [{"amount": 0, "currency": "EUR"}],
            "counts": [("4", 5)],
            "at": datetime.fromtimestamp(1_795_940_000, UTC).replace(microsecond=1),
            "limit": 0,
            "more": '{"a": [1.0]}',
        }
    ]


def test_a_field_that_says_whether_it_is_there_is_null_if_it_is_not():
    (found,) = values(ORDER, b"")
    assert {name: found[name] for name in ("name", "note", "state", "price", "at", "limit", "tags")} == {
        "name": "",
        "note": None,
        "state": "NEW",
        "price": None,
        "at": None,
        "limit": None,
        "tags": [],
    }


def test_a_value_of_an_enum_without_a_name_is_its_number():
    assert values(ORDER, made(FILES, "shop.Order", state=7))[0]["state"] == "7"


def test_a_body_that_is_no_such_message_has_a_reason():
    assert reason(ORDER, b"\x08").startswith("the body is no shop.Order: ")
    assert reason(ORDER, b"\x1a\x01\xff").startswith("the body is no shop.Order: ")  # no UTF-8
    far = made(FILES, "shop.Order", at={"seconds": 1 << 60})
    assert reason(ORDER, far).startswith("the time of 1152921504606846976 seconds")


def test_a_required_field_that_is_missing_has_a_reason():
    old = descriptor_file("old.proto", Old=[("id", "int32", {"label": FieldDescriptorProto.LABEL_REQUIRED})])
    old.syntax = "proto2"
    assert reason(message_schema([old], "shop.Old", "x"), b"") == "the body is no shop.Old: it lacks id"


def test_the_message_of_a_file_is_found_or_has_to_be_named():
    def octets(*files: Any) -> bytes:
        found: bytes = FileDescriptorSet(file=files).SerializeToString()
        return found

    assert schema_in(octets(*FILES), None, "order.desc").columns == ORDER.columns
    assert schema_in(octets(*FILES), "shop.Money", "order.desc").columns.names == ["amount", "currency"]
    two = descriptor_file("two.proto", A=[("a", "int32")], B=[("b", "int32")])
    with pytest.raises(BadOption, match=r"has the messages shop\.A, shop\.B: name one with --message"):
        schema_in(octets(two), None, "two.desc")
    with pytest.raises(BadOption, match=r"has no message shop\.C"):
        schema_in(octets(two), "shop.C", "two.desc")
    with pytest.raises(BadOption, match="is no set of descriptors"):
        schema_in(b"syntax = 'proto3';", None, "two.proto")
    with pytest.raises(BadOption, match="is no complete set of descriptors"):
        schema_in(octets(order_file()), None, "order.desc")


def test_a_message_that_contains_itself_or_nothing_is_refused():
    tree = descriptor_file("tree.proto", Tree=[("left", "message", {"type_name": ".shop.Tree"})])
    with pytest.raises(BadOption, match="contains itself"):
        message_schema([tree], "shop.Tree", "x")
    with pytest.raises(BadOption, match="has no fields"):
        message_schema([descriptor_file("e.proto", Empty=[])], "shop.Empty", "x")


PRICES = st.fixed_dictionaries({"amount": st.integers(-9, 9), "currency": st.text("ab")})


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.integers(0, (1 << 32) - 1),
                "name": st.text(st.characters(codec="utf-8")),
                "tags": st.lists(st.text("ab"), max_size=3),
                "seal": st.binary(max_size=9),
            },
            optional={
                "note": st.text("ab"),
                "price": PRICES,
            },
        ),
        max_size=4,
    )
)
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]]):
    found = values(ORDER, *(made(FILES, "shop.Order", **row) for row in rows))
    names = ("id", "name", "tags", "seal", "note", "price")
    assert [{name: each[name] for name in names} for each in found] == [
        {name: row.get(name) for name in names} for row in rows
    ]


@given(st.binary(max_size=80))
def test_any_bytes_are_a_row_or_have_a_reason(body: bytes):
    found = decoded(ORDER, body)
    many = 0 if found.undecoded is None else found.undecoded.num_rows
    assert found.rows.num_rows + many == 1
