"""Field values, tables, raw edits and frames: bytes to values and back."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.fields import DEPTH_MAX, value_at

from . import samples


def table_of(field: bytes) -> bytes:
    content = b"\x01k" + field
    return len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize(("value", "octets"), samples.VALUES + samples.FOREIGN)
def test_a_value_is_read_as_the_sample_says(value: wire.FieldValue, octets: bytes) -> None:
    found = wire.decode_table(table_of(octets))["k"]
    assert found == value
    assert type(found) is type(value)
    assert value_at(octets + b"tail", 0, len(octets)) == (value, len(octets))


@pytest.mark.parametrize(("value", "octets"), samples.VALUES)
def test_a_value_is_written_as_the_sample_says(value: wire.FieldValue, octets: bytes) -> None:
    assert wire.encode_value(value) == octets
    assert wire.encode_table({"k": value}) == table_of(octets)


@pytest.mark.parametrize("octets", [octets for _, octets in samples.VALUES + samples.FOREIGN])
def test_a_value_that_is_cut_anywhere_is_malformed(octets: bytes) -> None:
    table = table_of(octets)
    for end in range(len(octets)):
        with pytest.raises(wire.MalformedError):
            value_at(octets, 0, end)
    for cut in range(len(table)):
        with pytest.raises(wire.MalformedError):
            wire.decode_table(table[:cut])
    with pytest.raises(wire.MalformedError):
        wire.decode_table(table + b"\0")


@given(samples.tables)
def test_any_table_comes_back_from_its_bytes(table: wire.FieldTable) -> None:
    assert wire.decode_table(wire.encode_table(table)) == table


@given(samples.tables)
def test_every_number_of_a_table_goes_out_as_wide_as_it_came_in(table: wire.FieldTable) -> None:
    octets = wire.encode_table(table)
    assert wire.encode_table(wire.decode_table(octets)) == octets


@given(samples.tables)
def test_a_table_falls_into_fields_that_make_it_again(table: wire.FieldTable) -> None:
    octets = wire.encode_table(table)
    fields = wire.table_fields(octets)
    assert [name for name, _ in fields] == list(table)
    assert octets[4:] == b"".join(field for _, field in fields)


@given(st.binary())
def test_random_bytes_are_a_table_or_malformed(octets: bytes) -> None:
    for read in (wire.decode_table, wire.table_fields, wire.property_fields, wire.BasicProperties.decode):
        try:
            read(octets)
        except wire.MalformedError:
            continue


def test_a_plain_number_goes_out_as_32_bits_if_it_fits_and_a_long_long_never() -> None:
    assert wire.encode_value(1) == b"I\x00\x00\x00\x01"
    assert wire.encode_value(wire.LongLong(1)) == b"l\x00\x00\x00\x00\x00\x00\x00\x01"
    assert wire.encode_value(wire.LongLong(2**40)) == wire.encode_value(2**40)


def test_special_values_say_what_they_are() -> None:
    assert repr(wire.Timestamp(5)) == "Timestamp(5)"
    assert isinstance(wire.decode_table(table_of(b"x\x00\x00\x00\x00"))["k"], wire.ByteArray)


def test_an_unknown_field_type_is_malformed() -> None:
    for read in (wire.decode_table, wire.table_fields):
        with pytest.raises(wire.MalformedError, match="unknown field type 'Z'"):
            read(table_of(b"Z\x00\x00\x00\x00"))


def test_tables_nest_to_a_depth_and_no_further() -> None:
    def nested(depth: int) -> wire.FieldValue:
        value: wire.FieldValue = None
        for _ in range(depth):
            value = [value]
        return value

    deepest = {"k": nested(DEPTH_MAX)}
    assert wire.decode_table(wire.encode_table(deepest)) == deepest
    with pytest.raises(ValueError, match="nested"):
        wire.encode_table({"k": nested(DEPTH_MAX + 1)})
    field = b"V"
    for _ in range(10_000):
        field = b"A" + len(field).to_bytes(4, "big") + field
    with pytest.raises(wire.MalformedError, match="nested"):
        wire.decode_table(table_of(field))


@pytest.mark.parametrize(
    "value",
    [
        *(
            2**63,
            -(2**63) - 1,
            wire.Int8(128),
            wire.UInt8(256),
            wire.Int16(-(2**15) - 1),
            wire.UInt32(-1),
            wire.Float32(1e39),
        ),
        *(Decimal("NaN"), Decimal("1E-256"), Decimal("1E10"), Decimal(2**31), wire.Timestamp(-1)),
    ],
)
def test_what_has_no_field_type_is_not_written(value: wire.FieldValue) -> None:
    with pytest.raises(ValueError, match=str(value).lstrip("-")[:3]):
        wire.encode_table({"k": value})


def test_a_number_or_name_that_is_too_large_for_its_field_is_not_written() -> None:
    with pytest.raises(ValueError, match="256 does not fit"):
        wire.BasicProperties(priority=256).encode()
    with pytest.raises(ValueError, match="short string of 256"):
        m.QueueDelete("q" * 256).encode()


@given(samples.properties)
def test_editing_nothing_changes_nothing(properties: wire.BasicProperties) -> None:
    octets = properties.encode()
    assert wire.edit_properties(octets, {}) == octets
    assert wire.edit_headers(octets, frozenset({"absent" * 9}), {}) == octets


@given(samples.properties, samples.properties)
def test_an_edited_property_is_new_and_the_others_are_as_they_were(
    properties: wire.BasicProperties, other: wire.BasicProperties
) -> None:
    changes = {"headers": other.headers, "expiration": None, "priority": 3, "timestamp": 9, "reply_to": "q"}
    edited = wire.edit_properties(properties.encode(), changes)
    expected = properties.fields() | changes
    assert wire.BasicProperties.decode(edited).fields() == expected


def test_untouched_headers_keep_their_bytes() -> None:
    short = b"\x01bs\x00\x07"  # a type that we would not choose
    headers = b"\x03BCCA\x00\x00\x00\x00" + short + b"\x01ct\x01"
    properties = b"\x20\x00" + len(headers).to_bytes(4, "big") + headers
    edited = wire.edit_headers(properties, frozenset({"BCC"}), {"x-death": [], "c": None})
    assert wire.property_fields(edited)["headers"][4:] == b"\x07x-deathA\x00\x00\x00\x00\x01cV" + short


def test_headers_come_into_being_only_when_something_is_added() -> None:
    plain = wire.BasicProperties(delivery_mode=2, expiration="60").encode()
    assert wire.edit_headers(plain, frozenset({"BCC"}), {}) == plain
    added = wire.BasicProperties.decode(wire.edit_headers(plain, frozenset(), {"a": 1}))
    assert added == wire.BasicProperties(delivery_mode=2, expiration="60", headers={"a": 1})


def test_malformed_headers_are_not_edited() -> None:
    broken = b"\x20\x00\x00\x00\x00\x04\x01aS\x00"
    with pytest.raises(wire.MalformedError):
        wire.edit_headers(broken, frozenset(), {})


def test_frames() -> None:
    assert wire.method_frame(1, b"\x00\x5a\x00\x0a") == b"\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\xce"
    assert wire.heartbeat_frame() == b"\x08\x00\x00\x00\x00\x00\x00\xce"
    header = b"\x02\x00\x03\x00\x00\x00\x0e\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\xce"
    assert wire.header_frame(3, 60, 5, b"\x00\x00") == header


@pytest.mark.parametrize("sequence", [1, 0xFFFF_FFFF_FFFF_FFFF])
def test_a_confirm_is_the_frame_of_its_method(sequence: int) -> None:
    ack, nack = m.BasicAck(sequence, True), m.BasicNack(sequence, False, False)
    assert wire.confirm_frame(7, m.BasicAck.method_id, sequence, True) == wire.method_frame(7, ack.encode())
    assert wire.confirm_frame(7, m.BasicNack.method_id, sequence, False) == wire.method_frame(
        7, nack.encode()
    )


def test_s024_an_empty_body_has_no_frame() -> None:
    assert wire.content_frames(1, b"\x00\x00", b"", 4096) == [wire.header_frame(1, 60, 0, b"\x00\x00")]


@pytest.mark.parametrize("size", [1, 4087, 4088, 4089, 8176, 8177, 20_000, 300_000])
@pytest.mark.parametrize("frame_max", [4096, 131_072, 0])
def test_s024_a_body_is_split_into_frames_of_at_most_frame_max(size: int, frame_max: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    out: list[bytes] = [b"before"]
    count = wire.append_content(out, 7, b"\x00\x3c\x00\x3c", b"\x00\x00", body, frame_max)
    data = b"".join(out[1:])
    assert count == len(data)
    start = wire.method_frame(7, b"\x00\x3c\x00\x3c") + wire.header_frame(7, 60, size, b"\x00\x00")
    assert data.startswith(start)
    assert data == b"".join(
        [wire.method_frame(7, b"\x00\x3c\x00\x3c"), *wire.content_frames(7, b"\x00\x00", body, frame_max)]
    )
    found, at = b"", len(start)
    while at < len(data):
        length = int.from_bytes(data[at + 3 : at + 7], "big")
        assert data[at : at + 3] == b"\x03\x00\x07"
        assert not frame_max or length + 8 <= frame_max
        found += data[at + 7 : at + 7 + length]
        assert data[at + 7 + length] == 0xCE
        at += length + 8
    assert found == body


def test_a_small_message_is_one_piece_and_a_large_body_is_not_copied_whole() -> None:
    out: list[bytes] = []
    wire.append_content(out, 1, b"\x00\x3c\x00\x3c", b"\x00\x00", b"small", 131_072)
    assert len(out) == 1
    body = bytes(100_000)
    out.clear()
    wire.append_content(out, 1, b"\x00\x3c\x00\x3c", b"\x00\x00", body, 131_072)
    assert any(piece is body for piece in out)


@given(samples.shortstrs, st.integers(0, 2**64 - 1), st.booleans(), samples.shortstrs, samples.shortstrs)
def test_a_deliver_from_prepared_parts_is_the_generated_one(
    tag: str, delivery_tag: int, redelivered: bool, exchange: str, key: str
) -> None:
    target = wire.deliver_target(exchange, key)
    prepared = wire.deliver_prefix(tag) + wire.DELIVERY.pack(delivery_tag, redelivered) + target
    assert prepared == m.BasicDeliver(tag, delivery_tag, redelivered, exchange, key).encode()
    assert target == m.BasicPublish(exchange, key).encode()[4:][2:-1]


def test_s025_a_reply_text_is_cut_to_255_octets_between_letters() -> None:
    assert (
        wire.reply_text(wire.AmqpError(404, "no queue 'q' in vhost '/'"))
        == "NOT_FOUND - no queue 'q' in vhost '/'"
    )
    for filler in range(4):
        text = wire.reply_text(wire.AmqpError(404, "x" * filler + "ä€" * 200))
        assert 252 <= len(text.encode()) <= 255
        assert "\ufffd" not in text
    assert wire.reply_text(wire.AmqpError(404, "caf\udce9")) == "NOT_FOUND - caf\ufffd"
