"""Bodies of JSON become typed columns by a JSON Schema or by columns as Spark declares them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from leveret.pipeline.decoding import ddl, json_schema  # noqa: E402
from leveret.pipeline.decoding.column_types import TIME, sql_name  # noqa: E402
from leveret.pipeline.decoding.json_bodies import schema_of  # noqa: E402
from leveret.pipeline.errors import BadOption  # noqa: E402
from tests.pipeline.decoding.samples import decoded, json_body, reason, values  # noqa: E402

ORDER = {
    "$defs": {
        "money": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    },
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "price": {"$ref": "#/$defs/money"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "more": {"type": "object"},
        "seal": {"type": "string", "contentEncoding": "base64"},
        "state": {"enum": ["new", "sent", None]},
        "weight": {"anyOf": [{"type": "null"}, {"type": "number"}]},
    },
}
DDL = (
    "id bigint NOT NULL COMMENT 'the order''s', name string, `a-b` int, price decimal(8,2), at timestamp,"
    " tags array<string>, to struct<city: string, zip: int>, counts map<string, array<double>>; "
)


def kinds(columns: pa.Schema) -> str:
    return ", ".join(f"{each.name} {sql_name(each.type)}" for each in columns)


def test_a_json_schema_becomes_columns():
    assert kinds(json_schema.columns_of(ORDER)) == (
        "id bigint, name string, paid boolean, at timestamp, day date, price struct<amount:double>,"
        " tags array<string>, counts map<string,bigint>, more string, seal binary, state string, weight double"
    )


def test_columns_as_spark_declares_them_are_read():
    assert kinds(ddl.columns_of(DDL)) == (
        "id bigint, name string, a-b int, price decimal(8,2), at timestamp, tags array<string>,"
        " to struct<city:string,zip:int>, counts map<string,array<double>>"
    )


def test_values_become_those_of_the_columns():
    schema = schema_of(json.dumps(ORDER), "order.json")
    body = json_body(
        id=7,
        name="Häsin",
        at="2026-11-29T09:30:00.5+01:00",
        day="2026-11-29",
        price={"amount": 3},
        tags=["a", None],
        counts={"x": 1},
        more={"b": [1.5]},
        seal="AAE=",
        state=None,
        unknown=[1],
    )
    assert values(schema, body) == [
        {
            "id": 7,
            "name": "Häsin",
            "paid": None,
            "at": datetime(2026, 11, 29, 8, 30, 0, 500_000, UTC),
            "day": date(2026, 11, 29),
            "price": {"amount": 3.0},
            "tags": ["a", None],
            "counts": [("x", 1)],
            "more": '{"b": [1.5]}',
            "seal": b"\x00\x01",
            "state": None,
            "weight": None,
        }
    ]


def test_decimals_are_exact():
    schema = schema_of("price decimal(20,2), n double", "x")
    assert values(schema, b'{"price": 123456789012345678.9, "n": 0.5}') == [
        {"price": Decimal("123456789012345678.90"), "n": 0.5}
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body is no JSON: Expecting value"),
        (b"\xff{}", "the body is no UTF-8 at byte 0"),
        (b"[1]", "$: list is no object"),
        (b'{"id": 1} {}', "the body is no JSON: Extra data"),
        (b"{}", "$.id is missing"),
        (b'{"id": null}', "$.id is null"),
        (b'{"id": "7"}', "$.id: '7' is no bigint"),
        (b'{"id": true}', "$.id: True is no bigint"),
        (b'{"id": 1.5}', "$.id: 1.5 is no bigint"),
        (b'{"id": 9223372036854775808}', "$.id: 9223372036854775808 is no bigint"),
        (b'{"id": 1e400}', "$.id: inf is no bigint"),
        (b'{"id": 1, "weight": 1e400}', "$.weight: inf is no double"),
        (b'{"id": 1, "weight": NaN}', "the body is no JSON: NaN is no value of JSON"),
        (b'{"id": 1, "paid": 1}', "$.paid: 1 is no boolean"),
        (b'{"id": 1, "name": 1}', "$.name: 1 is no string"),
        (b'{"id": 1, "name": "\\ud800"}', "$.name: half of a surrogate pair is no text"),
        (b'{"id": 1, "at": "yesterday"}', "$.at: 'yesterday' is no time such as 2026-11-29T08:30:00Z"),
        (b'{"id": 1, "at": 5}', "$.at: 5 is no time"),
        (b'{"id": 1, "day": "2026-02-30"}', "$.day: '2026-02-30' is no date"),
        (b'{"id": 1, "price": {}}', "$.price.amount is missing"),
        (b'{"id": 1, "tags": {}}', "$.tags: dict is no array"),
        (b'{"id": 1, "tags": ["a", 2]}', "$.tags[]: 2 is no string"),
        (b'{"id": 1, "counts": {"x": "y"}}', "$.counts.*: 'y' is no bigint"),
        (b'{"id": 1, "seal": "?"}', "$.seal: '?' is no text in base64"),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"id": ' + b"9" * 5000 + b"}", "the body is no JSON: Exceeds the limit"),
    ],
)
def test_what_is_not_of_the_schema_has_a_reason(body: bytes, why: str):
    assert reason(schema_of(json.dumps(ORDER), "order.json"), body).startswith(why)


def test_a_decimal_that_does_not_fit_has_a_reason():
    schema = schema_of("price decimal(4,2)", "x")
    for value in ("100", "1.234", '"x"', "1e999999999", "true"):
        assert reason(schema, b'{"price": %s}' % value.encode()).endswith("is no decimal(4,2)")


def test_integers_of_the_declared_width_only():
    schema = schema_of("n tinyint", "x")
    assert values(schema, b'{"n": -128}', b'{"n": 127.0}') == [{"n": -128}, {"n": 127}]
    assert reason(schema, b'{"n": 128}') == "$.n: 128 is no tinyint"


def test_rows_are_parted_in_their_order():
    schema = schema_of("n bigint", "x")
    found = decoded(schema, b'{"n": 1}', b"?", None, b'{"n": 2}')
    assert found.rows.to_pylist() == [
        {"body": b'{"n": 1}', "offset": 0, "n": 1},
        {"body": b'{"n": 2}', "offset": 3, "n": 2},
    ]
    assert found.undecoded is not None
    assert [(each["offset"], each["reason"]) for each in found.undecoded.to_pylist()] == [
        (1, "the body is no JSON: Expecting value: line 1 column 1 (char 0)"),
        (2, "the message has no body"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type": "string"}', "is not one of objects"),
        (
            '{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}',
            r"string or integer at \$\.a",
        ),
        ('{"type": "object", "properties": {"a": {}}}', r"no type at \$\.a"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}', r"refers to '#/\$defs/b'"),
        ('{"type": "object", "properties": {"a": {"$ref": "#"}}}', "more than 32 deep"),
        ('{"type": "object", "properties": {"a": {"type": "blob"}}}', "unknown type 'blob'"),
        (
            '{"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "number"}]}}}',
            "several",
        ),
        ("{", "is no JSON"),
        ("", "declares no column"),
        ("a", "no type ''"),
        ("a blob", "no type 'blob'"),
        ("a int b int", "'b' where ',' is expected"),
        ("a decimal(39,2)", "up to 38 digits"),
        ("a map<int,int>", "'int' where 'string' is expected"),
        ("a array<int", "'its end' where '>' is expected"),
        ("a int not nul", "'nul' where 'null' is expected"),
        ("a $ int", "cannot be read at"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "more than 32 deep"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(text: str, why: str):
    with pytest.raises(BadOption, match=why):
        schema_of(text, "the schema")


# Round trips.

TIMES = st.datetimes(timezones=st.just(UTC))
SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[object], object]] = {
    "bigint": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1), None),
    "int": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1), None),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), None),
    "boolean": (pa.bool_(), st.booleans(), None),
    "string": (pa.string(), st.text(st.characters(codec="utf-8")), None),
    "date": (pa.date32(), st.dates(), str),
    "timestamp": (TIME, TIMES, str),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[dict[str, object]]]:
    """A declaration, and rows of it in which values may be missing."""
    chosen = draw(st.lists(st.sampled_from(sorted(SCALARS)), min_size=1, max_size=5))
    columns = {f"c{number}": name for number, name in enumerate(chosen)}
    row = st.fixed_dictionaries({}, optional={each: SCALARS[name][1] for each, name in columns.items()})
    text = ", ".join(f"{each} {name}" for each, name in columns.items())
    return text, draw(st.lists(row, max_size=4))


@given(tables())
def test_rows_come_back_as_they_were(table: tuple[str, list[dict[str, object]]]):
    text, given_rows = table
    schema = schema_of(text, "x")
    bodies = [json.dumps(row, default=str).encode() for row in given_rows]
    names = schema.columns.names
    assert values(schema, *bodies) == [{name: row.get(name) for name in names} for row in given_rows]


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "at", "tags"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_a_row_or_have_a_reason(body: bytes):
    found = decoded(schema_of(json.dumps(ORDER), "order.json"), body)
    many = 0 if found.undecoded is None else found.undecoded.num_rows
    assert found.rows.num_rows + many == 1
