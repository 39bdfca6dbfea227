"""Wrong packets are refused with the reason code that the specification has for them."""

from __future__ import annotations

from typing import Final

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec import reason_codes as codes
from leveret.protocols.mqtt.codec.errors import MalformedError, MqttError, ProtocolError
from leveret.protocols.mqtt.codec.properties import Properties
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader
from leveret.protocols.mqtt.codec.topics import check_topic_filter, shared
from leveret.protocols.mqtt.codec.values import encode_string, encode_variable
from tests.mqtt.samples import SAMPLES
from tests.mqtt.test_packets import taken

MALFORMED: Final = codes.MALFORMED_PACKET
PROTOCOL: Final = codes.PROTOCOL_ERROR

# What a client sends: version (0 before CONNECT), bytes, reason code.
FROM_CLIENT: Final[dict[str, tuple[int, str, int]]] = {
    # The first byte, and the size.
    "a packet of kind 0": (5, "00 00", MALFORMED),
    "a packet of kind 0 before CONNECT": (0, "00 00", MALFORMED),
    "AUTH in 3.1.1": (4, "f0 00", MALFORMED),
    "flags of a PINGREQ": (5, "c1 00", MALFORMED),
    "flags of a PUBACK": (5, "44 02 0001", MALFORMED),
    "flags of a PUBREL": (5, "60 02 0001", MALFORMED),
    "flags of a SUBSCRIBE": (5, "80 06 0001 00 0001 61", MALFORMED),
    "flags of an UNSUBSCRIBE": (4, "a0 05 0001 0001 61", MALFORMED),
    "flags of a DISCONNECT": (4, "e8 00", MALFORMED),
    "flags of a CONNECT": (0, "11 0d 0004 4d515454 04 02 0000 0001 63", MALFORMED),
    "a size of five bytes": (5, "30 80 80 80 80 01", MALFORMED),
    "a size of five bytes before CONNECT": (0, "10 ff ff ff ff 01", MALFORMED),
    "a size that is longer than necessary": (5, "c0 80 00", MALFORMED),
    "a size that is longer than necessary, of a PUBLISH": (5, "30 86 00 0001 61 00 6869", MALFORMED),
    "a size that is longer than necessary, of a CONNECT in version 5": (
        0, "10 8e 00 0004 4d515454 05 02 0000 00 0001 63", MALFORMED,
    ),
    # What may come when, and from whom.
    "no CONNECT first": (0, "c0 00", PROTOCOL),
    "a PUBLISH before CONNECT": (0, "30 ff ff ff 7f", PROTOCOL),
    "a second CONNECT": (4, "10 0d 0004 4d515454 04 02 0000 0001 63", PROTOCOL),
    "a CONNACK of a client": (5, "20 03 00 00 00", PROTOCOL),
    "a SUBACK of a client": (4, "90 03 0001 00", PROTOCOL),
    "an UNSUBACK of a client": (4, "b0 02 0001", PROTOCOL),
    "a PINGRESP of a client": (5, "d0 00", PROTOCOL),
    # CONNECT.
    "another protocol": (0, "10 0f 0006 4d5149736470 04 02 0000 0001 63", codes.UNSUPPORTED_PROTOCOL_VERSION),
    "the protocol's name in small letters": (
        0, "10 0d 0004 6d717474 04 02 0000 0001 63", codes.UNSUPPORTED_PROTOCOL_VERSION,
    ),
    "version 3": (0, "10 0d 0004 4d515454 03 02 0000 0001 63", codes.UNSUPPORTED_PROTOCOL_VERSION),
    "version 6": (0, "10 0d 0004 4d515454 06 02 0000 0001 63", codes.UNSUPPORTED_PROTOCOL_VERSION),
    "a bridge of version 5": (0, "10 0d 0004 4d515454 85 02 0000 0001 63", codes.UNSUPPORTED_PROTOCOL_VERSION),
    "the reserved flag": (0, "10 0d 0004 4d515454 04 03 0000 0001 63", MALFORMED),
    "a will's QoS without a will": (0, "10 0d 0004 4d515454 04 0a 0000 0001 63", MALFORMED),
    "a will's retain without a will": (0, "10 0d 0004 4d515454 04 22 0000 0001 63", MALFORMED),
    "a will with QoS 3": (0, "10 13 0004 4d515454 04 1e 0000 0001 63 0001 77 0001 78", MALFORMED),
    "a password without a user in 3.1.1": (0, "10 10 0004 4d515454 04 42 0000 0001 63 0001 70", MALFORMED),
    "no client identifier": (0, "10 0a 0004 4d515454 04 02 0000", MALFORMED),
    "no user name where the flag is set": (0, "10 0d 0004 4d515454 04 82 0000 0001 63", MALFORMED),
    "no will where the flag is set": (0, "10 0d 0004 4d515454 04 06 0000 0001 63", MALFORMED),
    "a will's topic with wildcards": (
        0, "10 13 0004 4d515454 04 06 0000 0001 63 0001 23 0001 78", codes.TOPIC_NAME_INVALID,
    ),
    "something behind the last field": (0, "10 0e 0004 4d515454 04 02 0000 0001 63 00", MALFORMED),
    "a client identifier that is no UTF-8": (0, "10 0d 0004 4d515454 04 02 0000 0001 ff", MALFORMED),
    "a client identifier with a surrogate": (0, "10 0f 0004 4d515454 04 02 0000 0003 eda080", MALFORMED),
    "a client identifier with U+0000": (0, "10 0d 0004 4d515454 04 02 0000 0001 00", MALFORMED),
    "a user name that is no UTF-8": (0, "10 10 0004 4d515454 04 82 0000 0001 63 0001 80", MALFORMED),
    "a name that is cut short": (0, "10 04 0004 4d51", MALFORMED),
    "a receive maximum of 0": (0, "10 11 0004 4d515454 05 02 0000 03 210000 0001 63", PROTOCOL),
    "a maximum packet size of 0": (0, "10 13 0004 4d515454 05 02 0000 05 2700000000 0001 63", PROTOCOL),
    "request problem information 2": (0, "10 10 0004 4d515454 05 02 0000 02 1702 0001 63", PROTOCOL),
    "request response information 2": (0, "10 10 0004 4d515454 05 02 0000 02 1902 0001 63", PROTOCOL),
    "authentication data without a method": (
        0, "10 12 0004 4d515454 05 02 0000 04 16000161 0001 63", PROTOCOL,
    ),
    "a property of a will in CONNECT": (
        0, "10 13 0004 4d515454 05 02 0000 05 1800000001 0001 63", MALFORMED,
    ),
    # PUBLISH.
    "QoS 3": (4, "36 05 0001 61 0001", MALFORMED),
    "a duplicate with QoS 0": (4, "38 03 0001 61", MALFORMED),
    "packet identifier 0 of a PUBLISH": (4, "32 05 0001 61 0000", PROTOCOL),
    "a PUBLISH without its packet identifier": (4, "32 03 0001 61", MALFORMED),
    "a topic with #": (4, "30 03 0001 23", codes.TOPIC_NAME_INVALID),
    "a topic with +": (5, "30 06 0003 612f2b 00", codes.TOPIC_NAME_INVALID),
    "no topic in 3.1.1": (4, "30 02 0000", PROTOCOL),
    "neither a topic nor an alias": (5, "30 03 0000 00", PROTOCOL),
    "a topic that is no UTF-8": (4, "30 03 0001 c0", MALFORMED),
    "a topic with a surrogate": (4, "30 05 0003 edbfbf", MALFORMED),
    "a topic with U+0000": (4, "30 03 0001 00", MALFORMED),
    "a topic that is cut short": (4, "30 03 0002 61", MALFORMED),
    "a PUBLISH of one byte": (4, "30 01 00", MALFORMED),
    "an empty PUBLISH": (4, "30 00", MALFORMED),
    "no properties in version 5": (5, "30 03 0001 61", MALFORMED),
    "properties that are longer than the packet": (5, "30 05 0001 61 02 01", MALFORMED),
    "a length of properties that is longer than necessary": (5, "30 06 0001 61 8000 78", MALFORMED),
    "a length of properties with five bytes": (5, "30 08 0001 61 8080808001", MALFORMED),
    "topic alias 0": (5, "30 07 0001 61 03 230000", codes.TOPIC_ALIAS_INVALID),
    "a topic alias that is there twice": (5, "30 0a 0001 61 06 230001 230001", PROTOCOL),
    "an unknown property": (5, "30 05 0001 61 01 7f", MALFORMED),
    "a property of another packet": (5, "30 07 0001 61 03 210001", MALFORMED),
    "payload format 2": (5, "30 06 0001 61 02 0102", PROTOCOL),
    "a response topic with wildcards": (5, "30 08 0001 61 04 08000123", PROTOCOL),
    "a subscription identifier of a client": (5, "30 06 0001 61 02 0b01", PROTOCOL),
    "a content type that is no UTF-8": (5, "30 08 0001 61 04 030001ff", MALFORMED),
    "a user property with U+0000 in its name": (5, "30 0b 0001 61 07 26000100000162", MALFORMED),
    "a user property that is cut short": (5, "30 08 0001 61 04 26000161", MALFORMED),
    "a property that is cut short": (5, "30 07 0001 61 03 020000", MALFORMED),
    # Acknowledgements.
    "packet identifier 0 of a PUBACK": (4, "40 02 0000", PROTOCOL),
    "a PUBACK of one byte": (4, "40 01 00", MALFORMED),
    "an empty PUBREC": (5, "50 00", MALFORMED),
    "a reason code in 3.1.1": (4, "40 03 0001 00", MALFORMED),
    "a PUBACK's reason code in a PUBREL": (5, "62 03 0001 97", PROTOCOL),
    "a reason code of a PUBACK that does not exist": (5, "40 03 0001 01", PROTOCOL),
    "something behind the properties of a PUBACK": (5, "40 05 0001 00 00 00", MALFORMED),
    # SUBSCRIBE and UNSUBSCRIBE.
    "packet identifier 0 of a SUBSCRIBE": (4, "82 06 0000 0001 61 00", PROTOCOL),
    "packet identifier 0 of an UNSUBSCRIBE": (5, "a2 06 0000 00 0001 61", PROTOCOL),
    "no topic filter": (4, "82 02 0001", PROTOCOL),
    "no topic filter in version 5": (5, "82 03 0001 00", PROTOCOL),
    "nothing to unsubscribe from": (4, "a2 02 0001", PROTOCOL),
    "no options": (4, "82 05 0001 0001 61", MALFORMED),
    "reserved bits of the QoS": (4, "82 06 0001 0001 61 04", MALFORMED),
    "reserved bits of the options": (5, "82 07 0001 00 0001 61 40", MALFORMED),
    "QoS 3 of a subscription in 3.1.1": (4, "82 06 0001 0001 61 03", MALFORMED),
    "QoS 3 of a subscription": (5, "82 07 0001 00 0001 61 03", PROTOCOL),
    "retain handling 3": (5, "82 07 0001 00 0001 61 30", PROTOCOL),
    "no local of a shared subscription": (5, "82 10 0001 00 000a 2473686172652f672f61 04", PROTOCOL),
    "subscription identifier 0": (5, "82 09 0001 02 0b00 0001 61 00", PROTOCOL),
    "two subscription identifiers": (5, "82 0b 0001 04 0b010b02 0001 61 00", PROTOCOL),
    "an empty topic filter": (4, "82 05 0001 0000 00", codes.TOPIC_FILTER_INVALID),
    "an empty topic filter to unsubscribe from": (4, "a2 04 0001 0000", codes.TOPIC_FILTER_INVALID),
    "a # that is not last": (4, "82 08 0001 0003 232f61 00", codes.TOPIC_FILTER_INVALID),
    "a # that is no whole level": (4, "82 07 0001 0002 6123 00", codes.TOPIC_FILTER_INVALID),
    "a + that is no whole level": (4, "82 07 0001 0002 612b 00", codes.TOPIC_FILTER_INVALID),
    "a share without a name": (5, "82 10 0001 00 0009 2473686172652f2f61 00 00", codes.TOPIC_FILTER_INVALID),
    "a share without a filter": (5, "82 0f 0001 00 0009 2473686172652f672f 00", codes.TOPIC_FILTER_INVALID),
    "a share's name with +": (5, "82 10 0001 00 000a 2473686172652f2b2f61 00", codes.TOPIC_FILTER_INVALID),
    "a topic filter that is no UTF-8": (4, "82 06 0001 0001 fe 00", MALFORMED),
    # PINGREQ, DISCONNECT and AUTH.
    "a PINGREQ with a body": (4, "c0 01 00", MALFORMED),
    "a DISCONNECT with a body in 3.1.1": (4, "e0 01 00", MALFORMED),
    "a reason code that only servers have": (5, "e0 01 8b", PROTOCOL),
    "a server reference of a client": (5, "e0 06 00 04 1c000173", PROTOCOL),
    "something behind the properties of a DISCONNECT": (5, "e0 03 00 00 00", MALFORMED),
    "a reason code that AUTH does not have": (5, "f0 01 01", PROTOCOL),
    "authentication data without a method in AUTH": (5, "f0 06 18 04 16000164", PROTOCOL),
}  # fmt: skip

FROM_SERVER: Final[dict[str, tuple[int, str, int]]] = {
    "reserved flags of a CONNACK": (4, "20 02 02 00", MALFORMED),
    "a session with a refusal": (4, "20 02 01 05", PROTOCOL),
    "an unknown return code": (4, "20 02 00 06", PROTOCOL),
    "a reason code that CONNACK does not have": (5, "20 03 00 8b 00", PROTOCOL),
    "maximum QoS 2": (5, "20 05 00 00 02 2402", PROTOCOL),
    "retain available 2": (5, "20 05 00 00 02 2502", PROTOCOL),
    "a property that only clients have": (5, "20 05 00 00 02 1700", MALFORMED),
    "a failure in a SUBACK of 3.1.1 that does not exist": (4, "90 03 0001 87", PROTOCOL),
    "no reason code in a SUBACK": (5, "90 03 0001 00", PROTOCOL),
    "a reason code that UNSUBACK does not have": (5, "b0 04 0001 00 97", PROTOCOL),
    "a body of an UNSUBACK in 3.1.1": (4, "b0 03 0001 00", MALFORMED),
    "a session expiry interval in a server's DISCONNECT": (5, "e0 07 00 05 1100000001", PROTOCOL),
    "a client's reason code": (5, "e0 01 04", PROTOCOL),
    "a CONNECT of a server": (5, "10 0d 0004 4d515454 04 02 0000 0001 63", PROTOCOL),
    "a SUBSCRIBE of a server": (5, "82 07 0001 00 0001 61 00", PROTOCOL),
    "a PINGREQ of a server": (5, "c0 00", PROTOCOL),
}

ALL: Final = [(name, True, *each) for name, each in FROM_CLIENT.items()] + [
    (name, False, *each) for name, each in FROM_SERVER.items()
]


@pytest.mark.parametrize(
    ("name", "from_client", "version", "octets", "code"), ALL, ids=[row[0] for row in ALL]
)
def test_a_wrong_packet_is_refused_with_its_reason_code(
    name: str, from_client: bool, version: int, octets: str, code: int
) -> None:
    """In one piece, and byte by byte; what came before it is returned first."""
    said = bytes.fromhex(octets)
    reader = Reader(from_client=from_client, version=version)
    before = p.Ack(of.PUBACK, 1)
    if version:
        reader.push(before.encode(version))
    reader.push(said)
    if version:
        assert isinstance(reader.take(), AckRun)
    with pytest.raises(MqttError) as refused:
        reader.take()
    assert (refused.value.reason_code, bool(refused.value.text)) == (code, True)
    slow = Reader(from_client=from_client, version=version)
    with pytest.raises(MqttError) as again:
        read_slowly(slow, said)
    assert again.value.reason_code == code


def read_slowly(reader: Reader, octets: bytes) -> None:
    """Read byte by byte what is refused before it makes a packet."""
    for at in range(len(octets)):
        reader.push(octets[at : at + 1])
        assert reader.take() is None


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_packet_that_is_cut_short_is_refused(sample) -> None:
    """With every shorter body: malformed, or another packet that is whole, such as one with a shorter payload."""
    first, body = sample.octets[0], sample.octets[2:]
    for size in range(len(body)):
        try:
            packet = p.decode_packet(first, body[:size], sample.version, sample.from_client)
        except MalformedError:
            continue
        except ProtocolError:
            assert sample.packet.kind in (of.SUBSCRIBE, of.SUBACK, of.UNSUBSCRIBE, of.UNSUBACK)
            continue
        written = packet.encode(sample.version)
        again = p.decode_packet(written[0], written[2:], sample.version, sample.from_client)
        assert again == packet != sample.packet


@pytest.mark.parametrize("version", [4, 5])
def test_the_version_is_known_though_the_rest_of_a_connect_is_wrong(version: int) -> None:
    reader = Reader()
    reader.push(p.Connect(version, "c").encode().replace(b"\x00\x01c", b"\x00\x01\xff"))
    with pytest.raises(MqttError):
        reader.take()
    assert reader.version == version


def test_the_version_is_unknown_if_it_is_not_supported() -> None:
    reader = Reader()
    reader.push(bytes.fromhex("10 0d 0004 4d515454 06 02 0000 0001 63"))
    with pytest.raises(MqttError):
        reader.take()
    assert reader.version == 0


@pytest.mark.parametrize("version", [0, 4, 5])
def test_a_packet_that_is_too_large_is_refused_by_its_first_bytes(version: int) -> None:
    packet = p.Connect(5, "c" * 100) if not version else p.Publish("t", b"x" * 100)
    octets = packet.encode(version)
    reader = Reader(len(octets), version=version)
    reader.push(octets)
    assert len(taken(reader)) == 1
    reader = Reader(len(octets) - 1, version=version)
    reader.push(octets[:2])
    with pytest.raises(MqttError) as refused:
        reader.take()
    assert refused.value.reason_code == codes.PACKET_TOO_LARGE


def test_a_run_ends_before_a_packet_that_is_too_large() -> None:
    reader = Reader(20, version=5)
    reader.push(p.Publish("t", b"x").encode(5) * 3 + p.Publish("t", b"x" * 20).encode(5))
    run = reader.take()
    assert isinstance(run, PublishRun)
    assert len(run.payloads) == 3
    with pytest.raises(MqttError) as refused:
        reader.take()
    assert refused.value.reason_code == codes.PACKET_TOO_LARGE


def test_a_size_that_is_longer_than_necessary_is_read_in_version_3_1_1() -> None:
    """Its specification does not forbid it."""
    reader = Reader(version=4)
    reader.push(bytes.fromhex("c0 80 00 30 83 00 0001 61"))
    assert taken(reader) == [p.PingReq(), p.Publish("a")]


@pytest.mark.parametrize(
    "topic_filter", ["#", "+", "/", "a/+/b", "a/#", "+/+", "/+", "$SYS/#", "+/#", " ", "a//b"]
)
def test_topic_filters_that_are_allowed(topic_filter: str) -> None:
    check_topic_filter(topic_filter)
    assert shared(topic_filter) is None


def test_a_shared_subscription_has_a_name_and_a_filter() -> None:
    assert shared("$share/g/a/#") == ("g", "a/#")
    assert shared("$share/g//") == ("g", "/")
    assert shared("$shared/g/a") is None


@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share//a", "$share/#/a", "$share/g/"])
def test_a_shared_subscription_without_a_part_is_refused(topic_filter: str) -> None:
    with pytest.raises(MqttError) as refused:
        shared(topic_filter)
    assert refused.value.reason_code == codes.TOPIC_FILTER_INVALID


def test_the_byte_order_mark_is_a_character_like_others() -> None:
    assert taken(pushed(p.Publish("\ufeffa").encode(4), 4)) == [p.Publish("\ufeffa")]


def pushed(octets: bytes, version: int) -> Reader:
    reader = Reader(version=version)
    reader.push(octets)
    return reader


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: encode_string("a\0"),
        lambda: encode_string("a" * 65536),
        lambda: encode_string("\ud800"),
        lambda: encode_variable(268_435_456),
        lambda: encode_variable(-1),
        lambda: of.encode_properties(Properties(receive_maximum=65536)),
        lambda: of.encode_properties(Properties(message_expiry_interval=2**32)),
        lambda: of.encode_properties(Properties(payload_format_indicator=256)),
        lambda: p.Ack(of.PUBACK, 65536).encode(4),
        lambda: p.ConnAck(0x9F).encode(4),
    ],
)
def test_what_does_not_fit_the_wire_is_not_written(wrong) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words do not matter
        wrong()


def test_neither_a_password_nor_authentication_data_are_printed() -> None:
    packet = p.Connect(5, "c", password=b"hunter2", properties=Properties(authentication_data=b"hunter2"))
    assert "hunter2" not in repr(packet)


def test_every_reason_code_has_a_name_and_a_packet() -> None:
    used = codes.OF_CONNACK | codes.OF_PUBACK | codes.OF_PUBREL | codes.OF_SUBACK | codes.OF_UNSUBACK
    used |= codes.OF_CLIENTS_DISCONNECT | codes.OF_SERVERS_DISCONNECT | codes.OF_AUTH
    assert used - set(codes.NAMES) == {1, 2}
    assert set(codes.NAMES) <= used
    assert codes.NAMES[0x8E] == "session taken over"
