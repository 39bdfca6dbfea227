"""How much a node, a virtual host and a user may have: in every protocol, and in which words more is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.errors import TooMany
from leveret.limits import UserLimits, VirtualHostLimits
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.server.node.assembly import _node_limits
from tests.amqp010.client import ClientSession, SessionEnded
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer, channel_of
from tests.amqp10.parts import told
from tests.amqp10.peer import Peer as Peer10
from tests.amqp10.test_s14_management import Pair
from tests.harness.bench import ClientBench
from tests.harness.http import Line
from tests.harness.peer import LOOPBACK

OF_NODE = "node connection limit (1) is reached"
OF_HOST = "access to vhost '/' refused for user 'guest': {}connection limit (1) is reached"
OF_USER = "connection refused for user 'guest': user connection limit (1) is reached"


def by_node(bench: ClientBench) -> None:
    bench.broker.node_limits = _node_limits(bench.config)


def by_host(bench: ClientBench) -> None:
    bench.host.set_limits(VirtualHostLimits(max_connections=1))


def by_user(bench: ClientBench) -> None:
    bench.broker.access.add_user("guest", "guest", limits=UserLimits(max_connections=1))


def refused_091(bench: ClientBench) -> str:
    peer = Peer(bench)
    peer.log_in()
    peer.tune()
    return peer.closed_with(0, m.ConnectionOpen("/"))


def refused_10(bench: ClientBench) -> str:
    return told(Peer10(bench).log_in().ask_open().closed.error)


def refused_010(bench: ClientBench) -> str:
    peer = Peer010(bench)
    peer.greet()
    peer.control(c.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest"))
    peer.control(c.ConnectionTuneOk(max_frame_size=65535))
    peer.control(c.ConnectionOpen(virtual_host="/"))
    peer.read()
    assert peer.closed is not None
    return f"{peer.closed.reply_code} {peer.closed.reply_text}"


REFUSED: list[tuple[Callable[[ClientBench], str], str, str]] = [
    (refused_091, "530 NOT_ALLOWED - ", ""),
    (refused_10, "amqp:resource-limit-exceeded ", "vhost "),
    (refused_010, "320 ", ""),
]


@pytest.mark.parametrize(("refused", "code", "kind"), REFUSED)
@pytest.mark.parametrize(("limit", "words"), [(by_node, OF_NODE), (by_host, OF_HOST), (by_user, OF_USER)])
def test_one_connection_too_many_is_refused(
    limit: Callable[[ClientBench], None],
    words: str,
    refused: Callable[[ClientBench], str],
    code: str,
    kind: str,
):
    bench = ClientBench('compat.refused_open = "close"\n[limits]\nconnections_max = 1')
    bench.broker.node_limits = type(bench.broker.node_limits)()
    limit(bench)
    first = Peer(bench).open()
    said = refused(bench)
    assert said.startswith(code)
    assert said.endswith(words.format(kind))
    first.front.lost()
    assert Peer(bench).open().front.client.host is bench.host, "there is room again"


def channels(bench: ClientBench, of_user: int | None, of_node: int | None) -> None:
    bench.config = type(bench.config)(limits=type(bench.config.limits)(channels_max=of_node))
    bench.broker.node_limits = _node_limits(bench.config)
    bench.broker.access.add_user("guest", "guest", limits=UserLimits(max_channels=of_user))


CHANNELS = [
    (1, None, "number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)"),
    (None, 1, "number of channels opened on the node has reached the maximum allowed limit of (1)"),
]


@pytest.mark.parametrize(("of_user", "of_node", "words"), CHANNELS)
def test_one_channel_too_many_is_refused_in_0_9_1(of_user: int | None, of_node: int | None, words: str):
    bench = ClientBench()
    channels(bench, of_user, of_node)
    Peer(bench).open().channel()
    other = Peer(bench).open()
    assert other.closed_with(1, m.ChannelOpen()) == f"530 NOT_ALLOWED - {words}"


@pytest.mark.parametrize(("of_user", "of_node", "words"), CHANNELS)
def test_one_session_too_many_is_refused_in_1_0(of_user: int | None, of_node: int | None, words: str):
    bench = ClientBench()
    channels(bench, of_user, of_node)
    Peer(bench).open().channel()
    other = Peer10(bench).open()
    session = other.ask_begin()
    ended = session.ended or other.closed
    assert ended is not None
    assert told(ended.error).endswith(words)


@pytest.mark.parametrize(("of_user", "of_node", "words"), CHANNELS)
def test_one_session_too_many_is_refused_in_0_10(of_user: int | None, of_node: int | None, words: str):
    """Where there is no word for it."""
    bench = ClientBench()
    channels(bench, of_user, of_node)
    first = Peer(bench).open()
    first.channel()
    other = Peer010(bench).open()
    refused = other.sessions[1] = ClientSession(other, 1, b"session")
    refused.control(c.SessionAttach(refused.name))
    other.read()
    assert refused.detached is not None
    assert refused.detached.code == c.DETACH_CODE_TRANSPORT_BUSY
    first.send(1, m.ChannelClose(200, "", 0, 0))
    assert Peer010(bench).open().attach("session").attached


def test_one_queue_too_many_is_refused_in_every_protocol():
    bench = ClientBench()
    bench.host.set_limits(VirtualHostLimits(max_queues=1))
    channel = channel_of(bench)
    channel.declare("one")
    words = "cannot declare queue 'two' in vhost '/': queue limit in vhost '/' (1) is reached"
    close = channel.call(m.QueueDeclare("two"))
    assert isinstance(close, m.ChannelClose)
    assert close.reply_text == f"PRECONDITION_FAILED - {words}"
    assert Pair(Peer10(bench).open().begin()).ask("PUT", "/queues/two", {}) == (403, words)
    with pytest.raises(SessionEnded):
        Peer010(bench).open().attach("session").declare("two")
    assert list(bench.host.queues) == ["one"]


def test_one_virtual_host_too_many_is_refused_to_clients():
    bench = ClientBench("[limits]\nvirtual_hosts_max = 1")
    bench.broker.node_limits = _node_limits(bench.config)
    bench.broker.require_room("/")
    with pytest.raises(TooMany, match=r"cannot create vhost 'blue': vhost limit of 1 is reached"):
        bench.broker.require_room("blue")


def test_one_virtual_host_too_many_is_refused_over_http():
    bench = ClientBench("[limits]\nvirtual_hosts_max = 2")
    bench.broker.node_limits = _node_limits(bench.config)
    assert asked(bench, "PUT", "/api/vhosts/blue") == 201
    assert asked(bench, "PUT", "/api/vhosts/blue") == 204, "it is there"
    assert asked(bench, "PUT", "/api/vhosts/red") == 400
    assert list(bench.broker.virtual_hosts) == ["/", "blue"]


def asked(bench: ClientBench, method: str, target: str) -> int:
    bench.broker.tick()
    line = Line(bench.broker, bench.config, LOOPBACK).send(method, target, login="guest:guest")
    bench.settle()
    return line.response.status
