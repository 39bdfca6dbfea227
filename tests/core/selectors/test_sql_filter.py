"""SQL filters and property filters of AMQP: what they match, and how little a mistake costs."""

from __future__ import annotations

import contextlib
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.message import Message
from leveret.protocols.amqp10.broker.encoding import ENCODING, project
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Long, Timestamp
from leveret.selectors.parser import LENGTH_MAX, compile_selector
from leveret.selectors.property_filter import FIELDS_MAX, application_filter, properties_filter
from leveret.selectors.sql_filter import TOKENS_MAX, compile_sql
from leveret.values import Value
from tests.amqp10.parts import application_properties, data
from tests.amqp10.parts import message as payload_of

NOW_MS = time.time_ns() // 1_000_000
GIVEN = p.Properties(
    message_id=b"\x01\x23\xab",
    user_id=b"Bob",
    to="/queues/orders",
    subject="order.new",
    correlation_id=UUID(int=7),
    content_type="text/plain",
    absolute_expiry_time=Timestamp(NOW_MS + 3_600_000),
    creation_time=Timestamp(1_700_000_000_123),
    group_id="Group A",
    group_sequence=6,
)
APPLICATION = {
    "colour": "Red",
    "weight": Long(7),
    "price": 99.5,
    "fragile": True,
    "order status": "new",
    "AND": "word",
    "a.b": "dotted",
    "raw": b"\x01",
    "quote": "it's",
    "☀": "sun",
    "amp": "&co",
}


def message(**header: object) -> Message:
    payload = payload_of(p.Header(**header), GIVEN, application_properties(APPLICATION), data(b""))
    facts, properties, body, _, _ = project(payload)
    return Message(ENCODING, "", "k", properties, body, facts)


MESSAGE = message(priority=6)


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'Red'",
        'colour = "Red"',
        "quote = 'it''s'",
        "a.colour = 'Red' AND application_properties.colour LIKE 'R%'",
        "UPPER(colour) = 'RED' AND LOWER(p.group_id) = 'group a'",
        "weight / 2 = 3.5",
        "weight % 4 = 3 AND p.group_sequence % 2 = 0",
        "weight-2 = 5",
        "price BETWEEN 99 AND 1.0E2",
        "fragile AND NOT (fragile = FALSE)",
        "[order status] = 'new' AND a.[order status] IN ('old', 'new')",
        "[AND] = 'word' AND [a.b] = 'dotted' AND [☀] = 'sun'",
        "h.priority > 4 AND header.priority = 6",
        "p.user_id = 0x426F62 AND properties.user_id = 'Bob'",
        "p.message_id = 0x0123AB AND p.message_id <> 0x01 AND raw = 0x1",
        "p.absolute_expiry_time > UTC() AND p.creation_time < UTC() - 1000",
        "p.reply_to IS NULL AND p.subject IS NOT NULL AND missing IS NULL",
        "p.content_type NOT IN ('a', 'b') AND p.to LIKE '/queues/%' AND NOT p.subject LIKE 'order!_new' ESCAPE '!'",
        "TRUE",
    ],
)
def test_an_sql_filter_that_is_true_matches(text: str) -> None:
    assert compile_sql(text).matches(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "weight > 'x'",
        "weight / 0 = 1",
        "price % 2 = 1",
        "missing = 1",
        "NOT missing",
        "missing <> 0x01",
        "UPPER(weight) = '7'",
        "colour = p.subject",
        "p.creation_time > UTC()",
        "p.user_id = 0x426F",
        "weight = 0x07",
        "FALSE OR missing",
        "weight",
    ],
)
def test_an_sql_filter_that_is_false_or_unknown_does_not_match(text: str) -> None:
    assert not compile_sql(text).matches(MESSAGE)


def test_the_priority_is_four_if_none_is_said() -> None:
    assert compile_sql("h.priority = 4").matches(message())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected"),
        ("colour = ", "expected"),
        ("colour = 'Red", "quotation has no end"),
        ("[colour = 'Red'", "quotation has no end"),
        ("colour and fragile", "expected"),  # words are in upper case
        ("h.durable = TRUE", "nothing can be selected by 'h.durable'"),
        ("m.x = 1", "nothing can be selected by 'm.x'"),
        ("p.colour = 1", "nothing can be selected by 'p.colour'"),
        ("p.a.b = 1", "is no word"),
        ("a.list[1] = 1", "is no word"),
        ("EXISTS(colour)", "no function 'EXISTS'"),
        ("weight = INF", "INF is not supported"),
        ("DATE('2024-01-01') > UTC()", "no function 'DATE'"),
        ("UTC(1) > 2", "expected"),
        ("UPPER(1) = 'x'", "a string is expected"),
        ("raw > 0x01", "can only be compared with a name, by = or <>"),
        ("0x01 = 0x01", "can only be compared with a name"),
        ("raw IN (0x01)", "a value is expected"),
        ("0x01", "a boolean is expected"),
        ("0x01 AND TRUE", "a boolean is expected"),
        ("0x01 IS NULL", "only what has a name can be NULL"),
        ("1 + 0x01 = 2", "a number is expected"),
        ("a" * (LENGTH_MAX + 1), "characters"),
        ("+ ".join(["1"] * TOKENS_MAX), "words and signs"),
        ("(" * 70 + "TRUE" + ")" * 70, "nested"),
        ("colour LIKE '" + "%" * 600 + "'", "pattern"),
    ],
)
def test_a_wrong_sql_filter_is_refused(text: str, why: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        compile_sql(text)
    assert why in str(caught.value)


@given(st.text(alphabet="ap.[]'\"0x1+-*/%()<>=! ANDORNOTLIKEUTC,", max_size=40) | st.text(max_size=20))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    with contextlib.suppress(PreconditionFailed):
        compile_sql(text).matches(MESSAGE)


@given(
    st.sampled_from(["colour = 'Red'", "weight > 3 AND fragile", "price + weight < 100", "colour LIKE '%e_'"])
)
def test_both_languages_agree_where_they_are_the_same(text: str) -> None:
    assert compile_sql(text).matches(MESSAGE) == compile_selector(text).matches(MESSAGE)


# Property filters.


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({"subject": "order.new"}, True),
        ({"subject": "&p:order."}, True),
        ({"subject": "&s:.new"}, True),
        ({"subject": "&s:.old"}, False),
        ({"subject": "order"}, False),
        ({"subject": "&p:order", "user-id": b"Bob", "group-sequence": 6}, True),
        ({"subject": "&p:order", "user-id": b"Rob"}, False),
        ({"group-sequence": 6.0}, True),
        ({"group-sequence": True}, False),
        ({"message-id": b"\x01\x23\xab"}, True),
        ({"correlation-id": UUID(int=7)}, True),
        ({"creation-time": 1_700_000_000_123}, True),
        ({"reply-to": None}, True),
        ({"reply-to": ""}, False),
        ({"content-type": "&p:text/"}, True),
    ],
)
def test_a_filter_of_properties(fields: dict[str, Value], matches: bool) -> None:
    assert properties_filter(fields).matches(MESSAGE) is matches


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({"colour": "Red", "weight": 7, "price": 99.5, "fragile": True}, True),
        ({"colour": "&p:R", "amp": "&&co"}, True),
        ({"weight": 7.0}, True),
        ({"weight": True}, False),
        ({"fragile": 1}, False),
        ({"colour": "red"}, False),
        ({"colour": None}, True),
        ({"missing": None}, False),
        ({"missing": "x"}, False),
        ({"weight": "&p:7"}, False),
        ({"raw": b"\x01"}, True),
    ],
)
def test_a_filter_of_application_properties(fields: dict[str, Value], matches: bool) -> None:
    assert application_filter(fields).matches(MESSAGE) is matches


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"colour": "x"},
        {"subject": "&x:a"},
        {"subject": ["a"]},
        {"subject": "a" * 5000},
        {f"k{n}": 1 for n in range(FIELDS_MAX + 1)},
    ],
)
def test_a_wrong_filter_of_properties_is_refused(fields: dict[str, Value]) -> None:
    with pytest.raises(PreconditionFailed):
        properties_filter(fields)


def test_conditions_are_met_together() -> None:
    both = compile_sql("weight = 7").also(properties_filter({"subject": "&p:order"}))
    assert both.matches(MESSAGE)
    assert not both.also(application_filter({"colour": "blue"})).matches(MESSAGE)
