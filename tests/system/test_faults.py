"""Faults that tests ask for, and time that they drive: `LeveretBroker.faults` and `.clock`, with pika over sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pika.exceptions
import pytest

import leveret.broker
from leveret.server.node.threaded import ThreadedNode
from leveret.testing.leveret_broker import LeveretBroker, fresh_broker
from tests.harness.plain import plain_only

pytestmark = pytest.mark.system

Channel = pika.adapters.blocking_connection.BlockingChannel


@contextmanager
def connected(broker: LeveretBroker, name: str = "") -> Iterator[Channel]:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": name}
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(leveret_broker: LeveretBroker) -> Iterator[Channel]:
    """With confirms, and a queue `q`."""
    with connected(leveret_broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("q")
        yield channel


def publish(channel: Channel, *bodies: bytes, queue: str = "q") -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def bodies(broker: LeveretBroker, queue: str = "q") -> list[bytes]:
    return [message.body for message in broker.queue(queue)]


def test_a_message_that_is_dropped_is_confirmed_and_nowhere(leveret_broker: LeveretBroker, channel: Channel):
    fault = leveret_broker.faults.drop(queue="q", after=1, count=1)
    publish(channel, b"1", b"2", b"3")
    assert bodies(leveret_broker) == [b"1", b"3"]
    assert fault.hits == 1


def test_a_consumer_does_not_get_what_is_dropped(leveret_broker: LeveretBroker, channel: Channel):
    leveret_broker.faults.drop(queue="q", count=1)
    got: list[bytes] = []
    channel.basic_consume("q", lambda channel, method, properties, body: got.append(body), auto_ack=True)
    publish(channel, b"1", b"2")
    channel.connection.process_data_events(0)
    assert got == [b"2"]


def test_a_message_that_is_duplicated_arrives_twice(leveret_broker: LeveretBroker, channel: Channel):
    leveret_broker.faults.duplicate(exchange="", count=1)
    publish(channel, b"1", b"2")
    assert bodies(leveret_broker) == [b"1", b"1", b"2"]


def test_only_messages_of_the_exchange_and_the_connection_that_are_named_meet_a_fault(
    leveret_broker: LeveretBroker, channel: Channel
):
    leveret_broker.faults.drop(exchange="amq.fanout")
    leveret_broker.faults.duplicate(connection="till")
    publish(channel, b"1")
    with connected(leveret_broker, "till") as till:
        till.queue_bind("q", "amq.fanout")
        till.confirm_delivery()
        publish(till, b"2")
    channel.basic_publish("amq.fanout", "", b"3")
    assert bodies(leveret_broker) == [b"1", b"2", b"2"]


def test_a_message_that_is_refused_is_nacked(leveret_broker: LeveretBroker, channel: Channel):
    leveret_broker.faults.nack(queue="q", after=1)
    channel.queue_declare("other")
    publish(channel, b"1")
    with pytest.raises(pika.exceptions.NackError):
        publish(channel, b"2")
    publish(channel, b"3", queue="other")
    assert bodies(leveret_broker) == [b"1"]


def test_a_message_that_is_delayed_arrives_when_its_time_has_come(
    leveret_broker: LeveretBroker, channel: Channel
):
    leveret_broker.faults.delay(3600, queue="q", count=1)
    publish(channel, b"late", b"now")
    assert channel.basic_get("q", auto_ack=True)[2] == b"now"
    leveret_broker.clock.advance(3599)
    assert channel.basic_get("q", auto_ack=True)[2] is None
    leveret_broker.clock.advance(10)
    assert channel.basic_get("q", auto_ack=True)[2] == b"late"


def test_a_confirm_that_is_dropped_is_not_sent_and_the_message_is_there(leveret_broker: LeveretBroker):
    confirmed: list[int] = []
    fault = leveret_broker.faults.drop_confirm(queue="q", after=2)
    with connected(leveret_broker) as channel:
        channel.queue_declare("q")
        impl = channel._impl  # pika's blocking channel waits for each confirm
        impl.confirm_delivery(lambda frame: confirmed.append(frame.method.delivery_tag))
        channel.connection.process_data_events(0.1)
        for number in range(4):
            impl.basic_publish("", "q", b"%d" % number)
        until_quiet(channel)
        assert len(leveret_broker.queue("q", count=4)) == 4
        until_quiet(channel)
        assert confirmed[-1] == 2
        fault.clear()
        until_quiet(channel)
        assert confirmed[-1] == 4
    assert fault.hits == 2


def until_quiet(channel: Channel) -> None:
    for _ in range(3):
        channel.connection.process_data_events(0.05)


@plain_only
def test_connections_whose_turns_are_over_go_on_while_there_are_faults(
    leveret_broker: LeveretBroker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leveret.broker, "TURN_S", -1.0)
    leveret_broker.faults.disconnect(queue="another")
    with connected(leveret_broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("q")
        publish(channel, b"1")
        publish(channel, b"2")
    assert bodies(leveret_broker) == [b"1", b"2"]


def test_a_connection_is_cut_after_its_message_and_before_the_confirm(leveret_broker: LeveretBroker):
    leveret_broker.faults.disconnect(queue="q", after=1)
    with connected(leveret_broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("q")
        publish(channel, b"1")
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            publish(channel, b"2")
    assert bodies(leveret_broker) == [b"1", b"2"]


def test_connections_are_refused_as_often_as_asked(leveret_broker: LeveretBroker):
    fault = leveret_broker.faults.refuse(count=1)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(leveret_broker.parameters)
    with connected(leveret_broker):
        assert fault.hits == 1


def test_of_two_faults_that_refuse_connections_one_goes_on_when_the_other_is_cleared(
    leveret_broker: LeveretBroker,
):
    first, second = (leveret_broker.faults.refuse() for _ in range(2))
    first.clear()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(leveret_broker.parameters)
    assert (first.hits, second.hits) == (0, 1)
    second.clear()
    with connected(leveret_broker):
        pass


def test_a_connection_that_is_blocked_is_not_read_from_until_the_fault_is_cleared(
    leveret_broker: LeveretBroker,
):
    with connected(leveret_broker, "shop") as channel, connected(leveret_broker, "other") as other:
        channel.queue_declare("q")
        with leveret_broker.faults.block(connection="shop"):
            publish(channel, b"late")
            channel.connection.process_data_events(0)
            publish(other, b"first")
            assert len(leveret_broker.queue("q", count=1)) == 1
        assert [each.body for each in leveret_broker.queue("q", count=2)] == [b"first", b"late"]


def test_a_slow_network_delays_what_is_sent(leveret_broker: LeveretBroker, channel: Channel):
    leveret_broker.faults.delay_connection(0.05)
    begun = time.monotonic()
    publish(channel, b"1", b"2")
    assert time.monotonic() - begun >= 0.1
    assert bodies(leveret_broker) == [b"1", b"2"]


def test_connections_are_cut_by_name(leveret_broker: LeveretBroker):
    with connected(leveret_broker, "shop") as shop, connected(leveret_broker, "other") as other:
        assert leveret_broker.faults.cut(connection="shop") == 1
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            shop.queue_declare("q")
        other.queue_declare("q")


@pytest.mark.parametrize("name", ["fill_disk", "fill_memory"])
def test_publishers_are_held_back_while_a_disk_or_the_memory_is_full(
    leveret_broker: LeveretBroker, name: str
):
    blocked: list[bool] = []
    with connected(leveret_broker) as channel:
        channel.connection.add_on_connection_blocked_callback(lambda *_: blocked.append(True))
        channel.connection.add_on_connection_unblocked_callback(lambda *_: blocked.append(False))
        channel.queue_declare("q")
        with getattr(leveret_broker.faults, name)():
            publish(channel, b"1")
            until_quiet(channel)
            assert blocked == [True]
        until_quiet(channel)
        assert blocked == [True, False]


def test_a_probability_with_a_seed_strikes_at_the_same_messages_each_time(
    leveret_broker: LeveretBroker, channel
):
    found = []
    for _ in range(2):
        with leveret_broker.faults.drop(queue="q", probability=0.5, seed=7) as fault:
            publish(channel, *(b"%d" % number for number in range(20)))
        found.append(bodies(leveret_broker))
        assert fault.hits == 20 - len(found[-1])
        channel.queue_purge("q")
    assert found[0] == found[1]
    assert 0 < len(found[0]) < 20


def test_a_ttl_of_an_hour_passes_at_once_and_connections_live_on(leveret_broker: LeveretBroker):
    with connected(leveret_broker) as channel:
        channel.queue_declare("dead")
        arguments = {
            "x-message-ttl": 3_600_000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
        channel.queue_declare("q", arguments=arguments)
        publish(channel, b"x")
        leveret_broker.clock.advance(3590)
        assert leveret_broker.queue("dead") == []
        leveret_broker.clock.advance(20)
        assert bodies(leveret_broker, "dead") == [b"x"]
        assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_retries_in_a_row_pass_within_one_jump(leveret_broker: LeveretBroker):
    """A dead letter of one queue expires in the next, and so on: each at its own time."""
    with connected(leveret_broker) as channel:
        channel.queue_declare("0")
        for number in (1, 2, 3):
            arguments = {
                "x-message-ttl": 600_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": str(number - 1),
            }
            channel.queue_declare(str(number), arguments=arguments)
        publish(channel, b"x", queue="3")
        leveret_broker.clock.advance(1900)
        assert bodies(leveret_broker, "0") == [b"x"]


def test_messages_over_amqp_1_0_meet_the_same_faults(leveret_broker: LeveretBroker):
    """Refused, duplicated, and cut off with a message that is there."""
    proton = pytest.importorskip("proton")
    utils = pytest.importorskip("proton.utils")
    with connected(leveret_broker) as channel:
        channel.queue_declare("q")
    url = f"amqp://{leveret_broker.host}:{leveret_broker.port}"
    user = leveret_broker.user
    client = utils.BlockingConnection(
        url, timeout=5, user=user, password=user, allowed_mechs="PLAIN", virtual_host=f"vhost:{user}"
    )
    sender = client.create_sender("/queues/q")
    leveret_broker.faults.nack(queue="q", count=1)
    leveret_broker.faults.duplicate(queue="q", after=1, count=1)
    leveret_broker.faults.disconnect(queue="q", after=2)
    with pytest.raises(utils.SendException):
        sender.send(proton.Message("refused"))
    sender.send(proton.Message("twice"))
    with pytest.raises(proton.ConnectionException):
        sender.send(proton.Message("cut off"))
    assert len(leveret_broker.queue("q")) == 3


def test_nothing_is_left_in_the_node_after_the_last_fault(leveret_broker: LeveretBroker, channel: Channel):
    """Neither a message nor a byte takes another way than without faults."""
    node, broker = leveret_broker.node.node, leveret_broker.node.node.broker
    leveret_broker.faults.drop(queue="q")
    assert broker.interceptors is not None
    leveret_broker.faults.clear()
    assert broker.interceptors is None
    assert "hear" not in vars(node)
    host = broker.virtual_host(leveret_broker.virtual_host)
    assert not any(exchange.prepares for exchange in host.exchanges.values())


def test_faults_end_with_their_broker_and_do_not_concern_others(leveret_node, leveret_broker: LeveretBroker):
    with fresh_broker(leveret_node) as other:
        other.faults.nack()
        other.faults.refuse()
        with connected(leveret_broker) as channel:
            channel.confirm_delivery()
            channel.queue_declare("q")
            publish(channel, b"1")
    assert leveret_node.node.broker.interceptors is None


def test_a_node_that_is_not_for_tests_has_neither_faults_nor_time(leveret_broker: LeveretBroker):
    with ThreadedNode() as node, fresh_broker(node) as broker:
        with pytest.raises(RuntimeError, match="DrivenNode"):
            _ = broker.faults
        with pytest.raises(RuntimeError, match="DrivenNode"):
            _ = broker.clock


@pytest.mark.parametrize(
    "wrong", [{"after": -1}, {"count": -1}, {"probability": 1.5}, {"probability": -0.1}], ids=str
)
def test_numbers_that_make_no_sense_are_refused(leveret_broker: LeveretBroker, wrong):
    with pytest.raises(ValueError, match=r"is|are"):
        leveret_broker.faults.drop(**wrong)
    with pytest.raises(ValueError, match="a delay is 0 seconds or more"):
        leveret_broker.faults.delay(-1.0)
    with pytest.raises(ValueError, match="time"):
        leveret_broker.clock.advance(-1)
