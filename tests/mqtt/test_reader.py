"""How the reader takes what comes: in runs of bounded length, without copying large payloads more than once."""

from __future__ import annotations

import tracemalloc

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import reader as module
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.properties import Properties
from leveret.protocols.mqtt.codec.reader import LARGE, RUN_MAX, AckRun, PublishRun, Reader
from leveret.protocols.mqtt.codec.values import encode_variable
from leveret.protocols.mqtt.codec.writer import SMALL_PAYLOAD_MAX, acks, append_publish, topic_field
from tests.harness.call_count import calls
from tests.harness.plain import plain_only
from tests.mqtt.test_packets import taken

MANY = 1000


def sizes(reader: Reader) -> list[int]:
    found = []
    while (run := reader.take()) is not None:
        assert isinstance(run, PublishRun | AckRun)
        found.append(len(run.packets()))
    return found


def test_a_run_has_a_bounded_number_of_packets() -> None:
    reader = Reader(version=4)
    reader.push(p.Publish("a").encode(4) * (RUN_MAX + 1))
    assert sizes(reader) == [RUN_MAX, 1]
    reader.push(acks(0x40, range(1, RUN_MAX + 2)))
    assert sizes(reader) == [RUN_MAX, 1]


def test_other_flags_begin_another_run() -> None:
    reader = Reader(version=4)
    reader.push(p.Publish("a").encode(4) * 2 + p.Publish("a", retain=True).encode(4) * 3)
    assert sizes(reader) == [2, 3]


def test_a_run_says_whether_its_packets_are_alike() -> None:
    properties = Properties(content_type="x")
    for others, is_alike in (
        ([p.Publish("a", b"2")], True),
        ([p.Publish("b")], False),
        ([p.Publish("a", properties=properties)], False),
        ([p.Publish("a"), p.Publish("b"), p.Publish("a")], False),
    ):
        reader = Reader(version=5)
        reader.push(b"".join(packet.encode(5) for packet in [p.Publish("a"), *others]))
        run = reader.take()
        assert isinstance(run, PublishRun)
        assert (len(run.payloads), run.is_alike) == (1 + len(others), is_alike)


def test_equal_topics_and_properties_are_one_object_each() -> None:
    reader = Reader(version=5)
    packet = p.Publish("a/b", properties=Properties(content_type="x", user_properties=(("a", "b"),)))
    reader.push(packet.encode(5) * 2)
    first = reader.take()
    reader.push(packet.encode(5))
    second = reader.take()
    assert isinstance(first, PublishRun)
    assert isinstance(second, PublishRun)
    assert first.topics[0] is first.topics[1] is second.topics[0]
    assert first.properties[0] is first.properties[1] is second.properties[0]


def test_what_is_remembered_is_bounded() -> None:
    reader = Reader(version=5)
    for number in range(3 * module.REMEMBERED_MAX):
        properties = Properties(correlation_data=str(number).encode())
        reader.push(p.Publish(f"t/{number}", properties=properties).encode(5))
        assert taken(reader) == [p.Publish(f"t/{number}", properties=properties)]
        assert len(reader._topics) <= module.REMEMBERED_MAX + 1
        assert len(reader._properties) <= module.REMEMBERED_MAX
    long = p.Publish("t" * 300, properties=Properties(content_type="c" * 300))
    known = len(reader._topics), len(reader._properties)
    reader.push(long.encode(5))
    assert taken(reader) == [long]
    assert (len(reader._topics), len(reader._properties)) == known


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("step", [1000, 4096, 65536, 10**6])
def test_a_large_payload_is_read_whatever_the_pieces(version: int, qos: int, step: int) -> None:
    payload = bytes(range(256)) * 1000
    properties = Properties(content_type="x") if version == 5 else Properties()
    large = p.Publish("a/b", payload, qos, True, bool(qos), 7 if qos else 0, properties)
    octets = p.PingReq().encode(version) + large.encode(version) + p.Publish("c").encode(version) * 2
    reader = Reader(version=version)
    found = []
    for at in range(0, len(octets), step):
        reader.push(octets[at : at + step])
        found += taken(reader)
    assert found == [p.PingReq(), large, p.Publish("c"), p.Publish("c")]
    assert reader.waiting == 0


def test_a_large_packet_of_another_kind_is_read_from_pieces() -> None:
    packet = p.Subscribe(1, tuple(p.Subscription(f"{number}/#") for number in range(3000)))
    octets = packet.encode(4)
    assert len(octets) > LARGE
    reader = Reader(version=4)
    for at in range(0, len(octets), 1000):
        assert taken(reader) == []
        reader.push(octets[at : at + 1000])
    assert taken(reader) == [packet]


def test_a_large_publish_whose_topic_is_in_pieces_is_read() -> None:
    packet = p.Publish("t" * 60_000, b"x" * 60_000, 1, packet_id=5)
    octets = packet.encode(5)
    reader = Reader(version=5)
    for at in range(0, len(octets), 5000):
        reader.push(octets[at : at + 5000])
        if at + 5000 < len(octets):
            assert taken(reader) == []
    assert taken(reader) == [packet]


def test_a_wrong_large_publish_is_refused() -> None:
    octets = p.Publish("a", b"x" * 50_000).encode(5).replace(b"\x00\x01a\x00", b"\x00\x01#\x00")
    reader = Reader(version=5)
    reader.push(octets[:1000])
    assert reader.take() is None
    reader.push(octets[1000:])
    with pytest.raises(MqttError):
        reader.take()


def test_a_large_payload_takes_its_size_twice_while_it_is_joined() -> None:
    """Its pieces, and itself."""
    size, step = 8 << 20, 65536
    start = p.Publish("a", b"").encode(5)[2:]
    reader = Reader(version=5)
    reader.push(b"\x30" + encode_variable(len(start) + size) + start)
    assert reader.take() is None
    tracemalloc.start()
    try:
        for _ in range(0, size, step):
            reader.push(bytes(step))
            run = reader.take()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(run, PublishRun)
    assert len(run.payloads[0]) == size
    assert peak < 2.1 * size


def test_input_that_waits_is_not_joined_again_for_each_packet() -> None:
    """A reader that is halted after each run has more pushed meanwhile."""
    reader = Reader(version=4)
    batch = p.Publish("a").encode(4) + p.Publish("a", retain=True).encode(4)
    for _ in range(MANY):
        reader.push(batch)
    assert reader.take() is not None
    data = reader._data
    reader.push(batch)
    assert reader.take() is not None
    assert reader._data is data
    assert len(taken(reader)) == 2 * (MANY + 1) - 2


@plain_only
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [4, 5])
def test_many_publishes_of_one_read_take_no_call_each(version: int, qos: int) -> None:
    reader = Reader(version=version)
    octets = b"".join(
        p.Publish("a/b", b"x", qos, packet_id=qos * at).encode(version) for at in range(1, MANY + 1)
    )

    def read() -> None:
        reader.push(octets)
        while reader.take() is not None:
            pass

    read()
    assert calls(read).total() <= 12


@plain_only
def test_many_topics_take_a_call_each_the_first_time_only() -> None:
    reader = Reader(version=5)
    octets = b"".join(p.Publish(f"a/{at}", b"x").encode(5) for at in range(MANY))

    def read() -> None:
        reader.push(octets)
        while reader.take() is not None:
            pass

    assert calls(read).total() <= 12 + 3 * MANY
    assert calls(read).total() <= 12


@plain_only
def test_many_acknowledgements_of_one_read_take_no_call_each() -> None:
    reader = Reader(version=5)
    octets = acks(0x40, range(1, MANY + 1))

    def read() -> None:
        reader.push(octets)
        while reader.take() is not None:
            pass

    assert calls(read).total() <= 12


@plain_only
def test_a_publish_is_written_in_one_call() -> None:
    topic, out = topic_field("a/b"), []

    def write() -> None:
        append_publish(out, 0x32, topic, 7, b"\0", b"payload")

    assert calls(write).total() <= 2


@plain_only
def test_pieces_of_a_packet_take_a_few_calls_each() -> None:
    """The first bytes are not read again for each of them."""
    octets = p.Publish("a", b"x" * 1_000_000).encode(5)
    reader = Reader(version=5)

    def read() -> None:
        for at in range(0, len(octets), 1000):
            reader.push(octets[at : at + 1000])
            reader.take()

    assert calls(read).total() <= 4 * 1001 + 40


def test_a_large_payload_is_written_without_a_copy() -> None:
    payload = b"x" * (SMALL_PAYLOAD_MAX + 1)
    out: list[bytes] = []
    append_publish(out, 0x30, topic_field("a"), 0, b"\0", payload)
    assert out[-1] is payload
    assert b"".join(out) == p.Publish("a", payload).encode(5)
