"""Wills: published for a client that is lost, after their delay, and not for one that says goodbye."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec.packets import Will
from leveret.protocols.mqtt.codec.properties import Properties
from tests.harness.bench import ClientBench, StoredBench
from tests.mqtt.peer import Peer


def will(delay_s: int | None = None, **said: object) -> Will:
    properties = Properties(will_delay_interval=delay_s, content_type="text/plain")
    return Will("gone", b"me", 1, properties=properties, **said)  # type: ignore[arg-type]


def reader_of(bench: ClientBench) -> Peer:
    reader = Peer(bench).connect("reader")
    reader.subscribe("gone", qos=1)
    return reader


def test_a_lost_client_has_its_will_published() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will()).drop()
    (found,) = reader.messages()
    assert (found.payload, found.qos, found.properties.content_type) == (b"me", 1, "text/plain")


@pytest.mark.parametrize(("code", "count"), [(0x00, 0), (0x04, 1)])
def test_a_goodbye_decides(code: int, count: int) -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will()).leave(code)
    assert len(reader.messages()) == count


def test_a_will_waits_for_its_delay() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will(10), session_expiry_interval=100).drop()
    bench.advance(9)
    assert reader.messages() == []
    bench.advance(2)
    assert reader.payloads() == [b"me"]


def test_the_delay_ends_with_the_session() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will(10), session_expiry_interval=5).drop()
    bench.advance(6)
    assert reader.payloads() == [b"me"]
    bench.advance(10)
    assert reader.messages() == []


def test_a_client_that_comes_back_in_time_has_no_will_published() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will(10), session_expiry_interval=100).drop()
    Peer(bench).connect("me", clean=False, session_expiry_interval=100)
    bench.advance(20)
    assert reader.messages() == []


def test_a_session_that_is_taken_over_has_its_will_published_unless_it_is_delayed() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will(), session_expiry_interval=100)
    Peer(bench).connect("me", clean=False, will=will(10), session_expiry_interval=100)
    assert reader.payloads() == [b"me"]
    Peer(bench).connect("me", clean=False, session_expiry_interval=100)
    bench.advance(20)
    assert reader.messages() == []


def test_a_clean_start_publishes_the_will_at_once() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    Peer(bench).connect("me", will=will(10), session_expiry_interval=100).drop()
    Peer(bench).connect("me", clean=True)
    assert reader.payloads() == [b"me"]


def test_a_silent_client_has_its_will_published() -> None:
    bench = ClientBench()
    reader = reader_of(bench)
    peer = Peer(bench).connect("me", keep_alive=10, will=will())
    bench.advance(14)
    assert not peer.front.closed
    bench.advance(2)
    assert peer.front.closed
    assert reader.payloads() == [b"me"]


def test_a_will_outlives_the_node_with_its_session() -> None:
    bench = StoredBench()
    Peer(bench).connect("me", will=will(10), session_expiry_interval=100)
    after = bench.again()
    reader = reader_of(after)
    after.advance(11)
    (found,) = reader.messages()
    assert (found.payload, found.properties.content_type) == (b"me", "text/plain")


def test_a_will_is_retained_if_it_asks_for_it() -> None:
    bench = ClientBench()
    Peer(bench).connect("me", will=will(retain=True)).drop()
    (found,) = reader_of(bench).messages()
    assert found.retain


def test_a_will_without_permission_is_not_published() -> None:
    bench = ClientBench()
    bench.user("eve", write="mqtt.*")
    reader = reader_of(bench)
    Peer(bench).connect("me", user="eve", password=b"eve", will=will()).drop()
    assert reader.messages() == []


@pytest.mark.parametrize("delay_s", [None, 5])
def test_topic_permissions_of_a_will_know_the_client_id(delay_s: int | None) -> None:
    bench = ClientBench()
    bench.user("eve")
    bench.broker.access.set_topic_permissions("eve", "/", "amq.topic", "^{client_id}$", ".*")
    reader = Peer(bench).connect("reader")
    reader.subscribe("+", qos=1)
    properties = Properties(will_delay_interval=delay_s)
    for topic in ("d1", "d2"):
        said = Will(topic, b"x", 1, properties=properties)
        Peer(bench).connect("d1", user="eve", password=b"eve", will=said, session_expiry_interval=9).drop()
        bench.advance(20)
    assert [each.topic for each in reader.messages()] == ["d1"]
