"""MQTT, the format of packets: what a broker reads, and how it answers what it cannot read."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec import reason_codes as codes
from leveret.protocols.mqtt.codec.properties import Properties
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer

both_versions = pytest.mark.parametrize("version", [4, 5])


def connected(version: int = 5, bench: ClientBench | None = None, name: str = "me", **said: object) -> Peer:
    return Peer(bench or ClientBench(), version).connect(name, **said)  # type: ignore[arg-type]


def refused(octets: str, version: int = 5) -> int | None:
    """Return the reason code with which a connection is closed that says this; None in version 3.1.1, which has none.

    It must be closed.
    """
    peer = connected(version)
    peer.send_bytes(bytes.fromhex(octets))
    peer.read()
    assert peer.front.closed
    assert peer.heard == ([] if peer.disconnected is None else [peer.disconnected])
    return None if peer.disconnected is None else peer.disconnected.reason_code


def refused_in_both(octets: str, octets_5: str, code: int) -> None:
    """Like `refused`, in 3.1.1, which says nothing, and in 5."""
    assert refused(octets, 4) is None
    assert refused(octets_5, 5) == code


def refused_connect(octets: str) -> p.ConnAck | None:
    """Return the CONNACK with which this CONNECT is refused, if there is one. The connection must be closed."""
    peer = Peer(ClientBench())
    peer.version = 4 if bytes.fromhex(octets)[8] & 0x7F != 5 else 5
    peer.reader.version = peer.version
    peer.send_bytes(bytes.fromhex(octets))
    peer.read()
    assert peer.front.closed
    return peer.connected


@pytest.mark.parametrize("text", ["ff", "c0", "eda080", "edbfbf", "f8"])
def test_m001_ill_formed_strings(text: str) -> None:
    size = len(text) // 2
    refused_in_both(
        f"30 {2 + size:02x} {size:04x} {text}",
        f"30 {3 + size:02x} {size:04x} {text} 00",
        codes.MALFORMED_PACKET,
    )
    assert refused(f"82 {6 + size:02x} 0001 00 {size:04x} {text} 00") == codes.MALFORMED_PACKET
    answer = refused_connect(f"10 {13 + size:02x} 0004 4d515454 05 02 0000 00 {size:04x} {text}")
    assert answer == p.ConnAck(
        codes.MALFORMED_PACKET, False, Properties(reason_string="a string is not UTF-8")
    )
    assert refused_connect(f"10 {12 + size:02x} 0004 4d515454 04 02 0000 {size:04x} {text}") is None


def test_m002_strings_with_u_0000() -> None:
    refused_in_both("30 05 0003 610062", "30 06 0003 610062 00", codes.MALFORMED_PACKET)
    refused_in_both("82 06 0001 0001 00 00", "82 07 0001 00 0001 00 00", codes.MALFORMED_PACKET)


@both_versions
def test_m003_u_feff_is_kept(version: int) -> None:
    peer = connected(version)
    peer.subscribe("\ufeffa")
    peer.publish("\ufeffa", b"1")
    peer.publish("a", b"2")
    assert [each.topic for each in peer.messages()] == ["\ufeffa"]


def test_m004_sizes_with_more_bytes_than_necessary() -> None:
    assert refused("c0 80 00") == codes.MALFORMED_PACKET
    assert refused("30 86 00 0001 61 00 6869") == codes.MALFORMED_PACKET
    assert refused("30 06 0001 61 8000 78") == codes.MALFORMED_PACKET


@pytest.mark.parametrize("pair", ["0001 ff 0001 61", "0001 61 0001 ff", "0001 00 0001 61", "0001 61 0001 00"])
def test_m005_both_strings_of_a_user_property(pair: str) -> None:
    assert refused(f"30 0b 0001 61 07 26 {pair}") == codes.MALFORMED_PACKET


@pytest.mark.parametrize(
    "octets",
    [
        "44 02 0001", "51 02 0001", "60 02 0001", "63 02 0001", "7f 02 0001",
        "80 06 0001 00 0001 61", "a0 05 0001 0001 61", "c1 00", "e1 00", "00 00",
    ],
)  # fmt: skip
def test_m006_reserved_flags(octets: str) -> None:
    refused_in_both(octets, octets, codes.MALFORMED_PACKET)
    assert refused("f1 00") == codes.MALFORMED_PACKET
    assert refused("f0 00", 4) is None


def test_m007_no_properties_are_a_length_of_zero() -> None:
    assert refused("30 03 0001 61") == codes.MALFORMED_PACKET
    peer, bench = connected(), ClientBench()
    peer = connected(bench=bench)
    peer.subscribe("a")
    peer.send(p.Publish("a", b"x"))
    assert b"\0\x01a\0x" in peer.take_bytes()


def test_m008_packet_identifiers_are_not_zero() -> None:
    refused_in_both("32 05 0001 61 0000", "32 06 0001 61 0000 00", codes.PROTOCOL_ERROR)
    refused_in_both("82 06 0000 0001 61 00", "82 07 0000 00 0001 61 00", codes.PROTOCOL_ERROR)
    refused_in_both("a2 05 0000 0001 61", "a2 06 0000 00 0001 61", codes.PROTOCOL_ERROR)


@both_versions
def test_m009_a_publish_with_qos_0_has_no_packet_identifier(version: int) -> None:
    peer = connected(version)
    peer.subscribe("a", qos=2)
    peer.send_bytes(p.Publish("a", b"\0\x07x").encode(version))
    (found,) = peer.messages()
    assert (found.qos, found.packet_id, found.payload) == (0, 0, b"\0\x07x")


@both_versions
def test_m010_packet_identifiers_of_the_server_are_unused_and_not_zero(version: int) -> None:
    bench = ClientBench("[protocols.mqtt]\nin_flight_max = 65535\n")
    reader, writer = connected(version, bench), connected(5, bench, "writer")
    reader.acknowledges = False
    reader.subscribe("a", qos=2)
    for number in range(20):
        writer.publish("a", b"", qos=1 + number % 2)
    found = [each.packet_id for each in reader.messages()]
    assert len(set(found)) == 20
    assert 0 not in found


@both_versions
def test_m011_answers_have_the_packet_identifier_of_what_they_answer(version: int) -> None:
    peer = connected(version)
    peer.send(p.Publish("a", b"", 1, packet_id=11))
    peer.send(p.Publish("a", b"", 2, packet_id=12))
    peer.send(p.Ack(of.PUBREL, 12))
    peer.send(p.Subscribe(13, (p.Subscription("a"),)))
    peer.send(p.Unsubscribe(14, ("a",)))
    found = [(each.kind, each.packet_id) for each in peer.taken()]
    assert found == [(of.PUBACK, 11), (of.PUBREC, 12), (of.PUBCOMP, 12), (of.SUBACK, 13), (of.UNSUBACK, 14)]


def test_m012_what_is_wrong_ends_the_connection_with_its_reason_code() -> None:
    refused_in_both("30 01 00", "30 01 00", codes.MALFORMED_PACKET)
    refused_in_both("d0 00", "d0 00", codes.PROTOCOL_ERROR)
    refused_in_both("30 03 0001 23", "30 04 0001 23 00", codes.TOPIC_NAME_INVALID)
    refused_in_both("82 06 0001 0001 2b 03", "82 07 0001 00 0001 2b 03", codes.PROTOCOL_ERROR)
    assert refused("30 07 0001 61 03 230000") == codes.TOPIC_ALIAS_INVALID
    assert refused("30 06 0001 61 02 0102") == codes.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "octets",
    ["40 03 0001 01", "50 03 0001 92", "62 03 0001 97", "70 03 0001 80", "e0 01 8b", "f0 01 01"],
)
def test_m013_reason_codes_that_a_packet_does_not_have(octets: str) -> None:
    """Ours are those of the tables, too: the reader of a client refuses others."""
    assert refused(octets) == codes.PROTOCOL_ERROR


def test_m013_reason_codes_of_ours() -> None:
    bench = ClientBench()
    bench.user("ann", write="^$", read="^$", configure="^$")
    peer = connected(5, bench, user="ann", password=b"ann")
    assert peer.subscribe("a")[0] in codes.OF_SUBACK - {0, 1, 2}
    answer = peer.publish("a", b"", qos=1)
    assert answer is not None
    assert answer.reason_code in codes.OF_PUBACK - {0}
    assert peer.unsubscribe("never") == (codes.NO_SUBSCRIPTION_EXISTED,)
