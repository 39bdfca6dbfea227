"""A header segment to what the core reads of it, and a message to what its consumer gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.limits import TTL_MAX_MS
from leveret.message import LOWEST, Death, Facts, Message, Notes
from leveret.protocols.amqp010.broker import encoding, envelope
from leveret.protocols.amqp010.broker.encoding import ENCODING, HEADER_MAX, envelope_of, rendered
from leveret.protocols.amqp010.broker.envelope import (
    LOOKED_INTO_MAX,
    REMEMBERED_MAX,
    entries_at,
    fields_at,
    map_of,
)
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import DeliveryProperties, MessageProperties
from leveret.protocols.amqp010.codec.fields import struct_at
from leveret.protocols.amqp010.codec.types import (
    Datetime,
    MalformedError,
    Opaque,
    Value,
    encode,
    encode_map,
    map_at,
)

from .messages import LONG, UNKNOWN, VALUES, Said, header_segments, headers

# What qpid-send sends, to the octet (message-properties first, an empty user-id).
OF_CPP = (
    MessageProperties(
        content_length=0, content_type="text/plain", user_id=b"", application_headers={"sn": 1}
    ),
    DeliveryProperties(routing_key="tap-q"),
)


DEFINED = (b"\x04\x01", b"\x04\x02", b"\x04\x03")  # for header segments; anything else is passed on unread


def header(*structs: c.Struct) -> bytes:
    return b"".join(struct.encode() for struct in structs)


def published(
    octets: bytes, exchange: str = "x", key: str = "k", notes: Notes | None = None, body: bytes = b"hello"
) -> Message:
    return Message(ENCODING, exchange, key, octets, body, envelope_of(octets).facts, notes)


class Seen:
    """A header segment as its consumer reads it."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.delivery, self.message = DeliveryProperties(), MessageProperties()
        self.others: list[bytes] = []
        at = 0
        while at < len(octets):
            begin, at = at, at + 4 + int.from_bytes(octets[at : at + 4], "big")
            if octets[begin + 4 : begin + 6] not in DEFINED:
                self.others.append(octets[begin:at])
                continue
            struct, after = struct_at(octets, begin, len(octets))
            assert after == at
            if isinstance(struct, DeliveryProperties):
                self.delivery = struct
            elif isinstance(struct, MessageProperties):
                self.message = struct
            else:
                self.others.append(octets[begin:at])

    @property
    def headers(self) -> dict[str, Value]:
        return self.message.application_headers or {}


def shown(message: Message, redelivered: bool = False, ttl_left_ms: int | None = None) -> Seen:
    octets, body = rendered(message, redelivered, ttl_left_ms)
    assert body == message.body
    return Seen(octets)


# What the core reads.


@given(header_segments())
def test_an_envelope_says_what_the_structs_say(said: Said) -> None:
    delivery, message = said.delivery or DeliveryProperties(), said.message or MessageProperties()
    found = envelope_of(said.octets)
    facts = found.facts
    assert facts.durable == (delivery.delivery_mode == 2)
    assert facts.priority == (4 if delivery.priority is None else delivery.priority or LOWEST)
    ttl_ms = delivery.ttl or None
    assert facts.ttl_ms == (None if ttl_ms is not None and ttl_ms > TTL_MAX_MS else ttl_ms)
    octets = None if facts.user_id is None else facts.user_id.encode("utf-8", "surrogateescape")
    assert octets == (message.user_id or None)
    assert facts.has_headers == bool(message.application_headers)
    assert (facts.reply_to, facts.cc, facts.bcc) == (None, (), ())
    assert found.routing_key == (delivery.routing_key or "")
    assert (found.discard_unroutable, found.immediate) == (delivery.discard_unroutable, delivery.immediate)
    assert found.expiration == (None if ttl_ms else delivery.expiration or None)


def test_a_message_may_have_no_header_segment() -> None:
    facts = envelope_of(b"").facts
    assert (facts.durable, facts.priority, facts.ttl_ms, facts.user_id) == (False, 4, None, None)
    assert shown(published(b"")).delivery == DeliveryProperties(exchange="x", routing_key="k")


def test_an_empty_user_id_is_none() -> None:
    assert envelope_of(header(*OF_CPP)).facts.user_id is None


def test_a_ttl_of_zero_is_none_and_one_beyond_all_bounds_too() -> None:
    assert envelope_of(header(DeliveryProperties(ttl=0))).facts.ttl_ms is None
    assert envelope_of(header(DeliveryProperties(ttl=TTL_MAX_MS))).facts.ttl_ms == TTL_MAX_MS
    assert envelope_of(header(DeliveryProperties(ttl=TTL_MAX_MS + 1))).facts.ttl_ms is None


@pytest.mark.parametrize(("wall", "ttl_ms"), [(990.0, 10_000), (999.5, 500), (1000.0, 0), (2000.0, 0)])
def test_an_expiration_is_a_ttl_at_a_time(wall: float, ttl_ms: int) -> None:
    said = MessageProperties(user_id=b"guest", application_headers={"a": 1})
    found = envelope_of(header(DeliveryProperties(expiration=1000, delivery_mode=2, priority=7), said))
    facts = found.facts_at(wall)
    assert facts.ttl_ms == ttl_ms
    assert (facts.durable, facts.priority, facts.user_id, facts.has_headers) == (True, 7, "guest", True)
    assert found.facts.ttl_ms is None


def test_a_ttl_goes_before_an_expiration() -> None:
    found = envelope_of(header(DeliveryProperties(expiration=1000, ttl=5)))
    assert found.facts_at(0.0).ttl_ms == 5


def test_messages_that_say_the_same_share_their_facts_whatever_their_keys() -> None:
    """The store writes what it knows of facts once (`remembered_origin`)."""
    one = envelope_of(header(DeliveryProperties(routing_key="a", delivery_mode=2)))
    two = envelope_of(header(DeliveryProperties(routing_key="b", delivery_mode=2)))
    assert one.facts is two.facts
    assert one.routing_key != two.routing_key


# What is malformed.


@given(header_segments(), st.data())
def test_a_header_segment_that_was_accepted_can_be_read_and_shown(said: Said, data: st.DataObject) -> None:
    octets = bytearray(said.octets)
    for _ in range(data.draw(st.integers(0, 3)) if octets else 0):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    octets = octets[: data.draw(st.integers(0, len(octets)) | st.just(len(octets)))]
    try:
        message = published(bytes(octets))
    except MalformedError:
        return
    ENCODING.read(message.properties)
    assert message.headers is not None
    Seen(rendered(message)[0])
    ENCODING.with_headers(message.properties, {"x-a": 1})


@given(header_segments())
def test_a_struct_that_is_cut_is_malformed(said: Said) -> None:
    if said.octets:
        with pytest.raises(MalformedError):
            envelope_of(said.octets[:-1])


@pytest.mark.parametrize("twice", [DeliveryProperties(priority=1), MessageProperties(content_length=1)])
def test_a_struct_that_comes_twice_is_malformed(twice: c.Struct) -> None:
    envelope_of(header(twice))
    with pytest.raises(MalformedError, match="twice"):
        envelope_of(header(twice, *OF_CPP, twice))
    with pytest.raises(MalformedError, match="twice"):
        envelope_of(header(twice) * 257)


@pytest.mark.parametrize(
    "octets",
    [
        b"\x00",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x04",
        b"\x00\x00\x00\x02\x04\x03",
        b"\x00\x00\x00\x02\x04\x01",
        b"\x00\x00\x00\x00\x04\x09\x00\x00",
        b"\xff\xff\xff\xff\x04\x01\x00\x00",
        b"\x00\x00\x00\x04\x04\x01\x08\x00",
        b"\x00\x00\x00\x04\x04\x03\x02\x00",
        b"\x00\x00\x00\x04\x04\x02\x04\x00",
        b"\x00\x00\x00\x06\x04\x03\x08\x00\x00\x09",
        b"\x00\x00\x00\x08\x04\x03\x08\x00\x00\x02\x02\x00",
        b"\x00\x00\x00\x0a\x04\x03\x00\x01\x00\x00\x00\x02\x00\x00",
        b"\x00\x00\x00\x0c\x04\x03\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01",
        b"\x00\x00\x00\x0c\x04\x03\x00\x01\x00\x00\x00\x04\xff\xff\xff\xff",
    ],
)
def test_header_segments_that_say_what_is_not_there_are_malformed(octets: bytes) -> None:
    with pytest.raises(MalformedError):
        envelope_of(octets)


def test_octets_after_the_last_field_of_a_struct_are_passed_over_and_kept() -> None:
    longer = b"\x00\x00\x00\x09\x04\x03\x01\x00" + (5).to_bytes(8, "big")
    longer = (len(longer) - 4 + 3).to_bytes(4, "big") + longer[4:] + b"odd"
    envelope_of(longer)
    assert rendered(published(longer))[0].startswith(longer)


@given(headers, st.data())
def test_headers_are_checked_as_reading_them_would(said: dict[str, Value], data: st.DataObject) -> None:
    octets = bytearray(encode_map(said))
    for _ in range(data.draw(st.integers(0, 2))):
        octets[data.draw(st.integers(4, len(octets) - 1))] = data.draw(st.integers(0, 255))
    struct = b"\x04\x03\x00\x01" + octets
    try:
        pairs, _ = map_at(bytes(octets), 0, len(octets))
    except MalformedError:
        with pytest.raises(MalformedError):
            envelope_of(len(struct).to_bytes(4, "big") + struct)
    else:
        facts = envelope_of(len(struct).to_bytes(4, "big") + struct).facts
        assert facts.has_headers == bool(pairs)


def test_the_widths_of_fields_are_those_of_the_specification() -> None:
    """The walk over flags and the generated classes know the same tables."""
    delivery = DeliveryProperties(True, True, True, 1, 2, 3, 4, 5, "exchange", "key", "id", 6).encode()
    found = fields_at(delivery, 6, len(delivery), envelope.DELIVERY_WIDTHS)
    assert list(found) == list(range(12))
    assert delivery[slice(*found[envelope.ROUTING_KEY])] == b"key"
    assert found[envelope.RESUME_TTL][1] == len(delivery)


# Bounds.


def test_headers_that_are_too_many_are_passed_on_and_not_read() -> None:
    many: dict[str, Value] = {f"{number:04}": "x" * 100 for number in range(1250)}
    octets = header(MessageProperties(application_headers=many))
    assert len(octets) > LOOKED_INTO_MAX
    message = published(octets)
    assert not message.facts.has_headers
    assert message.headers == {}
    assert ENCODING.read(octets).headers is None
    assert rendered(message)[0].startswith(octets)
    assert ENCODING.with_headers(octets, {"x-a": 1}) == octets


def test_headers_just_below_the_bound_are_read() -> None:
    said: dict[str, Value] = {"a": "x" * 60_000, "b": "y" * 60_000}
    assert published(header(MessageProperties(application_headers=said))).headers == said


def test_nesting_without_end_is_malformed() -> None:
    value: Value = []
    for _ in range(200):
        value = [value]
    with pytest.raises(MalformedError):
        envelope_of(header(MessageProperties(application_headers={"a": value})))


def test_what_is_remembered_is_bounded() -> None:
    for number in range(2 * REMEMBERED_MAX):
        octets = header(
            MessageProperties(user_id=b"%d" % number),
            DeliveryProperties(routing_key=str(number), ttl=1 + number),
        )
        rendered(published(octets, key=str(number)))
    sizes = [
        len(known)
        for known in (
            *(envelope.remembered, envelope.remembered_parts, envelope.remembered_facts),
            *(envelope.steps, encoding.remembered),
        )
    ]
    assert max(sizes) <= REMEMBERED_MAX
    assert len(encoding.remembered) > 0


# What a consumer sees.


@given(header_segments(), st.booleans(), st.none() | st.integers(0, 10**6))
def test_all_but_delivery_properties_goes_out_as_it_came(
    said: Said, redelivered: bool, ttl_left_ms: int | None
) -> None:
    octets, _ = rendered(published(said.octets), redelivered, ttl_left_ms)
    given_, seen = Seen(said.octets), Seen(octets)
    assert seen.others == given_.others
    begin, end = envelope.message_at(said.octets)
    assert said.octets[begin:end] in octets
    told = said.delivery or DeliveryProperties()
    expected = DeliveryProperties(
        told.discard_unroutable,
        told.immediate,
        redelivered,
        told.priority,
        told.delivery_mode,
        ttl_left_ms,
        told.timestamp,
        None if ttl_left_ms is None else told.expiration,
        "x",
        "k",
        told.resume_id,
        told.resume_ttl,
    )
    assert seen.delivery == expected


@given(header_segments(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_messages_that_differ_in_their_timestamp_share_what_is_read_and_show_their_own(
    said: Said, first: int, second: int
) -> None:
    told = said.delivery or DeliveryProperties()
    for timestamp in (first, second):
        told.timestamp = timestamp
        message = published(header(told), key=told.routing_key or "")
        assert message.facts is envelope_of(header(told)).facts
        assert shown(message).delivery.timestamp == timestamp


@pytest.mark.parametrize("left", range(8))
def test_a_timestamp_that_is_cut_is_malformed_also_where_a_whole_one_is_remembered(left: int) -> None:
    whole = header(DeliveryProperties(timestamp=7))
    assert envelope_of(whole).facts.durable is False
    size = len(whole) - 4 - (8 - left)
    with pytest.raises(MalformedError):
        envelope_of(size.to_bytes(4, "big") + whole[4 : 4 + size])
    with pytest.raises(MalformedError):
        envelope_of(size.to_bytes(4, "big") + whole[4 : 4 + size] + header(MessageProperties(app_id=b"more")))
    with pytest.raises(MalformedError):
        envelope_of(whole[: 4 + size])


def test_nothing_is_added_but_exchange_and_routing_key() -> None:
    """qpid's own tests count the octets of byte credit."""
    octets, body = rendered(published(header(DeliveryProperties(routing_key="q")), exchange="", key="q"))
    assert len(octets) == 11
    assert body == b"hello"


def test_each_consumer_sees_where_from_and_whether_again() -> None:
    octets = header(*OF_CPP)
    for exchange, key, redelivered in (
        ("a", "k", False),
        ("b", "k", False),
        ("a", "l", False),
        ("a", "k", True),
    ):
        delivery = shown(published(octets, exchange, key), redelivered).delivery
        assert (delivery.exchange, delivery.routing_key, delivery.redelivered) == (exchange, key, redelivered)


def test_what_is_left_of_a_ttl_is_shown_and_never_less_than_nothing() -> None:
    message = published(header(DeliveryProperties(ttl=5000)))
    assert [shown(message, ttl_left_ms=left).delivery.ttl for left in (5000, 17, 0, -3)] == [5000, 17, 0, 0]


def test_names_of_other_protocols_that_are_too_long_are_cut() -> None:
    delivery = shown(published(b"", "\u00e9" * 200, "k" * 300)).delivery
    assert (delivery.exchange or "").encode("utf-8", "surrogateescape") == ("\u00e9" * 200).encode()[:255]
    assert delivery.routing_key == "k" * 255


# What has a history.


def dead(octets: bytes, *deaths: Death, offset: int | None = None, body: bytes = b"hello") -> Message:
    notes = Notes()
    notes.deaths, notes.offset = deaths, offset
    if deaths:
        notes.first_death = notes.last_death = (deaths[0].reason, deaths[0].queue, deaths[0].exchange)
    return published(octets, notes=notes, body=body)


REJECTED = Death("q", "rejected", 2, 1000, 1005, "x", ("k",), None)
EXPIRED = Death("r", "expired", 1, 999, 999, "", ("r", "s"), 5000)


def test_deaths_are_headers() -> None:
    seen = shown(dead(header(*OF_CPP), REJECTED, EXPIRED))
    assert seen.headers == {
        "sn": 1,
        "x-death": [
            {
                "count": 2,
                "reason": "rejected",
                "queue": "q",
                "time": Datetime(1000),
                "exchange": "x",
                "routing-keys": ["k"],
            },
            {
                "count": 1,
                "reason": "expired",
                "queue": "r",
                "time": Datetime(999),
                "exchange": "",
                "routing-keys": ["r", "s"],
                "original-expiration": "5000",
            },
        ],
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "x",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "q",
        "x-last-death-exchange": "x",
    }
    assert (seen.message.content_length, seen.message.content_type) == (0, "text/plain")
    assert seen.message.user_id == b""


def test_a_dead_message_without_message_properties_gets_them() -> None:
    seen = shown(dead(header(DeliveryProperties(priority=3)), REJECTED))
    assert "x-death" in seen.headers
    assert seen.delivery.priority == 3


def test_the_deaths_of_another_broker_are_replaced_and_a_cc_stays() -> None:
    said: dict[str, Value] = {"x-death": "old", "x-last-death-queue": "old", "CC": ["a"]}
    seen = shown(dead(header(MessageProperties(application_headers=said)), REJECTED))
    assert seen.headers["x-last-death-queue"] == "q"
    assert isinstance(seen.headers["x-death"], list)
    assert seen.headers["CC"] == ["a"]


def test_the_offset_in_a_stream_is_a_header() -> None:
    seen = shown(dead(header(*OF_CPP), offset=41))
    assert seen.headers == {"sn": 1, "x-stream-offset": 41}


@pytest.mark.parametrize("value", [*VALUES, LONG])
def test_headers_beside_those_that_are_added_stay_to_the_octet(value: Value) -> None:
    said: dict[str, Value] = {"a": value, "b": 1}
    octets, _ = rendered(dead(header(MessageProperties(application_headers=said)), offset=1))
    begin, end = envelope.message_at(octets)
    fields = envelope.message_fields(octets[begin:end])
    entries = entries_at(fields[envelope.HEADERS] or b"")
    assert entries == {"a": encode(value), "b": encode(1), "x-stream-offset": encode(1)}
    assert envelope.map_of(entries) == fields[envelope.HEADERS]


def test_a_message_with_a_history_is_rendered_once_for_all_consumers() -> None:
    message = dead(header(*OF_CPP), REJECTED)
    first = rendered(message)[0]
    kept = message.converted
    assert rendered(message, redelivered=True)[0] != first
    assert message.converted is kept
    assert rendered(message)[0] == first


# The rest of the contract.


def test_headers_are_added_and_replaced_and_the_rest_stays() -> None:
    octets = header(*OF_CPP, c.FragmentProperties(first=True)) + UNKNOWN.encode()
    edited = ENCODING.with_headers(octets, {"sn": 2, "x-new": "n"})
    seen = Seen(edited)
    assert seen.headers == {"sn": 2, "x-new": "n"}
    assert seen.message.content_type == "text/plain"
    assert seen.others == Seen(octets).others
    assert seen.delivery == OF_CPP[1]


def test_names_and_values_that_0_10_cannot_say_are_not_added() -> None:
    edited = ENCODING.with_headers(b"", {"n" * 256: 1, "big": 2**70, "ok": 1})
    assert Seen(edited).headers == {"ok": 1}


def test_properties_that_come_in_over_http_are_checked() -> None:
    octets = header(*OF_CPP)
    facts, kept = ENCODING.published(octets)
    assert kept == octets
    assert facts is envelope_of(octets).facts
    with pytest.raises(PreconditionFailed, match="cannot be read"):
        ENCODING.published(octets[:-1])
    with pytest.raises(PreconditionFailed, match="octets"):
        ENCODING.published(bytes(HEADER_MAX + 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subject", "news"),
        ("to", None),
        ("group_id", None),
        ("message_id", None),
        ("correlation_id", "c"),
        ("priority", 6),
        ("timestamp", 1000),
        ("app_id", "app"),
    ],
)
def test_selectors_read_single_properties(name: str, value: object) -> None:
    octets = header(
        MessageProperties(
            correlation_id=b"c", app_id=b"app", application_headers={"qpid.subject": "news", "a": 1}
        ),
        DeliveryProperties(priority=6, timestamp=1000),
    )
    assert ENCODING.property(octets, name) == value


def test_facts_come_back_from_the_store_as_they_are() -> None:
    facts = Facts(durable=True, priority=4)
    assert ENCODING.restored(facts, header(*OF_CPP)) is facts


def test_opaque_values_are_no_headers_to_others_but_stay() -> None:
    octets = header(MessageProperties(application_headers={"odd": Opaque(0xC1, b"12345"), "a": 1}))
    message = published(octets)
    assert message.headers == {"a": 1}
    assert Seen(rendered(message)[0]).headers["odd"] == Opaque(0xC1, b"12345")
    assert map_of({}) == b"\x00\x00\x00\x00"
