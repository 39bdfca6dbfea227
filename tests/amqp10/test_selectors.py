"""Selectors on messages of both protocols: the same words for what both can say."""

from __future__ import annotations

from uuid import UUID

import pytest

from leveret.message import Message
from leveret.protocols.amqp091.broker import encoding as encoding091
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.broker.encoding import ENCODING, project
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol, Timestamp, UByte, UInt, ULong
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
