"""The columns of a table grow with the schemas of bodies, and keep their types."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from leveret.pipeline.decoding.body_schema import BodySchema, OneSchema  # noqa: E402
from leveret.pipeline.decoding.column_types import Conflict, merged, sql_name  # noqa: E402
from leveret.pipeline.decoding.ddl import columns_of  # noqa: E402
from leveret.pipeline.decoding.json_bodies import schema_of  # noqa: E402
from leveret.pipeline.decoding.row_decoder import RowDecoder  # noqa: E402
from leveret.pipeline.errors import BadOption  # noqa: E402
from tests.pipeline.decoding.samples import rows  # noqa: E402


@pytest.mark.parametrize(
    ("table", "schema", "both"),
    [
        ("a bigint", "a bigint, b string", "a bigint, b string"),
        ("a bigint, b string", "b string", "a bigint, b string"),
        ("a bigint", "a int", "a bigint"),
        ("a double", "a float", "a double"),
        ("a decimal(8,2)", "a decimal(6,2)", "a decimal(8,2)"),
        ("a struct<x: int>", "a struct<y: int>", "a struct<x:int,y:int>"),
        ("a array<struct<x: int>>", "a array<struct<y: int>>", "a array<struct<x:int,y:int>>"),
        ("a map<string,bigint>", "a map<string,int>", "a map<string,bigint>"),
    ],
)
def test_a_table_has_the_columns_of_both(table: str, schema: str, both: str):
    found = merged(columns_of(table), columns_of(schema))
    assert ", ".join(f"{each.name} {sql_name(each.type)}" for each in found) == both


@pytest.mark.parametrize(
    ("table", "schema", "why"),
    [
        ("a int", "a bigint", "a is bigint in the schema, and int in the table"),
        ("a bigint", "a string", "a is string in the schema, and bigint in the table"),
        ("a bigint", "a double", "a is double in the schema, and bigint in the table"),
        ("a decimal(8,2)", "a decimal(8,3)", r"a is decimal\(8,3\)"),
        ("a struct<x: int>", "a struct<x: string>", r"a\.x is string"),
        ("a array<int>", "a array<string>", r"a\[\] is string"),
        ("a map<string,int>", "a map<string,string>", r"a\.\* is string"),
        ("a int", "A int", "a and A differ in upper and lower case only"),
    ],
)
def test_a_column_keeps_its_type(table: str, schema: str, why: str):
    with pytest.raises(Conflict, match=why):
        merged(columns_of(table), columns_of(schema))


def decoder(text: str, table: str = "", **given: object) -> RowDecoder:
    columns = columns_of(table) if table else pa.schema([])
    return RowDecoder(OneSchema(schema_of(text, "order.ddl")), columns, ("body", "offset"), **given)  # type: ignore[arg-type]


def test_columns_of_an_earlier_schema_are_null():
    found = decoder("b string", "a bigint").decode(rows(b'{"a": 1, "b": "x"}'))
    assert found.rows.select(["a", "b"]).to_pylist() == [{"a": None, "b": "x"}]


def test_columns_may_have_a_prefix():
    found = decoder("body string", prefix="order_").decode(rows(b'{"body": "x"}'))
    assert found.rows["order_body"].to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Body string", "order.ddl: the column Body is one of the message itself"),
        ("`a b` string", "can have no column 'a b'"),
        ("a struct<`x;y`: int>", "can have no column"),
        ("a int, A int", "differ in upper and lower case only"),
        ("a struct<>", "a would have no fields"),
        (", ".join(f"c{number} int" for number in range(1001)), "more than 1000 columns"),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused(text: str, why: str):
    with pytest.raises(BadOption, match=why):
        decoder(text)


def test_a_body_of_amqp_1_0_that_is_a_value_is_read_as_json():
    batch = rows(b"\x00", b'{"n": 2}').append_column("body_json", pa.array(['{"n": 1}', None]))
    assert decoder("n int", reads_json=True).decode(batch).rows["n"].to_pylist() == [1, 2]
    assert decoder("n int").decode(batch).rows["n"].to_pylist() == [2]


def test_a_value_that_arrow_refuses_has_a_reason_and_the_others_are_kept():
    columns = pa.schema([("n", pa.int8())])
    schema = BodySchema("lax", columns, lambda body: {"n": int(body)})
    found = RowDecoder(OneSchema(schema), pa.schema([]), ()).decode(rows(b"1", b"1000", b"2"))
    assert found.rows["n"].to_pylist() == [1, 2]
    assert found.undecoded is not None
    assert found.undecoded["offset"].to_pylist() == [1]
    assert found.undecoded["reason"][0].as_py().startswith("the value of column n does not fit: ")
