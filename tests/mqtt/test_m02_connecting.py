"""MQTT, CONNECT and CONNACK: who is let in, which session it gets, and what becomes of its will."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import reason_codes as codes
from leveret.protocols.mqtt.codec.packets import Will
from leveret.protocols.mqtt.codec.properties import Properties
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer
from tests.mqtt.test_m01_packets import both_versions, connected, refused_connect, refused_in_both

KEPT_S = 100


def kept(version: int, bench: ClientBench, name: str = "me", clean: bool = False) -> Peer:
    """A client whose session outlives its connection."""
    said = {"session_expiry_interval": KEPT_S} if version == 5 else {}
    return Peer(bench, version).connect(name, clean, **said)


def reader_of(bench: ClientBench, topic: str = "gone", **options: object) -> Peer:
    reader = Peer(bench).connect("reader")
    reader.subscribe(topic, qos=2, **options)
    return reader


def present(peer: Peer) -> bool:
    assert peer.connected is not None
    return peer.connected.session_present


@pytest.mark.parametrize("octets", ["c0 00", "82 06 0001 0001 61 00", "e0 00", "30 03 0001 61"])
def test_m014_the_first_packet_is_a_connect(octets: str) -> None:
    peer = Peer(ClientBench())
    peer.send_bytes(bytes.fromhex(octets))
    assert (peer.front.closed, peer.take_bytes()) == (True, b"")


def test_m015_a_second_connect() -> None:
    refused_in_both(
        "10 0d 0004 4d515454 04 02 0000 0001 63",
        "10 0e 0004 4d515454 05 02 0000 00 0001 63",
        codes.PROTOCOL_ERROR,
    )


@pytest.mark.parametrize(
    "head", ["0004 4d515454 03", "0004 4d515454 06", "0006 4d5149736470 03", "0004 6d717474 04"]
)
def test_m016_another_protocol_or_version(head: str) -> None:
    body = bytes.fromhex(f"{head} 02 0000 0001 63")
    peer = Peer(ClientBench())
    peer.send_bytes(bytes((0x10, len(body))) + body)
    assert (peer.front.closed, peer.take_bytes()) == (True, b"\x20\x02\0\x01")


def test_m017_the_reserved_flag_of_connect() -> None:
    answer = refused_connect("10 0e 0004 4d515454 05 03 0000 00 0001 63")
    assert answer is not None
    assert answer.reason_code == codes.MALFORMED_PACKET
    assert refused_connect("10 0d 0004 4d515454 04 03 0000 0001 63") is None


@both_versions
def test_m018_a_clean_start_begins_another_session(version: int) -> None:
    bench = ClientBench()
    kept(version, bench).subscribe("a", qos=1)
    writer = Peer(bench).connect("writer")
    bench.peers[0].drop()
    writer.publish("a", b"1", qos=1)
    again = kept(version, bench, clean=True)
    assert (present(again), again.messages()) == (False, [])
    writer.publish("a", b"2", qos=1)
    assert again.messages() == []


@both_versions
def test_m019_a_session_goes_on_without_a_clean_start(version: int) -> None:
    bench = ClientBench()
    first = kept(version, bench)
    first.subscribe("a", qos=1)
    first.drop()
    again = kept(version, bench)
    Peer(bench).connect("writer").publish("a", b"1", qos=1)
    assert (present(again), again.payloads()) == (True, [b"1"])


@both_versions
def test_m020_there_may_be_no_session_to_go_on_with(version: int) -> None:
    peer = kept(version, ClientBench())
    assert not present(peer)
    assert peer.subscribe("a", qos=1) == (1,)


@both_versions
def test_m021_a_will_is_published_when_the_connection_is_lost(version: int) -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    connected(version, bench, will=Will("gone", b"1", 2)).drop()
    broken = connected(version, bench, will=Will("gone", b"2", 1))
    broken.send_bytes(b"\0\0")
    assert broken.front.closed
    assert [(each.payload, each.qos) for each in reader.messages()] == [(b"1", 2), (b"2", 1)]


def test_m022_the_fields_of_a_will_are_there() -> None:
    assert refused_connect("10 0d 0004 4d515454 04 06 0000 0001 63") is None
    assert refused_connect("10 10 0004 4d515454 04 06 0000 0001 63 0001 77") is None
    answer = refused_connect("10 0e 0004 4d515454 05 06 0000 00 0001 63")
    assert answer is not None
    assert answer.reason_code == codes.MALFORMED_PACKET


@both_versions
def test_m023_a_will_is_removed_by_a_disconnect_and_published_once(version: int) -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    connected(version, bench, will=Will("gone", b"1", 1)).leave()
    kept_one = connected(version, bench, will=Will("gone", b"2", 1))
    kept_one.drop()
    connected(version, bench).drop()
    assert reader.payloads() == [b"2"]


def test_m024_flags_of_a_will_without_a_will() -> None:
    for flags in ("0a", "12", "22"):
        assert refused_connect(f"10 0d 0004 4d515454 04 {flags} 0000 0001 63") is None
        answer = refused_connect(f"10 0e 0004 4d515454 05 {flags} 0000 00 0001 63")
        assert answer is not None
        assert answer.reason_code == codes.MALFORMED_PACKET
    bench = ClientBench()
    reader = reader_of(bench, "#")
    connected(4, bench).drop()
    assert reader.messages() == []


def test_m025_the_qos_of_a_will_is_2_at_most() -> None:
    assert refused_connect("10 13 0004 4d515454 04 1e 0000 0001 63 0001 77 0001 78") is None
    answer = refused_connect("10 15 0004 4d515454 05 1e 0000 00 0001 63 00 0001 77 0001 78")
    assert answer is not None
    assert answer.reason_code == codes.MALFORMED_PACKET


@both_versions
@pytest.mark.parametrize("retain", [False, True])
def test_m026_a_will_is_retained_if_it_asks_for_it(version: int, retain: bool) -> None:
    bench = ClientBench()
    connected(version, bench, will=Will("gone", b"1", 1, retain)).drop()
    assert [each.retain for each in reader_of(bench).messages()] == [True] * retain


def test_m027_user_name_and_password_are_there_if_their_flags_are_set() -> None:
    assert refused_connect("10 0d 0004 4d515454 04 82 0000 0001 63") is None
    assert refused_connect("10 10 0004 4d515454 04 c2 0000 0001 63 0001 75") is None
    assert refused_connect("10 10 0004 4d515454 04 02 0000 0001 63 0001 75") is None
    answer = refused_connect("10 0e 0004 4d515454 05 42 0000 00 0001 63")
    assert answer is not None
    assert answer.reason_code == codes.MALFORMED_PACKET


def test_m028_a_password_without_a_user_name() -> None:
    assert refused_connect("10 10 0004 4d515454 04 42 0000 0001 63 0001 70") is None
    peer = Peer(ClientBench()).connect(user=None, password=b"guest")
    assert peer.connected is not None
    assert peer.connected.reason_code != codes.MALFORMED_PACKET


@both_versions
def test_m029_a_silent_client_is_dropped_after_one_and_a_half_keep_alives(version: int) -> None:
    bench = ClientBench()
    peer = connected(version, bench, keep_alive=10)
    bench.advance(14)
    peer.send(p.PingReq())
    bench.advance(14)
    assert not peer.front.closed
    bench.advance(2)
    peer.read()
    assert peer.front.closed
    assert (peer.disconnected and peer.disconnected.reason_code) == (0x8D if version == 5 else None)


@both_versions
def test_m030_a_session_lasts_as_long_as_its_expiry_interval(version: int) -> None:
    bench = ClientBench("[protocols.mqtt]\nsession_expiry_max_s = 100\n")
    first = kept(version, bench)
    first.subscribe("a", qos=1)
    bench.advance(1000)
    first.drop()
    Peer(bench).connect("writer").publish("a", b"1", qos=1)
    bench.advance(99)
    second = kept(version, bench)
    assert (present(second), second.payloads()) == (True, [b"1"])
    second.drop()
    bench.advance(101)
    assert not present(kept(version, bench))
    if version == 5:
        connected(5, bench, "short").drop()
        assert not present(Peer(bench).connect("short", clean=False))


def test_m031_no_packet_is_larger_than_the_client_takes() -> None:
    bench = ClientBench()
    reader = Peer(bench).connect("reader", maximum_packet_size=60, receive_maximum=1)
    reader.subscribe("a", qos=1)
    writer = Peer(bench).connect("writer")
    for payload in (b"x" * 100, b"1", b"y" * 100, b"2"):
        writer.publish("a", payload, qos=1)
    assert reader.payloads() == [b"1", b"2"]


def test_m032_topic_aliases_are_those_that_the_client_takes() -> None:
    bench = ClientBench()
    none, two = Peer(bench).connect("none"), Peer(bench).connect("two", topic_alias_maximum=2)
    writer = Peer(bench).connect("writer")
    for reader in (none, two):
        reader.subscribe("long/topic/#")
    for number in range(5):
        writer.publish(f"long/topic/{number % 3}")
    assert {each.properties.topic_alias for each in none.messages()} == {None}
    aliases = {each.properties.topic_alias for each in two.messages()}
    assert aliases <= {None, 1, 2}
    assert aliases >= {1}


@pytest.mark.parametrize("asked", [0, 1])
def test_m033_there_is_no_response_information(asked: int) -> None:
    peer = Peer(ClientBench()).connect(request_response_information=asked)
    assert peer.connected is not None
    assert peer.connected.properties.response_information is None


def test_m034_reasons_are_told_to_those_only_that_ask() -> None:
    bench = ClientBench()
    bench.user("ann", write="^$", read="^$", configure="^$")
    peer = connected(5, bench, user="ann", password=b"ann", request_problem_information=0)
    answer = peer.publish("a", b"", qos=1)
    assert answer is not None
    assert (answer.reason_code >= 0x80, answer.properties) == (True, Properties())
    peer.send(p.Subscribe(1, (p.Subscription("a"),)))
    (subscribed,) = peer.taken(p.SubAck)
    assert subscribed.properties == Properties()


@pytest.mark.parametrize("packet", [p.PingReq(), p.Publish("a"), p.Subscribe(1, (p.Subscription("a"),))])
def test_m035_nothing_but_auth_comes_while_a_client_authenticates(packet: p.AnyPacket) -> None:
    bench = ClientBench('[protocols.mqtt]\nmechanisms = ["SCRAM-SHA-256"]\n')
    bench.user("ann")
    peer = Peer(bench)
    asked = Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"n,,n=ann,r=client")
    peer.send(p.Connect(5, "me", properties=asked))
    assert [each.reason_code for each in peer.taken(p.Auth)] == [0x18]
    peer.send(packet)
    peer.read()
    assert peer.front.closed
    assert peer.connected is not None
    assert peer.connected.reason_code == codes.PROTOCOL_ERROR


def test_m036_the_fields_of_connect_have_one_order() -> None:
    said = p.Connect(4, "c", True, 0, "guest", b"guest", Will("w", b"bye")).encode()
    assert said.index(b"c", 12) < said.index(b"\0\1w") < said.index(b"bye") < said.index(b"guest")
    bench = ClientBench()
    reader = reader_of(bench, "w")
    peer = Peer(bench, 4)
    peer.send_bytes(said)
    peer.read()
    peer.drop()
    assert reader.payloads() == [b"bye"]


@both_versions
def test_m037_a_client_identifier_says_whose_session_it_is(version: int) -> None:
    bench = ClientBench()
    first = kept(version, bench, "one")
    first.subscribe("a", qos=1)
    first.drop()
    assert not present(kept(version, bench, "two"))
    assert present(kept(version, bench, "one"))


@both_versions
@pytest.mark.parametrize(
    "name", ["a", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"]
)
def test_m038_client_identifiers_of_letters_and_digits(version: int, name: str) -> None:
    peer = connected(version, name=name)
    assert peer.connected is not None
    assert peer.connected.reason_code == 0


@both_versions
def test_m039_a_client_without_an_identifier_is_given_one(version: int) -> None:
    bench = ClientBench()
    peers = [connected(version, bench, "") for _ in range(2)]
    assert [peer.connected and peer.connected.reason_code for peer in peers] == [0, 0]
    assert not any(peer.front.closed for peer in peers)
    given = {peer.connected.properties.assigned_client_identifier for peer in peers if peer.connected}
    assert (len(given), None in given) == ((2, False) if version == 5 else (1, True))


def test_m040_no_identifier_and_no_clean_session() -> None:
    peer = Peer(ClientBench(), 4).connect("", clean=False)
    assert peer.connected is not None
    assert (peer.connected.reason_code, peer.front.closed) == (codes.CLIENT_IDENTIFIER_NOT_VALID, True)


def test_m041_a_client_that_comes_back_in_time_has_no_will_published() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    will = Will("gone", b"1", 1, properties=Properties(will_delay_interval=10))
    Peer(bench).connect(will=will, session_expiry_interval=100).drop()
    bench.advance(9)
    Peer(bench).connect(clean=False, session_expiry_interval=100)
    bench.advance(100)
    assert reader.messages() == []


def test_m042_the_user_properties_of_a_will_keep_their_order() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    pairs = (("b", "1"), ("a", "2"), ("b", "3"))
    connected(5, bench, will=Will("gone", properties=Properties(user_properties=pairs))).drop()
    assert [each.properties.user_properties for each in reader.messages()] == [pairs]


def test_m043_a_connect_of_another_form() -> None:
    """Version 5 may say what is wrong, 3.1.1 is closed without a CONNACK."""
    assert refused_connect("10 0e 0004 4d515454 04 02 0000 0001 63 00") is None
    answer = refused_connect("10 0f 0004 4d515454 05 02 0000 00 0001 63 00")
    assert answer is not None
    assert answer.reason_code == codes.MALFORMED_PACKET


@both_versions
def test_m044_a_refused_login_is_told_and_closed(version: int) -> None:
    peer = connected(version, password=b"wrong")
    assert peer.connected is not None
    assert peer.connected.reason_code == codes.BAD_USER_NAME_OR_PASSWORD
    assert not peer.connected.session_present
    assert peer.front.closed


@both_versions
def test_m045_a_session_is_taken_over(version: int) -> None:
    """Over a real socket: tests/mqtt/test_taken_over.py."""
    bench = ClientBench()
    first = connected(version, bench)
    second = connected(version, bench)
    first.read()
    assert (first.front.closed, second.front.closed) == (True, False)
    assert (first.disconnected and first.disconnected.reason_code) == (0x8E if version == 5 else None)


@both_versions
def test_m046_one_that_is_let_in_gets_a_connack_with_0(version: int) -> None:
    peer = Peer(ClientBench(), version)
    peer.send(p.Connect(version, "me", user_name="guest", password=b"guest"))
    assert peer.take_bytes()[:4:3] == b"\x20\0"


@both_versions
def test_m047_nothing_is_done_that_comes_after_a_refused_connect(version: int) -> None:
    bench = ClientBench()
    reader = reader_of(bench, "#")
    peer = Peer(bench, version)
    refused_one = p.Connect(version, "me", user_name="guest", password=b"wrong").encode()
    peer.send_bytes(refused_one + p.Publish("a", b"x").encode(version))
    assert peer.front.closed
    assert reader.messages() == []


@both_versions
def test_m048_a_connack_is_the_first_packet_and_the_only_one(version: int) -> None:
    bench = ClientBench()
    first = kept(version, bench)
    first.subscribe("a", qos=1)
    first.drop()
    Peer(bench).connect("writer").publish("a", b"1", qos=1)
    again = Peer(bench, version)
    again.send(p.Connect(version, "me", False, 0, "guest", b"guest"))
    again.send(p.PingReq())
    kinds = [type(each) for each in again.taken()]
    assert kinds[0] is p.ConnAck
    assert kinds.count(p.ConnAck) == 1
    assert p.Publish in kinds


@both_versions
def test_m049_session_present(version: int) -> None:
    bench = ClientBench()
    found = []
    for clean in (True, False, False, True):
        peer = Peer(bench, version)
        said = Properties(session_expiry_interval=KEPT_S) if version == 5 else Properties()
        peer.send(p.Connect(version, "me", clean, 0, "guest", b"guest", properties=said))
        octets = peer.take_bytes()
        found.append(octets[2])
        peer.drop()
    assert found == ([0, 1, 1, 0] if version == 5 else [0, 0, 1, 0])


@both_versions
def test_m050_no_session_is_present_where_a_client_is_refused(version: int) -> None:
    bench = ClientBench()
    kept(version, bench).drop()
    peer = Peer(bench, version)
    peer.send(p.Connect(version, "me", False, 0, "guest", b"wrong"))
    octets = peer.take_bytes()
    assert (octets[0], octets[2], octets[3] != 0) == (0x20, 0, True)


def test_m051_what_no_return_code_stands_for_is_closed_without_a_word() -> None:
    peer = Peer(ClientBench(), 4)
    peer.send_bytes(bytes.fromhex("10 13 0004 4d515454 04 06 0000 0001 63 0001 23 0001 78"))
    assert (peer.front.closed, peer.take_bytes()) == (True, b"")


def test_m052_every_quality_and_retained_messages_are_there() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect(will=Will("gone", b"1", 2, True))
    assert peer.connected is not None
    said = peer.connected.properties
    assert (said.maximum_qos, said.retain_available) == (None, None)
    assert (said.wildcard_subscription_available, said.shared_subscription_available) in (
        (None, None),
        (1, 1),
    )
    peer.drop()
    assert [(each.qos, each.retain) for each in reader_of(bench).messages()] == [(2, True)]


def test_m053_reasons_that_would_make_a_packet_too_large_are_left_out() -> None:
    bench = ClientBench()
    for size, told in ((1000, True), (12, False)):
        peer = Peer(bench).connect(maximum_packet_size=size)
        peer.send_bytes(b"\0\0")
        peer.read()
        assert peer.disconnected is not None
        assert (peer.disconnected.properties.reason_string is not None) is told
        refused_one = Peer(bench).connect(password=b"wrong", maximum_packet_size=size)
        assert refused_one.connected is not None
        assert (refused_one.connected.properties.reason_string is not None) is told


def test_m054_the_keep_alive_is_that_of_the_server_if_it_says_one() -> None:
    bench = ClientBench("[protocols.mqtt]\nkeep_alive_max_s = 10\n")
    peer = Peer(bench).connect(keep_alive=60)
    assert peer.connected is not None
    assert peer.connected.properties.server_keep_alive == 10
    bench.advance(16)
    assert peer.front.closed
    own = Peer(bench).connect("own", keep_alive=6)
    assert own.connected is not None
    assert own.connected.properties.server_keep_alive is None
    bench.advance(10)
    assert own.front.closed
