"""Selectors on messages of both protocols: the same words for what both can say."""

from __future__ import annotations

from uuid import UUID

import pytest

from leveret.message import Message
from leveret.protocols.amqp091.broker import encoding as encoding091
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.broker.encoding import ENCODING, project
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol, Timestamp, UByte, UInt, ULong, Value
from leveret.selectors.parser import compile_selector

from .parts import annotations, application_properties, data, message

PROPERTIES = p.Properties(
    message_id="m1",
    user_id=b"guest",
    to="/queues/q",
    subject="news.local",
    reply_to="/queues/replies",
    correlation_id=ULong(7),
    content_type=Symbol("text/plain"),
    absolute_expiry_time=Timestamp(2_000_001),
    creation_time=Timestamp(100_001),
    group_id="group",
    group_sequence=UInt(3),
    reply_to_group_id="other",
)
SAID = {"color": "red", "weight": 5, "fragile": True, "bytes": b"\x00", "none": None, "sym": Symbol("s")}


def of_1_0(*sections: bytes | p.Header | p.Properties) -> Message:
    facts, properties, body, _, _ = project(message(*sections, data(b"hello")))
    return Message(ENCODING, "x", "k", properties, body, facts)


def of_0_9_1(properties: BasicProperties) -> Message:
    facts, octets = encoding091.project(properties.encode())
    return Message(encoding091.ENCODING, "x", "k", octets, b"hello", facts)


FULL_10 = of_1_0(
    p.Header(durable=True, priority=UByte(7), ttl=UInt(60_000)),
    annotations({Symbol("x-opt-place"): "here"}),
    PROPERTIES,
    application_properties(SAID),
)
FULL_091 = of_0_9_1(
    BasicProperties(
        headers={"color": "red", "weight": 5, "fragile": True, "x-opt-place": "here"},
        delivery_mode=2,
        priority=7,
        expiration="60000",
        message_id="m1",
        user_id="guest",
        reply_to="replies",
        content_type="text/plain",
        timestamp=100,
        app_id="group",
        type="news.local",
    )
)
BOTH = [
    "color = 'red' AND weight BETWEEN 1 AND 5 AND fragile AND missing IS NULL AND x-opt-place LIKE '%ere'",
    "a.color = 'red' AND application_properties.weight = 5",
    "JMSPriority = 7 AND header.priority > 6 AND h.ttl = 60000 AND amqp.durable = TRUE",
    "JMSDeliveryMode = 'PERSISTENT'",
    "JMSMessageID = 'm1' AND properties.message-id IN ('m1')",
    "JMSXUserID = 'guest' AND p.reply-to = 'replies' AND p.content-type = 'text/plain'",
    "JMSTimestamp >= 100000 AND p.creation-time < 100002 AND p.group-id = 'group' AND JMSType = 'news.local'",
]
ONLY_10 = [
    "properties.to = '/queues/q' AND p.subject LIKE 'news.%' AND amqp.correlation_id = 7",
    "p.creation-time = 100001 AND p.absolute-expiry-time = 2000001",
    "p.group-sequence = 3 AND p.reply-to-group-id = 'other'",
    "bytes IS NOT NULL AND NOT bytes = bytes AND sym = 's' AND none IS NULL",
]


@pytest.mark.parametrize("text", BOTH)
@pytest.mark.parametrize("said", [FULL_10, FULL_091], ids=["1.0", "0-9-1"])
def test_what_both_protocols_can_say_is_selected_in_the_same_words(said: Message, text: str) -> None:
    assert compile_selector(text).matches(said)


@pytest.mark.parametrize("text", ONLY_10)
def test_what_only_amqp_1_0_can_say_is_not_there_in_0_9_1(text: str) -> None:
    assert compile_selector(text).matches(FULL_10)
    assert not compile_selector(text).matches(FULL_091)


@pytest.mark.parametrize("said", [of_1_0(), of_0_9_1(BasicProperties())], ids=["1.0", "0-9-1"])
def test_a_message_that_says_nothing_has_defaults(said: Message) -> None:
    text = "JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND p.subject IS NULL AND color IS NULL"
    assert compile_selector(text).matches(said)


def test_ids_that_are_no_strings_are_compared_as_what_they_are() -> None:
    said = of_1_0(p.Properties(message_id=UUID(int=1), correlation_id=b"\x01"))
    text = "JMSMessageID = '00000000-0000-0000-0000-000000000001' AND JMSCorrelationID IS NOT NULL"
    assert compile_selector(text).matches(said)
    assert not compile_selector("JMSCorrelationID = '\x01'").matches(said)


# Ids, as JMS clients write them.

UUID_ID = UUID("1b4e28ba-2fa1-11d2-883f-0016d3cca427")
IDS = [
    (UUID_ID, f"ID:AMQP_UUID:{UUID_ID}", f"ID:AMQP_UUID:{UUID_ID}"),
    (ULong(42), "ID:AMQP_ULONG:42", "ID:AMQP_ULONG:42"),
    (b"\x0a\xff", "ID:AMQP_BINARY:0AFF", "ID:AMQP_BINARY:0AFF"),
    ("order-7", "ID:AMQP_NO_PREFIX:order-7", "order-7"),
    ("ID:order-7", "ID:order-7", "ID:order-7"),
    ("ID:AMQP_ULONG:42", "ID:AMQP_STRING:ID:AMQP_ULONG:42", "ID:AMQP_STRING:ID:AMQP_ULONG:42"),
]


@pytest.mark.parametrize(("id", "as_id", "as_correlation"), IDS)
def test_ids_match_the_forms_that_jms_clients_give(id: Value, as_id: str, as_correlation: str) -> None:
    found = of_1_0(p.Properties(message_id=id, correlation_id=id))
    other = of_1_0(p.Properties(message_id="other", correlation_id="other"))
    for name, said in (("JMSMessageID", as_id), ("JMSCorrelationID", as_correlation)):
        for condition in (
            f"{name} = '{said}'",
            f"'{said}' = {name}",
            f"{name} IN ('x', '{said}')",
            f"{name} LIKE '{said[:-2]}%'",
            f"{name} LIKE '{said}'",
        ):
            selector = compile_selector(condition)
            assert (selector.matches(found), selector.matches(other)) == (True, False), condition
        assert not compile_selector(f"{name} <> '{said}'").matches(found)


def test_ids_match_as_they_are_too() -> None:
    assert compile_selector(f"JMSMessageID = '{UUID_ID}'").matches(of_1_0(p.Properties(message_id=UUID_ID)))
    assert compile_selector("JMSCorrelationID = 42").matches(of_1_0(p.Properties(correlation_id=ULong(42))))
    assert compile_selector("JMSMessageID LIKE 'order%'").matches(of_1_0(p.Properties(message_id="order-7")))
    assert compile_selector("JMSMessageID LIKE 'ID:%'").matches(of_1_0(p.Properties(message_id="order-7")))
    assert compile_selector("JMSMessageID IS NULL").matches(of_1_0(p.Properties()))
    assert not compile_selector("JMSMessageID = 'ID:AMQP_ULONG:x'").matches(FULL_10)
    assert compile_selector("JMSMessageID = 'ID:AMQP_NO_PREFIX:m1'").matches(FULL_091)
