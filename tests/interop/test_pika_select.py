"""pika's SelectConnection: callbacks all the way."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest
from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel

from tests.interop.conftest import TIMEOUT_S, RunningNode

pytestmark = pytest.mark.interop


def run(node: RunningNode, on_channel: Callable[[Channel], None], **settings: object) -> list[Exception]:
    """Open a connection and a channel, hand it over, and run until the connection is closed. Returns the reasons."""
    reasons: list[Exception] = []

    def on_closed(connection: SelectConnection, reason: Exception) -> None:
        reasons.append(reason)
        connection.ioloop.stop()

    connection = SelectConnection(
        pika.ConnectionParameters("127.0.0.1", node.port, **settings),
        on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
        on_open_error_callback=on_closed,
        on_close_callback=on_closed,
    )
    connection.ioloop.call_later(TIMEOUT_S, connection.ioloop.stop)
    connection.ioloop.start()
    connection.ioloop.close()
    assert reasons, "the connection was never closed"
    return reasons


def test_declare_bind_publish_confirm_consume_and_ack_by_callbacks(node: RunningNode):
    story: list[object] = []

    def on_channel(channel: Channel) -> None:
        def on_confirm(frame) -> None:
            story.append(frame.method.NAME)
            channel.basic_qos(prefetch_count=10, callback=on_qos)

        def on_qos(frame) -> None:
            channel.basic_consume("q", on_message)

        def on_message(channel: Channel, method, properties, body: bytes) -> None:
            story.append((method.exchange, method.routing_key, body))
            channel.basic_ack(method.delivery_tag)
            channel.basic_cancel(method.consumer_tag, on_cancelled)

        def on_cancelled(frame) -> None:
            story.append(frame.method.NAME)
            channel.connection.close()

        channel.queue_declare("q", callback=None)
        channel.queue_bind("q", "amq.topic", "a.#", callback=None)
        channel.confirm_delivery(on_confirm, lambda frame: None)
        channel.basic_publish("amq.topic", "a.b", b"hello")

    (reason,) = run(node, on_channel)
    assert story == ["Basic.Ack", ("amq.topic", "a.b", b"hello"), "Basic.CancelOk"]
    assert (reason.reply_code, node.ready("q"), node.unsettled("q")) == (200, 0, 0)


def test_pipelined_publishes_are_confirmed_together(node: RunningNode):
    """Most acks say `multiple`: the broker answers once for what it read at once."""
    acks: list[tuple[int, bool]] = []

    def on_channel(channel: Channel) -> None:
        def on_confirm(frame) -> None:
            acks.append((frame.method.delivery_tag, frame.method.multiple))
            if frame.method.delivery_tag == 1000:
                channel.connection.close()

        channel.queue_declare("q", callback=None)
        channel.confirm_delivery(on_confirm, lambda frame: None)
        for number in range(1000):
            channel.basic_publish("", "q", str(number).encode())

    run(node, on_channel)
    assert node.ready("q") == 1000
    assert acks[-1][0] == 1000
    assert len(acks) < 1000


def test_channels_are_independent(node: RunningNode):
    """One channel fails; its sister on the same connection goes on."""
    story: list[str] = []

    def on_channel(first: Channel) -> None:
        def on_first_closed(channel: Channel, reason: Exception) -> None:
            story.append(f"first closed: {reason.reply_code}")
            first.connection.channel(on_open_callback=on_second)

        def on_second(second: Channel) -> None:
            second.queue_declare("q", callback=lambda frame: on_declared(second))

        def on_declared(second: Channel) -> None:
            story.append("second declared")
            second.connection.close()

        first.add_on_close_callback(on_first_closed)
        first.queue_declare("missing", passive=True)

    run(node, on_channel)
    assert story == ["first closed: 404", "second declared"]


def test_blocked_and_unblocked_reach_the_callbacks(node: RunningNode):
    story: list[str] = []

    def on_channel(channel: Channel) -> None:
        def on_blocked(connection: SelectConnection, frame) -> None:
            story.append(frame.method.reason)
            node.clear_alarm("low on disk")

        def on_unblocked(connection: SelectConnection, frame) -> None:
            story.append("unblocked")
            connection.close()

        channel.connection.add_on_connection_blocked_callback(on_blocked)
        channel.connection.add_on_connection_unblocked_callback(on_unblocked)
        node.raise_alarm("low on disk")
        channel.basic_publish("", "nowhere", b"")

    run(node, on_channel)
    assert story == ["low on disk", "unblocked"]


def test_the_broker_closes_and_says_why(node: RunningNode):
    (reason,) = run(node, lambda channel: channel.basic_qos(prefetch_size=10))
    assert (reason.reply_code, reason.reply_text) == (540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)")


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "heartbeat"), [(1, 4096, 0), (65535, 131_072, 3), (7, 9000, 60)]
)
def test_limits_are_negotiated(node: RunningNode, channel_max: int, frame_max: int, heartbeat: int):
    body = b"x" * 50_000
    story: list[object] = []

    def on_channel(channel: Channel) -> None:
        def on_message(channel: Channel, method, properties, body: bytes) -> None:
            parameters = channel.connection.params
            story.append((parameters.channel_max, parameters.frame_max, parameters.heartbeat, body))
            channel.connection.close()

        channel.queue_declare("q", exclusive=True, callback=None)
        channel.basic_publish("", "q", body)
        channel.basic_consume("q", on_message, auto_ack=True)

    run(node, on_channel, channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
    assert story == [(min(channel_max, 2047), frame_max, heartbeat, body)]
