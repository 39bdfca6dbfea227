"""The properties of MQTT and neutral ones, both ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.message import Message
from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.mqtt.broker.encoding import (
    ENCODING,
    address_of,
    packed,
    properties_of,
    publisher_of,
    response_topic_of,
)
from leveret.protocols.mqtt.broker.topics import binding_key_of, key_of, topic_of
from leveret.protocols.mqtt.codec import properties as p
from leveret.values import Properties

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TOPIC = TEXT.filter(lambda text: bool(text) and "+" not in text and "#" not in text)
NAME = TEXT.filter(bool)
TEN_YEARS_S = 315_360_000
MQTT = st.builds(
    p.Properties,
    payload_format_indicator=st.none() | st.sampled_from([0, 1]),
    message_expiry_interval=st.none() | st.integers(0, 0xFFFF_FFFF),
    content_type=st.none() | TEXT,
    response_topic=st.none() | TOPIC,
    correlation_data=st.none() | st.binary(max_size=20),
    user_properties=st.lists(st.tuples(NAME, TEXT), max_size=4).map(tuple),
)


@given(st.integers(0, 2), TEXT, MQTT)
def test_what_is_kept_is_what_came(qos: int, client_id: str, properties: p.Properties) -> None:
    octets = packed(qos, client_id.encode(), properties)
    assert properties_of(octets) == properties
    assert publisher_of(octets).decode() == client_id
    facts, again = ENCODING.published(octets)
    assert (facts.durable, again) == (qos > 0, octets)


@given(MQTT)
def test_neutral_properties_say_the_same_and_come_back(properties: p.Properties) -> None:
    read = ENCODING.read(packed(1, b"", properties))
    back = properties_of(ENCODING.write(read))
    assert back.content_type == properties.content_type
    assert back.correlation_data == properties.correlation_data
    assert back.response_topic == properties.response_topic
    expiry_s = properties.message_expiry_interval
    assert back.message_expiry_interval == (None if expiry_s is None else min(expiry_s, TEN_YEARS_S))
    assert sorted(back.user_properties) == sorted(properties.user_properties)


@given(MQTT)
def test_every_protocol_can_show_a_message(properties: p.Properties) -> None:
    message = Message(ENCODING, "amq.topic", "a", packed(1, b"me", properties), b"x")
    said, body = ENCODING.convert(message)
    assert body == b"x"
    for encoding in (AMQP091, AMQP10, AMQP010):
        shown = encoding.read(encoding.write(said))
        assert shown.durable
        text = properties.content_type
        if text is not None and text.isascii() and text.isprintable():
            assert (shown.content_type or "") == text


@given(
    st.builds(
        Properties, content_type=st.none() | st.text(max_size=5), reply_to=st.none() | st.text(max_size=9)
    )
)
def test_writing_raises_nothing(properties: Properties) -> None:
    properties_of(ENCODING.write(properties))


@given(TOPIC)
def test_a_topic_has_one_key(topic: str) -> None:
    assert topic_of(key_of(topic)) == topic
    assert response_topic_of(address_of(topic)) == topic


def test_addresses_of_others_are_no_response_topics() -> None:
    for address in (
        "queue",
        "/queues/q",
        "/exchanges/amq.direct/a",
        "/exchanges/amq.topic",
        "/exchanges/amq.topic/a.%23",
    ):
        assert response_topic_of(address) is None
    assert response_topic_of("/exchanges/amq.topic/a.b") == "a/b"


def test_keys_are_those_of_rabbitmq() -> None:
    assert key_of("cities/london") == "cities.london"
    assert binding_key_of("cities/+/#") == "cities.*.#"


def test_headers_are_added() -> None:
    octets = packed(2, b"me", p.Properties(user_properties=(("a", "1"), ("b", "2"))))
    changed = ENCODING.with_headers(octets, {"a": 5})
    assert ENCODING.headers(changed) == {"b": "2", "a": "5"}
    assert (changed[0], publisher_of(changed)) == (2, b"me")
