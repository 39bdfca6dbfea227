"""The same over MQTT: whole loads of a node over real sockets, and what a broker may answer, in memory."""

from __future__ import annotations

import socket
from array import array

import pytest

from leveret.perf.connection import Inbox
from leveret.perf.ends import ENDLESS, Tally
from leveret.perf.errors import REFUSED, UNREACHABLE, PerfError
from leveret.perf.mqtt import ConnectionMqtt, acks, number_of, publish_pattern
from leveret.perf.plan import Plan, Url
from leveret.perf.shares import source, subscription
from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import reason_codes
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC, PUBREL
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader
from tests.interop.conftest import RunningNode, Start, wait_until
from tests.perf import test_loads
from tests.perf.conftest import Load
from tests.perf.test_loads import VERIFIED

SERVED = 'listeners = [{ address = "127.0.0.1:0", protocols = ["amqp091", "amqp10", "mqtt"] }]'


@pytest.fixture
def node(node_with: Start) -> RunningNode:
    return node_with(SERVED)


LOADS = (
    "",
    "--confirms 100 --ack-every 50",
    "--confirms 100 --ack-every 10 --qos 2",
    "--confirms 1 --prefetch 1 --ack-every 1",
    "--confirms 10",  # QoS 0 to the consumer
    "--ack-every 1",  # and from the publisher
    "--size 20-700 --confirms 100 --ack-every 7",
    "--size 100000,20,300000 --confirms 10 --ack-every 1",
    "--publishers 3 --consumers 2 --queues 5 --confirms 10 --ack-every 10",
    "--publishers 2 --consumers 4 --queues 2 --share all --confirms 10 --ack-every 1",
    "--rate 3000 --confirms 100",
    "--single-writes --confirms 100 --ack-every 1 --single-acks",
    "--think 0.0001 --prefetch 10 --ack-every 1 --confirms 10",
    "--persistent --confirms 100 --ack-every 10 --qos 2",
    "--keys a/%d/b --queues 3 --confirms 10 --ack-every 10",
)


@pytest.mark.interop
@pytest.mark.parametrize("version", ["mqtt", "mqtt5"])
@pytest.mark.parametrize("said", LOADS)
def test_all_that_is_sent_arrives_and_is_measured(load: Load, node: RunningNode, version: str, said: str):
    test_loads.assert_received(load, f"--protocol {version} --messages 300 --verify {said}", each=300)
    wait_until(lambda: node.queue_names() == [], "a clean session ends with its connection")


@pytest.mark.interop
def test_each_of_several_consumers_of_a_topic_gets_all_of_it(load: Load):
    told, code = load("--protocol mqtt --messages 100 --consumers 3 --confirms 10 --ack-every 10 --verify")
    assert (told["messages"]["received"], told["verified"], code) == (300, VERIFIED, 0)


@pytest.mark.interop
def test_filters_with_wildcards_match_many_topics(load: Load):
    said = "--keys devices/%d/out --key-count 8 --bind devices/+/out --messages 80 --drain 0.2 --confirms 10"
    told, _ = load(f"--protocol mqtt {said}")
    assert told["messages"]["received"] == 80


@pytest.mark.interop
def test_several_processes_do_it_together(load: Load):
    told, code = load("--protocol mqtt --messages 100 --processes 2 --confirms 50 --ack-every 5 --verify")
    assert (told["messages"]["received"], told["verified"], code) == (100, VERIFIED, 0)


@pytest.mark.interop
def test_sessions_that_are_kept_get_what_is_published_meanwhile(load: Load, node: RunningNode):
    kept = "--protocol mqtt --persistent --confirms 10 --ack-every 1 --keep"
    load(f"{kept} --messages 5")
    load("--protocol mqtt --messages 7 --consumers 0 --confirms 10")
    assert node.ready("mqtt-subscription-perf-consumer-0qos1") == 7
    told, _ = load(f"{kept} --publishers 0 --messages 7")
    assert told["messages"]["received"] == 7
    load("--protocol mqtt --persistent --messages 1 --delete --confirms 1")
    wait_until(lambda: node.queue_names() == [], "sessions that are not kept are ended")


def refusal(said: str) -> PerfError:
    return test_loads.refusal(f"--messages 1 {said}")


@pytest.mark.interop
def test_a_wrong_password(node: RunningNode):
    error = refusal(f"--protocol mqtt --url {node.url_with('wrong')}")
    assert error.code == UNREACHABLE
    assert "does not let us in" in error.text


@pytest.mark.interop
def test_a_virtual_host_that_is_not_there(node: RunningNode):
    error = refusal(f"--protocol mqtt5 --url {node.url.rpartition('/')[0]}/nowhere")
    assert (error.code, "does not let us in" in error.text) == (UNREACHABLE, True)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("--exchange amq.topic", "--keys"),
        ("--queue-type quorum", "neither exchanges nor queues"),
        ("--per-connection 2", "--per-connection"),
        ("--real", "AMQP"),
        ("--churn connections", "AMQP"),
        ("--confirms 65536", "65535"),
    ],
)
def test_what_mqtt_has_not_is_said_before_anything_is_done(said: str, reason: str):
    assert reason in refusal(f"--url mqtt://127.0.0.1:1 {said}").text


def test_a_url_says_the_protocol():
    assert "cannot be reached" in refusal("--url mqtt://127.0.0.1:1").text
    read = Url.read("mqtts://a:b@there/host")
    assert (read.port, read.tls, read.vhost, str(read)) == (8883, True, "host", "mqtts://a@there:8883")


# Packets.


class Accepted:
    """A client whose connection is accepted, with the broker's end as `broker`."""

    def __init__(self) -> None:
        self.socket, self.broker = socket.socketpair()
        self.buffer = b""
        self.receive_maximum = 65535

    def close(self) -> None:
        self.socket.close()
        self.broker.close()


@pytest.fixture
def accepted():
    made = Accepted()
    yield made
    made.close()


def plan(**said: object) -> Plan:
    url = Url("localhost", 1883, "guest", "guest", "/")
    return Plan(url, by_topic=True, **{"protocol": "mqtt", "confirms": 1000, **said})  # type: ignore[arg-type]


def publisher(accepted: Accepted, made: Plan) -> tuple[ConnectionMqtt, Tally]:
    tally = Tally(0)
    connection = ConnectionMqtt(accepted, made, Inbox(), tally)  # type: ignore[arg-type]
    connection.publisher = source(made, [publish_pattern(made, 0, "t", 100)], 8192, tally)
    connection.sources = [connection.publisher]
    return connection, tally


def take(connection: ConnectionMqtt, octets: bytes) -> int:
    return connection.take(bytearray(octets), len(octets), 9)


@pytest.mark.parametrize("protocol", ["mqtt", "mqtt5"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_block_is_packets_with_identifiers_in_turn(accepted: Accepted, protocol: str, qos: int):
    connection, _ = publisher(accepted, plan(protocol=protocol, qos=qos))
    end = connection.publisher
    assert end is not None
    end.sent = end.settled = end.low = 65_533
    octets = end.next(1)
    assert octets is not None
    reader = Reader(version=5 if protocol == "mqtt5" else 4)
    reader.push(bytes(octets))
    run = reader.take()
    assert isinstance(run, PublishRun)
    assert (run.qos, run.packet_ids[:4], run.topics[0], len(run.payloads[0])) == (
        qos,
        [65534, 65535, 1, 2],
        "t",
        100,
    )


@pytest.mark.parametrize("ids", [[1, 2, 3, 4], [2, 1, 4, 3], [4, 3, 2, 1]])
def test_acknowledgements_confirm_in_any_order(accepted: Accepted, ids: list[int]):
    connection, tally = publisher(accepted, plan())
    assert connection.publisher is not None
    connection.publisher.next(1)
    octets = acks(PUBACK << 4, array("H", ids))
    assert take(connection, octets + b"\x40\x02\0") == len(octets)  # the last one is not whole
    assert (tally.confirmed, connection.publisher.low) == (4, 4)


def test_identifiers_begin_again_behind_the_largest(accepted: Accepted):
    connection, tally = publisher(accepted, plan())
    end = connection.publisher
    assert end is not None
    end.sent = end.settled = end.low = 65_533
    end.next(1)
    take(connection, acks(PUBACK << 4, array("H", [65534, 65535, 1, 2])))
    assert (tally.confirmed, end.low) == (4, 65_537)
    assert number_of(2, 65_533) == 65_536


def test_a_message_of_qos_2_is_released_and_then_confirmed(accepted: Accepted):
    connection, tally = publisher(accepted, plan(qos=2))
    assert connection.publisher is not None
    connection.publisher.next(1)
    take(connection, acks(PUBREC << 4, array("H", [1, 2])))
    assert accepted.broker.recv(100) == acks(PUBREL << 4 | 2, array("H", [1, 2]))
    assert tally.confirmed == 0
    take(connection, acks(PUBCOMP << 4, array("H", [1, 2])))
    assert tally.confirmed == 2


def test_reason_codes_say_what_was_refused(accepted: Accepted):
    connection, tally = publisher(accepted, plan(protocol="mqtt5"))
    assert connection.publisher is not None
    connection.publisher.next(1)
    codes = (reason_codes.NO_MATCHING_SUBSCRIBERS, reason_codes.QUOTA_EXCEEDED)
    take(connection, b"".join(p.Ack(PUBACK, at + 1, code).encode(5) for at, code in enumerate(codes)))
    assert (tally.confirmed, tally.refused) == (1, 1)


@pytest.mark.parametrize("protocol", ["mqtt", "mqtt5"])
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_deliveries_are_acknowledged_by_their_identifiers(
    accepted: Accepted, protocol: str, qos: int, kind: int
):
    made = plan(protocol=protocol, ack_every=3)
    tally = Tally(0)
    connection = ConnectionMqtt(accepted, made, Inbox(), tally)  # type: ignore[arg-type]
    connection.subscriptions = {0: subscription(made, 0, tally, [])}
    stamp = (5).to_bytes(8, "little")
    sent = [p.Publish(f"t/{at}", stamp, qos, packet_id=7 + at) for at in range(3)]
    octets = b"".join(each.encode(5 if protocol == "mqtt5" else 4) for each in sent)
    assert take(connection, octets[:-1]) == 2 * (len(octets) // 3)
    assert take(connection, octets[2 * (len(octets) // 3) :]) == len(octets) // 3
    connection.acknowledge(0, connection.subscriptions[0])
    assert accepted.broker.recv(100) == acks(kind << 4, array("H", [7, 8, 9]))
    assert (tally.received, tally.delivery_times.count) == (3, 3)
    take(connection, acks(PUBREL << 4 | 2, array("H", [7])))
    reader = Reader(from_client=True, version=4)
    reader.push(accepted.broker.recv(100))
    taken = reader.take()
    assert isinstance(taken, AckRun)
    assert (taken.kind, taken.packet_ids) == (PUBCOMP, [7])


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (p.SubAck(1, (0x80,)).encode(4), "refuses a subscription"),
        (p.Connect(4, "x").encode(), "cannot be understood"),
        (b"\x30\xff\xff\xff\xff", "more than four bytes"),
    ],
)
def test_what_ends_a_load(accepted: Accepted, octets: bytes, why: str):
    connection, _ = publisher(accepted, plan())
    with pytest.raises(PerfError, match=why) as caught:
        take(connection, octets)
    assert caught.value.code == REFUSED


def test_a_broker_of_version_5_says_why_it_hangs_up(accepted: Accepted):
    connection, _ = publisher(accepted, plan(protocol="mqtt5"))
    with pytest.raises(PerfError, match="has ended the connection"):
        take(connection, p.Disconnect(reason_codes.SESSION_TAKEN_OVER).encode(5))


def test_a_window_is_all_that_is_on_its_way(accepted: Accepted):
    connection, _ = publisher(accepted, plan(confirms=3))
    assert connection.publisher is not None
    connection.publisher.next(1)
    assert connection.publisher.next(1) is None
    assert (connection.publisher.sent, connection.publisher.limit) == (3, ENDLESS)
