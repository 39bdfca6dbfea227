"""The ways in which a client goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from leveret.protocols.amqp091.codec import methods as m

from .peer import ClientChannel

Step: TypeAlias = Callable[[ClientChannel], None]


def close_channel(channel: ClientChannel) -> None:
    channel.does(m.ChannelClose())


def close_connection(channel: ClientChannel) -> None:
    channel.peer.call(0, m.ConnectionClose())


def lose_connection(channel: ClientChannel) -> None:
    channel.peer.drop()
