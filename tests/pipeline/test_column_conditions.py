"""A selector that is evaluated on columns decides as it does on messages, whatever it and their headers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest

pytest.importorskip("pyarrow")

from hypothesis import assume, given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.message import Facts, Message
from leveret.pipeline.decode import pieces
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.row_filter import RowFilter
from leveret.pipeline.shapes import ROWS_MIN
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp091.codec import fields
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.codec import types
from leveret.protocols.amqp10.codec.types import Symbol, encode
from leveret.selectors.parser import compile_selector
from tests.pipeline.bulk import block, message
from tests.pipeline.test_shapes import SHIFTS, mixed

FACTS = Facts(has_headers=True)
NAMES = ("a", "b", "x-c", "d")
TEXTS = st.sampled_from(
    ("", "a", "b", "ab", "a_b", "a%b", "a\nb", "\xfc", "\uffff", "\U00010000", "true", "1")
) | st.text(max_size=4)
EDGES = (
    0,
    1,
    -1,
    3,
    7,
    *(sign * (1 << bits) + more for bits in (53, 63) for sign in (1, -1) for more in (-1, 0, 1)),
)
FLOATS = st.sampled_from((0.0, -0.0, 0.5, 1.0, 2.0**53, 2.0**63, -(2.0**63), 1e308)) | st.floats()


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    """Whole numbers in [low, high), of which many are small or at an edge."""
    return st.sampled_from([each for each in EDGES if low <= each < high]) | st.integers(low, high - 1)


def signed(bits: int) -> st.SearchStrategy[int]:
    return whole(-(1 << bits - 1), 1 << bits - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return whole(0, 1 << bits)


# The values of a header, by their types.
VALUES_091: list[st.SearchStrategy[object]] = [
    st.none(),
    st.booleans(),
    TEXTS,
    st.binary(max_size=3),
    st.binary(max_size=3).map(fields.ByteArray),
    FLOATS,
    st.floats(width=32).map(fields.Float32),
    signed(8).map(fields.Int8),
    unsigned(8).map(fields.UInt8),
    signed(16).map(fields.Int16),
    unsigned(16).map(fields.UInt16),
    signed(32),
    unsigned(32).map(fields.UInt32),
    signed(64).map(fields.LongLong),
    unsigned(64).map(fields.Timestamp),
    st.integers(-9, 9).map(lambda tenths: Decimal(tenths) / 10),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 9), max_size=2),
]
VALUES_10: list[st.SearchStrategy[object]] = [
    st.none(),
    st.booleans(),
    TEXTS,
    st.text("ab", max_size=3).map(Symbol),
    st.binary(max_size=3),
    st.uuids(),
    FLOATS,
    st.floats(width=32).map(types.Float32),
    signed(8).map(types.Byte),
    unsigned(8).map(types.UByte),
    signed(16).map(types.Short),
    unsigned(16).map(types.UShort),
    signed(32).map(types.Int),
    unsigned(32).map(types.UInt),
    signed(64).map(types.Long),
    unsigned(64).map(types.ULong),
    signed(64).map(types.Timestamp),
    st.characters(codec="utf-8").map(types.Char),
    st.just(types.Decimal32(bytes(4))),
    st.lists(st.integers(0, 9), max_size=2),
]


def row_091(headers: dict[str, object]) -> Message:
    return Message(AMQP091, "", "orders", message(b"", headers=headers).properties, b"x", FACTS)


def row_10(headers: dict[str, object]) -> Message:
    """Return a message whose headers are annotations if they begin with `x-`, and else application-properties."""
    annotations = {Symbol(name): each for name, each in headers.items() if name.startswith("x-")}
    application = {name: each for name, each in headers.items() if not name.startswith("x-")}
    sections = [
        b"\0S" + kind + encode(each) for kind, each in ((b"r", annotations), (b"t", application)) if each
    ]  # type: ignore[arg-type]
    return Message(AMQP10, "", "orders", b"".join(sections), b"\0Su\xa0\x01x", FACTS)


ENCODINGS = [(row_091, VALUES_091), (row_10, VALUES_10)]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


HEADERS = st.sampled_from(NAMES).map('"{}"'.format)
LITERALS = (
    st.sampled_from((*EDGES, 1 << 64)).map(str)
    | FLOATS.map(str).filter(lambda text: text[-1].isdigit())
    | TEXTS.map(quoted)
    | st.sampled_from(("TRUE", "FALSE", "1e400"))
)
OPERANDS = st.recursive(
    HEADERS | LITERALS,
    lambda inner: (
        inner.map("(-{})".format)
        | inner.map("(+{})".format)
        | st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda each: "({} {} {})".format(*each))
    ),
    max_leaves=4,
)
PATTERNS = st.text("ab_%\\.*\n\xfc\U00010000", max_size=5).map(quoted)
NOT = st.sampled_from(("", "NOT "))


def written(text: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda each: text.format(*each))


SIMPLE = (
    HEADERS
    | written("{} {} {}", OPERANDS, st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">=")), OPERANDS)
    | written("{} {}BETWEEN {} AND {}", OPERANDS, NOT, OPERANDS, OPERANDS)
    | written("{} {}IN ({})", OPERANDS, NOT, st.lists(LITERALS, min_size=1, max_size=3).map(", ".join))
    | written("{} {}LIKE {}", OPERANDS, NOT, PATTERNS)
    | written("{} LIKE {} ESCAPE '\\'", OPERANDS, PATTERNS)
    | written("{} IS {}NULL", HEADERS, NOT)
)
SELECTORS = st.recursive(
    SIMPLE,
    lambda inner: (
        written("NOT ({})", inner) | written("({}) {} ({})", inner, st.sampled_from(("AND", "OR")), inner)
    ),
    max_leaves=4,
)


def row_filter(selector: str) -> RowFilter:
    return RowFilter(read_options({"endpoints": "a", "subscribe": "o", "selector": selector}, Use.STREAM))


def flags(selector: str, sent: Sequence[Message]) -> list[int]:
    return list(row_filter(selector).flags(list(pieces(block(0, *sent), 0, len(sent)))))


@st.composite
def rows(draw: st.DrawFn, values: list[st.SearchStrategy[object]]) -> list[dict[str, object]]:
    """Draw the headers of several rows that have the same names, and values of the same types."""
    names = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(values), min_size=1, max_size=3)
    return draw(st.lists(st.fixed_dictionaries(draw(names)), min_size=4, max_size=6))


@pytest.mark.parametrize(("row", "values"), ENCODINGS)
@given(selector=SELECTORS, shifts=SHIFTS, data=st.data())
def test_rows_are_those_that_the_selector_matches(
    row: Callable[[dict[str, object]], Message],
    values: list[st.SearchStrategy[object]],
    selector: str,
    shifts: list[int],
    data: st.DataObject,
):
    try:
        matches = compile_selector(selector).matches
    except PreconditionFailed:
        assume(False)
    different = [each for _ in range(2) for each in data.draw(rows(values))]
    sent = mixed(list(map(row, different)), shifts)
    known = {id(each): matches(each) for each in sent}
    assert flags(selector, sent) == [known[id(each)] for each in sent]


def typical(at: int) -> dict[str, object]:
    return {
        "country": "FI" if at % 3 else "SE",
        "n": at - 100,
        "trace": f"{at:08x}",
        "price": at / 4,
        "urgent": at % 2 == 0,
    }


@pytest.mark.parametrize(
    "selector",
    [
        "country = 'FI' AND n > 100",
        "n BETWEEN -100 AND -91 OR n IN (0, 7.0, 'x')",
        "NOT (trace LIKE '%f_' OR n % 2 <> 0) AND price IS NOT NULL",
        "trace IN ('0000000a', 'b') OR -n / 2 >= 49 AND missing IS NULL",
        "urgent AND price * 2 + n < 0.5 AND country < 'b'",
        "n / 0 = 1 OR missing > 1 OR urgent = 1 OR country = 5",
        "TRUE AND 1 < 2.5",
    ],
)
@pytest.mark.parametrize("row", [row_091, row_10])
def test_usual_selectors_are_evaluated_by_arrow(
    row: Callable[[dict[str, object]], Message],
    selector: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(RowFilter, "_outcome", pytest.fail)
    sent = [row(typical(at)) for at in range(400)]
    assert flags(selector, sent) == list(map(compile_selector(selector).matches, sent))


@pytest.mark.parametrize(
    ("selector", "value"),
    [
        ("a + 9223372036854775807 > 5", fields.LongLong(6)),
        ("a * a > 5", fields.LongLong(1 << 32)),
        ("-a > 5", fields.LongLong(-(1 << 63))),
        ("a = 9007199254740992.0", fields.LongLong((1 << 53) + 1)),
        ("a < 9223372036854775808", 1),
        ("a % 2 = 0.5", 2.5),
        ("a > 5", fields.Timestamp(1 << 63)),
        ("a > 1", Decimal("1.5")),
        ("a IS NOT NULL", b"\xff"),
        ("a = 'x'", [1]),
        ("b = '\ud800'", "x"),
    ],
)
def test_what_arrow_would_answer_in_another_way_is_left_to_the_condition(
    selector: str, value: object, monkeypatch: pytest.MonkeyPatch
):
    asked: list[RowFilter] = []
    by_values = RowFilter._by_values
    monkeypatch.setattr(RowFilter, "_by_values", lambda *each: asked.append(each[0]) or by_values(*each))
    sent = [row_091({"a": value, "b": str(at)}) for at in range(4 * ROWS_MIN)]
    assert flags(selector, sent) == list(map(compile_selector(selector).matches, sent))
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("row", "value", "selector", "is_wanted"),
    [
        (row_10, types.Timestamp(-1), "a = -1", True),  # in seconds, rounded down
        (row_10, types.Timestamp(-2000), "a = -2", True),
        (row_10, True, "a", True),
        (row_091, "a\nb", "a LIKE 'a_b'", True),
        (row_091, "\U00010000", "a > '\uffff'", True),
        (row_091, float("nan"), "a <> a AND NOT a = a", True),
        (row_091, -0.0, "a = 0 AND a IN (0)", True),
        (row_091, -7, "a / 2 = -3 AND a % 2 = -1 AND a / 2.0 = -3.5", True),
        (row_091, 1, "NOT (a BETWEEN 2 AND a / 0)", True),
        (row_091, 1, "a BETWEEN 1 AND a / 0", False),
        (row_091, 1, "a = '1' OR a <> '1' OR NOT a", False),
        (row_091, True, "a < 1 OR a < TRUE OR a = 1", False),
    ],
)
def test_what_is_at_an_edge_is_evaluated_by_arrow_all_the_same(
    row: Callable[[dict[str, object]], Message],
    value: object,
    selector: str,
    is_wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(RowFilter, "_outcome", pytest.fail)
    sent = [row({"a": value, "b": str(at)}) for at in range(4 * ROWS_MIN)]
    assert compile_selector(selector).matches(sent[0]) == is_wanted
    assert flags(selector, sent) == [is_wanted] * len(sent)


def test_booleans_that_are_none_are_left_to_the_condition():
    wrong = [row_10({"a": types.UByte(2), "b": str(at)}) for at in range(4 * ROWS_MIN)]
    for each in wrong:
        each.properties = each.properties.replace(b"\x50\x02", b"\x56\x02")
    assert flags("a OR b IS NOT NULL", wrong) == [False] * len(wrong)
    assert not compile_selector("a OR b IS NOT NULL").matches(wrong[0])
