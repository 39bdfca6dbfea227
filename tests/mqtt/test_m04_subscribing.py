"""MQTT, SUBSCRIBE to DISCONNECT: filters, their answers, shared subscriptions, and the end of a connection."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec import reason_codes as codes
from leveret.protocols.mqtt.codec.properties import Properties
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer
from tests.mqtt.test_logins import METHOD, scram
from tests.mqtt.test_m01_packets import both_versions, connected, refused, refused_in_both
from tests.mqtt.test_m02_connecting import kept
from tests.mqtt.test_m03_publishing import pair


def test_m077_topic_filters_are_utf_8_of_up_to_65535_bytes() -> None:
    refused_in_both("82 06 0001 0001 ff 00", "82 07 0001 00 0001 ff 00", codes.MALFORMED_PACKET)
    refused_in_both("a2 05 0001 0001 ff", "a2 06 0001 00 0001 ff", codes.MALFORMED_PACKET)
    peer = connected()
    with pytest.raises(ValueError, match="do not fit"):
        peer.subscribe("a" * 65536)
    bench = ClientBench()
    long = "/".join(["ä"] * 80)
    reader = connected(5, bench)
    assert reader.subscribe(long) == (0,)
    reader.publish(long)
    assert [each.topic for each in reader.messages()] == [long]


def test_m078_there_is_at_least_one_topic_filter() -> None:
    refused_in_both("82 02 0001", "82 03 0001 00", codes.PROTOCOL_ERROR)
    refused_in_both("a2 02 0001", "a2 03 0001 00", codes.PROTOCOL_ERROR)


def test_m079_no_local_keeps_a_clients_own_messages_from_it() -> None:
    bench = ClientBench()
    peer, other = connected(5, bench), connected(5, bench, "other")
    peer.subscribe("a", no_local=True)
    peer.subscribe("b")
    for topic in ("a", "b"):
        peer.publish(topic, b"mine")
        other.publish(topic, b"theirs")
    assert [(each.topic, each.payload) for each in peer.messages()] == [
        ("a", b"theirs"),
        ("b", b"mine"),
        ("b", b"theirs"),
    ]


def test_m080_no_local_of_a_shared_subscription() -> None:
    assert refused("82 10 0001 00 000a 2473686172652f672f61 04") == codes.PROTOCOL_ERROR


@pytest.mark.parametrize("options", ["40", "80", "c0"])
def test_m081_reserved_bits_of_options(options: str) -> None:
    assert refused(f"82 07 0001 00 0001 61 {options}") == codes.MALFORMED_PACKET
    for bits in (options, "04", "08", "03"):
        assert refused(f"82 06 0001 0001 61 {bits}", 4) is None


@both_versions
def test_m082_a_suback_has_a_code_for_each_filter_in_order(version: int) -> None:
    bench = ClientBench("[protocols.mqtt]\nsubscriptions_max = 3\n")
    peer = connected(version, bench)
    asked = tuple(p.Subscription(topic, qos) for topic, qos in (("a", 2), ("b", 0), ("c", 1), ("d", 1)))
    peer.send(p.Subscribe(7, asked))
    (answer,) = peer.taken(p.SubAck)
    failure = 0x80 if version == 4 else codes.QUOTA_EXCEEDED
    assert (answer.packet_id, answer.reason_codes) == (7, (2, 0, 1, failure))


@both_versions
def test_m083_a_subscription_replaces_the_one_with_its_filter(version: int) -> None:
    reader, writer = pair(version, "a", 2)
    writer.publish("a", b"r", qos=1, retain=True)
    assert reader.payloads() == [b"r"]
    reader.subscribe("a", qos=0)
    assert [(each.payload, each.qos, each.retain) for each in reader.messages()] == [(b"r", 0, True)]
    writer.publish("a", b"1", qos=2)
    assert [(each.payload, each.qos) for each in reader.messages()] == [(b"1", 0)]


@both_versions
def test_m084_several_filters_are_like_several_packets(version: int) -> None:
    reader, writer = pair(version, "x")
    assert reader.subscribe("a", "b", "a", qos=1) == (1, 1, 1)
    for topic in ("a", "b"):
        writer.publish(topic)
    assert [each.topic for each in reader.messages()] == ["a", "b"]
    reader.unsubscribe("a", "b")
    for topic in ("a", "b"):
        writer.publish(topic)
    assert reader.messages() == []


@both_versions
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_m085_the_quality_is_the_lower_of_both(version: int, granted: int) -> None:
    reader, writer = pair(version, "a", granted)
    for qos in (0, 1, 2):
        writer.publish("a", b"", qos=qos)
    assert sorted(each.qos for each in reader.messages()) == sorted(min(qos, granted) for qos in (0, 1, 2))


@both_versions
def test_m086_a_subscription_is_ended_by_exactly_its_filter(version: int) -> None:
    reader, writer = pair(version, "a/+", 1)
    codes_of = [reader.unsubscribe(topic_filter) for topic_filter in ("a/#", "a/b", "A/+", "a/+")]
    assert codes_of == ([(0x11,), (0x11,), (0x11,), (0,)] if version == 5 else [()] * 4)
    writer.publish("a/b", b"", qos=1)
    assert reader.messages() == []
    reader.subscribe("a/+")
    writer.publish("a/b")
    assert len(reader.messages()) == 1


@both_versions
def test_m087_what_has_been_begun_is_completed_after_the_subscription(version: int) -> None:
    reader, writer = pair(version, "a", 2)
    reader.acknowledges = False
    writer.publish("a", b"1", qos=2)
    writer.publish("a", b"2", qos=1)
    found = reader.messages()
    reader.unsubscribe("a")
    for each in found:
        reader.acknowledge(each)
    assert not reader.front.closed
    assert reader.taken(p.Disconnect) == []


@both_versions
def test_m088_an_unsubscribe_is_always_answered_once(version: int) -> None:
    peer = connected(version)
    peer.subscribe("b")
    peer.send(p.Unsubscribe(9, ("never", "b")))
    (answer,) = peer.taken(p.UnsubAck)
    assert (answer.packet_id, answer.reason_codes) == (9, (0x11, 0) if version == 5 else ())


@both_versions
def test_m089_a_ping_is_answered(version: int) -> None:
    peer = connected(version)
    peer.send(p.PingReq())
    assert peer.taken() == [p.PingResp()]


@pytest.mark.parametrize("octets", ["10 0e 0004 4d515454 05 03 0000 00 0001 63", "00 00", "c0 00"])
def test_m090_no_disconnect_is_sent_before_a_connack(octets: str) -> None:
    peer = Peer(ClientBench())
    peer.send_bytes(bytes.fromhex(octets))
    peer.read()
    assert (peer.front.closed, peer.disconnected) == (True, None)


def test_m091_a_disconnect_of_the_server_has_no_session_expiry_interval() -> None:
    bench = ClientBench()
    first = kept(5, bench)
    kept(5, bench)
    first.read()
    assert first.disconnected is not None
    assert first.disconnected.properties.session_expiry_interval is None


@both_versions
def test_m092_nothing_comes_after_a_disconnect_and_the_connection_is_closed(version: int) -> None:
    reader, writer = pair(version)
    writer.send_bytes(p.Disconnect().encode(5) + p.Publish("a", b"late").encode(5))
    assert writer.front.closed
    assert reader.messages() == []
    reader.send_bytes(b"\0\0" + p.PingReq().encode(version))
    reader.read()
    assert reader.front.closed
    assert reader.heard == ([reader.disconnected] if version == 5 else [])
    reader.bench.advance(1)
    assert reader.take_bytes() == b""


# Topics (section 4.7) and shared subscriptions (4.8).


@pytest.mark.parametrize("wrong", ["a#", "#/a", "a/#/b", "##", "a+", "+a", "a/b+/c", "++"])
def test_m102_wildcards_are_whole_levels_and_the_last_one_may_be_many(wrong: str) -> None:
    octets = p.Subscribe(1, (p.Subscription(wrong),)).encode(4).hex()
    octets_5 = p.Subscribe(1, (p.Subscription(wrong),)).encode(5).hex()
    refused_in_both(octets, octets_5, codes.TOPIC_FILTER_INVALID)


@both_versions
def test_m102_wildcards_match_levels(version: int) -> None:
    found = {}
    for topic_filter in ("#", "+", "/+", "+/+", "a/#", "+/b/#"):
        reader, writer = pair(version, topic_filter, 0)
        for topic in ("a", "/a", "a/b", "a/", "a/b/c"):
            writer.publish(topic)
        found[topic_filter] = [each.topic for each in reader.messages()]
    assert found == {
        "#": ["a", "/a", "a/b", "a/", "a/b/c"],
        "+": ["a"],
        "/+": ["/a"],
        "+/+": ["/a", "a/b", "a/"],
        "a/#": ["a", "a/b", "a/", "a/b/c"],
        "+/b/#": ["a/b", "a/b/c"],
    }


@both_versions
def test_m103_wildcards_at_the_beginning_do_not_match_a_dollar(version: int) -> None:
    reader, writer = pair(version, "#", 0)
    reader.subscribe("+/a")
    reader.subscribe("$x/#")
    for topic in ("$x/a", "$y/a"):
        writer.publish(topic)
    assert {each.topic for each in reader.messages()} == {"$x/a"}


def test_m104_topics_and_filters_are_not_empty() -> None:
    refused_in_both("30 02 0000", "30 03 0000 00", codes.PROTOCOL_ERROR)
    refused_in_both("82 05 0001 0000 00", "82 06 0001 00 0000 00", codes.TOPIC_FILTER_INVALID)
    refused_in_both("a2 04 0001 0000", "a2 05 0001 00 0000", codes.TOPIC_FILTER_INVALID)


@both_versions
@pytest.mark.parametrize("topic", ["é", "e\u0301", "A", " a", "a ", "a//b", "/a", "a/", "a.b", "a*b", "\x01"])
def test_m105_topics_are_compared_as_they_are(version: int, topic: str) -> None:
    reader, writer = pair(version, topic, 0)
    for other in (
        "é",
        "e\u0301",
        "a",
        "A",
        " a",
        "a ",
        "a/b",
        "a//b",
        "/a",
        "a/",
        "a.b",
        "a*b",
        "axb",
        "\x01",
    ):
        writer.publish(other)
    assert [each.topic for each in reader.messages()] == [topic]


@pytest.mark.parametrize(
    "wrong", ["$share/", "$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/a#/a"]
)
def test_m106_a_shared_subscription_has_a_name_and_a_filter(wrong: str) -> None:
    assert refused(p.Subscribe(1, (p.Subscription(wrong),)).encode(5).hex()) == codes.TOPIC_FILTER_INVALID


def test_m107_a_shared_subscription_has_the_quality_that_was_granted() -> None:
    bench = ClientBench()
    reader, writer = connected(5, bench, "reader"), connected(5, bench, "writer")
    assert reader.subscribe("$share/g/a", qos=1) == (1,)
    for qos in (0, 1, 2):
        writer.publish("a", b"", qos=qos)
    assert [each.qos for each in reader.messages()] == [0, 1, 1]


def test_m108_a_client_completes_what_its_share_has_begun_with_qos_2() -> None:
    """It is resent to this client, and nobody else gets it."""
    bench = ClientBench()
    first, second = kept(5, bench, "first"), kept(5, bench, "second")
    for each in (first, second):
        each.acknowledges = False
        each.subscribe("$share/g/a", qos=2)
    connected(5, bench, "writer").publish("a", b"1", qos=2)
    begun = [(peer, each) for peer in (first, second) for each in peer.messages()]
    ((holder, message),) = begun
    other = second if holder is first else first
    holder.drop()
    assert other.messages() == []
    again = kept(5, bench, "first" if holder is first else "second")
    (found,) = again.messages()
    assert (found.payload, found.packet_id, found.dup) == (b"1", message.packet_id, True)
    assert other.messages() == []


@pytest.mark.parametrize("expiry_s", [0, 100])
def test_m108_what_a_session_has_begun_with_qos_2_goes_to_no_other_when_it_ends(expiry_s: int) -> None:
    bench = ClientBench()
    names = ("first", "second")
    peers = [Peer(bench).connect(name, session_expiry_interval=expiry_s) for name in names]
    for each in peers:
        each.acknowledges = False
        each.subscribe("$share/g/a", qos=2)
    connected(5, bench, "writer").publish("a", b"1", qos=2)
    (holder,) = [each for each in peers if each.messages()]
    holder.drop()
    bench.advance(expiry_s + 1)
    assert [each.messages() for each in peers if each is not holder] == [[]]
    queue = bench.queue("mqtt-shared-g:a")
    assert (queue.ready, queue.unsettled) == (0, 0)


def test_m109_a_message_that_one_of_a_share_refuses_is_discarded() -> None:
    bench = ClientBench()
    peers = [connected(5, bench, name) for name in ("first", "second")]
    for each in peers:
        each.acknowledges = False
        each.subscribe("$share/g/a", qos=2)
    writer = connected(5, bench, "writer")
    for qos, kind in ((1, of.PUBACK), (2, of.PUBREC)):
        writer.publish("a", b"1", qos=qos)
        ((holder, message),) = [(peer, each) for peer in peers for each in peer.messages()]
        holder.send(p.Ack(kind, message.packet_id, codes.UNSPECIFIED_ERROR))
        assert [each for peer in peers for each in peer.messages()] == []


# Authentication (section 4.12).


def test_m110_an_unknown_authentication_method() -> None:
    peer = Peer(ClientBench())
    peer.send(p.Connect(5, "me", properties=Properties(authentication_method="UNKNOWN")))
    peer.read()
    assert peer.connected is not None
    assert (peer.connected.reason_code, peer.front.closed) == (codes.BAD_AUTHENTICATION_METHOD, True)


SCRAM = '[protocols.mqtt]\nmechanisms = ["SCRAM-SHA-256", "PLAIN"]\n'


@pytest.mark.parametrize("password", [b"ann", b"wrong"])
def test_m111_an_authentication_of_several_steps(password: bytes) -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    scram(peer, password)
    assert peer.connected is not None
    if password == b"ann":
        assert peer.connected.properties.authentication_method == METHOD
    else:
        assert (peer.connected.reason_code >= 0x80, peer.front.closed) == (True, True)


def test_m112_no_auth_without_an_authentication_method() -> None:
    peer = connected()
    assert peer.connected is not None
    assert peer.connected.properties.authentication_method is None
    assert peer.taken(p.Auth) == []
    assert (
        refused(p.Auth(0x19, Properties(authentication_method="PLAIN")).encode(5).hex())
        == codes.PROTOCOL_ERROR
    )


@pytest.mark.parametrize(
    ("password", "method"), [(b"ann", "SCRAM-SHA-256"), (b"wrong", "SCRAM-SHA-256"), (b"", "PLAIN")]
)
def test_m113_a_client_authenticates_again_by_the_same_method(password: bytes, method: str) -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    scram(peer, b"ann")
    if method == "PLAIN":
        peer.send(p.Auth(0x19, Properties(authentication_method="PLAIN", authentication_data=b"\0ann\0ann")))
    else:
        answers = scram(peer, password, again=True)
        assert [each.reason_code for each in answers] == [0] * (password == b"ann")
    peer.read()
    assert peer.front.closed is (password != b"ann")
    assert (peer.disconnected is not None) is (password != b"ann")
