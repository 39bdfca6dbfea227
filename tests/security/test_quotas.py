"""How much a node, a virtual host and a user may have: in every protocol, and in which words more is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.errors import TooMany
from broker_core.limits import UserLimits, VirtualHostLimits
from broker_core.node.assembly import _node_limits
from broker_core.outbox import Outbox
from protocols.amqp010.codec import commands as c
from protocols.amqp091.codec import methods as m
from protocols.http.server.adapter import ControlConnection
from tests.amqp010.client import ClientSession, SessionEnded
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import LOOPBACK, Peer, World
from tests.amqp10.peer import Peer as Peer10
from tests.amqp10.peer import told
from tests.amqp10.test_s14_management import Pair
from tests.http.desk import Response, basic

OF_NODE = "node connection limit (1) is reached"
OF_HOST = "access to vhost '/' refused for user 'guest': {}connection limit (1) is reached"
OF_USER = "connection refused for user 'guest': user connection limit (1) is reached"


def by_node(world: World) -> None:
    world.broker.node_limits = _node_limits(world.config)


def by_host(world: World) -> None:
    world.host.set_limits(VirtualHostLimits(max_connections=1))


def by_user(world: World) -> None:
    world.broker.access.add_user("guest", "guest", limits=UserLimits(max_connections=1))


def refused_091(world: World) -> str:
    peer = Peer(world)
    peer.log_in()
    peer.tune()
    return peer.closed_with(0, m.ConnectionOpen("/"))


def refused_10(world: World) -> str:
    return told(Peer10(world).log_in().ask_open().closed.error)


def refused_010(world: World) -> str:
    peer = Peer010(world)
    peer.greet()
    peer.control(c.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest"))
    peer.control(c.ConnectionTuneOk(max_frame_size=65535))
    peer.control(c.ConnectionOpen(virtual_host="/"))
    peer.read()
    assert peer.closed is not None
    return f"{peer.closed.reply_code} {peer.closed.reply_text}"


REFUSED: list[tuple[Callable[[World], str], str, str]] = [
    (refused_091, "530 NOT_ALLOWED - ", ""),
    (refused_10, "amqp:resource-limit-exceeded ", "vhost "),
    (refused_010, "320 ", ""),
]


@pytest.mark.parametrize(("refused", "code", "kind"), REFUSED)
@pytest.mark.parametrize(("limit", "words"), [(by_node, OF_NODE), (by_host, OF_HOST), (by_user, OF_USER)])
def test_one_connection_too_many_is_refused(
    limit: Callable[[World], None], words: str, refused: Callable[[World], str], code: str, kind: str
):
    world = World("[limits]\nconnections_max = 1")
    world.broker.node_limits = type(world.broker.node_limits)()
    limit(world)
    first = Peer(world).open()
    said = refused(world)
    assert said.startswith(code)
    assert said.endswith(words.format(kind))
    first.front.lost()
    assert Peer(world).open().front.client.host is world.host, "there is room again"


def channels(world: World, of_user: int | None, of_node: int | None) -> None:
    world.config = type(world.config)(limits=type(world.config.limits)(channels_max=of_node))
    world.broker.node_limits = _node_limits(world.config)
    world.broker.access.add_user("guest", "guest", limits=UserLimits(max_channels=of_user))


CHANNELS = [
    (1, None, "number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)"),
    (None, 1, "number of channels opened on the node has reached the maximum allowed limit of (1)"),
]


@pytest.mark.parametrize(("of_user", "of_node", "words"), CHANNELS)
def test_one_channel_too_many_is_refused_in_0_9_1(of_user: int | None, of_node: int | None, words: str):
    world = World()
    channels(world, of_user, of_node)
    Peer(world).open().channel()
    other = Peer(world).open()
    assert other.closed_with(1, m.ChannelOpen()) == f"530 NOT_ALLOWED - {words}"


@pytest.mark.parametrize(("of_user", "of_node", "words"), CHANNELS)
def test_one_session_too_many_is_refused_in_1_0(of_user: int | None, of_node: int | None, words: str):
    world = World()
    channels(world, of_user, of_node)
    Peer(world).open().channel()
    other = Peer10(world).open()
    session = other.ask_begin()
    ended = session.ended or other.closed
    assert ended is not None
    assert told(ended.error).endswith(words)


@pytest.mark.parametrize(("of_user", "of_node", "words"), CHANNELS)
def test_one_session_too_many_is_refused_in_0_10(of_user: int | None, of_node: int | None, words: str):
    """Where there is no word for it."""
    world = World()
    channels(world, of_user, of_node)
    first = Peer(world).open()
    first.channel()
    other = Peer010(world).open()
    refused = other.sessions[1] = ClientSession(other, 1, b"session")
    refused.control(c.SessionAttach(refused.name))
    other.read()
    assert refused.detached is not None
    assert refused.detached.code == c.DETACH_CODE_TRANSPORT_BUSY
    first.send(1, m.ChannelClose(200, "", 0, 0))
    assert Peer010(world).open().attach("session").attached


def test_one_queue_too_many_is_refused_in_every_protocol():
    world = World()
    world.host.set_limits(VirtualHostLimits(max_queues=1))
    channel = world.channel()
    channel.declare("one")
    words = "cannot declare queue 'two' in vhost '/': queue limit in vhost '/' (1) is reached"
    close = channel.call(m.QueueDeclare("two"))
    assert isinstance(close, m.ChannelClose)
    assert close.reply_text == f"PRECONDITION_FAILED - {words}"
    assert Pair(Peer10(world).open().begin()).ask("PUT", "/queues/two", {}) == (403, words)
    with pytest.raises(SessionEnded):
        Peer010(world).open().attach("session").declare("two")
    assert list(world.host.queues) == ["one"]


def test_one_virtual_host_too_many_is_refused_to_clients():
    world = World("[limits]\nvirtual_hosts_max = 1")
    world.broker.node_limits = _node_limits(world.config)
    world.broker.require_room("/")
    with pytest.raises(TooMany, match=r"cannot create vhost 'blue': vhost limit of 1 is reached"):
        world.broker.require_room("blue")


def test_one_virtual_host_too_many_is_refused_over_http():
    world = World("[limits]\nvirtual_hosts_max = 2")
    world.broker.node_limits = _node_limits(world.config)
    assert asked(world, "PUT", "/api/vhosts/blue") == 201
    assert asked(world, "PUT", "/api/vhosts/blue") == 204, "it is there"
    assert asked(world, "PUT", "/api/vhosts/red") == 400
    assert list(world.broker.virtual_hosts) == ["/", "blue"]


def asked(world: World, method: str, target: str) -> int:
    front = ControlConnection(world.broker, world.config, Outbox([]), LOOPBACK, world.broker.tick())
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('guest:guest')}\r\n\r\n"
    front.receive(head.encode(), world.broker.now)
    world.settle()
    return Response(b"".join(front.outbox.take()), method).status
