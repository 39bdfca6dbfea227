"""Whatever is written is read again, however its bytes are cut, and whichever way of the reader they take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader
from leveret.protocols.mqtt.codec.writer import acks, append_publish, topic_field
from tests.mqtt.samples import IDS, connects, messages, packets_of
from tests.mqtt.test_packets import taken

VERSIONS = st.sampled_from((4, 5))
sides = st.booleans()


@given(VERSIONS.flatmap(connects))
def test_a_connect_is_read_as_it_was_written(packet: p.Connect) -> None:
    reader = Reader()
    reader.push(packet.encode())
    assert taken(reader) == [packet]
    assert reader.version == packet.version


@given(st.data(), VERSIONS, sides)
def test_packets_are_read_as_they_were_written(data: st.DataObject, version: int, from_client: bool) -> None:
    packet = data.draw(packets_of(version, from_client))
    octets = packet.encode(version)
    size = 2 + (octets[1] > 0x7F) + (octets[1] > 0x7F and octets[2] > 0x7F)
    assert p.decode_packet(octets[0], octets[size:], version, from_client) == packet


@given(st.data(), VERSIONS, sides)
def test_every_split_of_the_bytes_gives_the_same_packets(
    data: st.DataObject, version: int, from_client: bool
) -> None:
    some = data.draw(st.lists(packets_of(version, from_client), max_size=6))
    octets = b"".join(packet.encode(version) for packet in some)
    whole = Reader(from_client=from_client, version=version)
    whole.push(octets)
    assert taken(whole) == some
    cuts = sorted(data.draw(st.sets(st.integers(0, len(octets)), max_size=12)))
    parts = Reader(from_client=from_client, version=version)
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        parts.push(octets[begin:end])
        if data.draw(st.booleans()):
            found += taken(parts)
    assert found + taken(parts) == some
    assert parts.waiting == whole.waiting == 0


@given(VERSIONS.flatmap(lambda version: st.tuples(st.just(version), st.lists(messages(version), min_size=1))))
def test_runs_have_what_the_packets_have(said: tuple[int, list[p.Publish]]) -> None:
    """A run is of one first byte, and as long as that does not change."""
    version, some = said
    reader = Reader(version=version)
    reader.push(b"".join(packet.encode(version) for packet in some))
    found: list[p.Publish] = []
    while (run := reader.take()) is not None:
        assert isinstance(run, PublishRun)
        packets = run.packets()
        assert packets == some[len(found) : len(found) + len(packets)]
        if run.is_alike:
            assert all(
                (each.topic, each.properties) == (packets[0].topic, packets[0].properties) for each in packets
            )
        found += packets
    assert found == some


@given(VERSIONS.flatmap(lambda version: st.tuples(st.just(version), messages(version))))
def test_both_ways_of_writing_a_publish_write_the_same(said: tuple[int, p.Publish]) -> None:
    version, packet = said
    out: list[bytes] = []
    properties = p.encode_properties(packet.properties) if version == 5 else b""
    octets = packet.encode(version)
    size = append_publish(
        out, octets[0], topic_field(packet.topic), packet.packet_id, properties, packet.payload
    )
    assert b"".join(out) == octets
    assert size == len(octets)


@given(st.sampled_from((0x40, 0x50, 0x62, 0x70)), st.lists(IDS, min_size=1, max_size=50), VERSIONS)
def test_acknowledgements_are_read_as_a_run(first: int, packet_ids: list[int], version: int) -> None:
    reader = Reader(version=version)
    reader.push(acks(first, packet_ids))
    run = reader.take()
    assert isinstance(run, AckRun)
    assert (run.kind, run.packet_ids) == (first >> 4, packet_ids)
    assert b"".join(each.encode(version) for each in run.packets()) == acks(first, packet_ids)
