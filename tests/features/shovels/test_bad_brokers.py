"""What the ends of shovels and feeds do with a broker that sends what it should not: the shovel fails, and says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leveret.message import Message
from leveret.protocols.amqp091.broker.federation_ends import QueueFeed091
from leveret.protocols.amqp091.broker.shovel_ends import Destination091, Source091
from leveret.protocols.amqp091.codec import methods as m

BROKEN = b"\x20\x00\x00\x00\x00\x09\x01a"  # a header table that is longer than what there is
DELIVER = m.BasicDeliver("shovel", 1, False, "e", "k")
URI = SimpleNamespace(shown="amqp://there", virtual_host=None)


class Listener:
    """What a transfer is told by an end."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.arrivals: list[Message] = []

    def failed(self, reason: str) -> None:
        self.failures.append(reason)

    def arrived(self, message: Message) -> None:
        self.arrivals.append(message)


def end_of(kind: Any, *what: object) -> tuple[Any, Listener]:
    """Return an end without a connection, and its listener."""
    listener = Listener()
    journey = SimpleNamespace(
        broker=SimpleNamespace(operations=None), virtual_host_at=lambda uri: "/", title="shovel 's'"
    )
    return kind(*what, journey, URI, listener), listener


@pytest.mark.parametrize(("kind", "what"), [(Source091, ()), (QueueFeed091, (None,))])
def test_a_message_that_cannot_be_read_ends_it(kind: type, what: tuple[object, ...]) -> None:
    end, listener = end_of(kind, *what)
    end.on_content(m.BasicReturn(312, "NO_ROUTE", "", "q"), b"\x00\x00", b"")  # nobody has published
    assert not listener.failures
    end.on_content(DELIVER, BROKEN, b"body")
    (reason,) = listener.failures
    assert reason.startswith("amqp://there: a message cannot be published here: ")
    assert not listener.arrivals


@pytest.mark.parametrize(("kind", "what"), [(Source091, ()), (QueueFeed091, (None,))])
def test_a_source_that_is_deleted_ends_it(kind: type, what: tuple[object, ...]) -> None:
    end, listener = end_of(kind, *what)
    end.on_method(m.BasicCancel("shovel", True))
    (reason,) = listener.failures
    assert reason.endswith("queue has been deleted")


def test_a_refusal_of_several_messages_ends_it_since_it_is_not_known_of_which() -> None:
    end, listener = end_of(Destination091)
    end.on_method(m.BasicNack(3, True, False))
    assert listener.failures == ["amqp://there: the destination refuses messages"]


def test_an_end_that_is_closed_hears_nothing_more() -> None:
    for kind in (Source091, Destination091):
        end, listener = end_of(kind)
        end.close()
        end.on_content(DELIVER, BROKEN, b"")
        end.on_method(m.BasicNack(3, True, False))
        end.on_method(m.BasicNack(3, False, False))
        end.on_method(m.BasicAck(3, False))
        end.on_end("the connection broke off")
        end.pause() if kind is Source091 else end.publish(None)
        assert not listener.failures
        assert not listener.arrivals


def test_without_a_node_nothing_can_be_dialled() -> None:
    end, listener = end_of(Source091)
    end.open()
    assert listener.failures == ["this broker does not run in a node, and cannot connect to another"]
