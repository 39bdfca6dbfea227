"""Every method of 0-9-1 that touches a resource, under every permission there is: what is not listed is refused.

A row of METHODS names a method and what it needs: permissions on exchanges and queues in the order in which they are
asked for, so that the first one that is missing is the one the client is told of (S041, S054, S079, S087, S088, S098,
S147, S148). Each row is tried three ways, in a virtual host of the user's own and in one where he may do less:

    with every set of permissions on everything    the sets that suffice, and no others
    with everything but one permission on one name  each need is a need
    with exactly what is listed, and nothing else   there are no other needs
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import Final

import attrs
import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method
from tests.amqp091.peer import CAPABILITIES, TWO_HOSTS, ClientChannel, Peer
from tests.harness.bench import ClientBench
from tests.harness.permissions import CONFIGURE, PERMISSIONS, READ, WRITE, Need, any_of, exchange, queue

EVERY_SET: Final = tuple(chain.from_iterable(combinations(PERMISSIONS, count) for count in range(4)))
HOSTS: Final = ("/", "blue")
REPLY_TO: Final = "amq.rabbitmq.reply-to"


@attrs.frozen
class Publish:
    """basic.publish with its content."""

    exchange: str
    key: str = ""
    properties: BasicProperties = attrs.field(factory=BasicProperties)


Request = Method | Publish


@attrs.frozen
class Row:
    request: Request
    needs: tuple[Need, ...]
    any_will_do: bool = False  # of the needs
    otherwise: str = ""  # why it fails even if it is allowed


ALTERNATE: Final = {"alternate-exchange": "other"}
DEAD: Final = {"x-dead-letter-exchange": "other"}
NO_QUEUE: Final = "404 NOT_FOUND - no queue 'missing' in vhost '{}'"
NO_EXCHANGE: Final = "404 NOT_FOUND - no exchange 'missing' in vhost '{}'"

METHODS: Final[dict[str, Row]] = {
    "exchange.declare": Row(m.ExchangeDeclare("new", "direct"), (exchange(CONFIGURE, "new"),)),
    "exchange.declare again": Row(m.ExchangeDeclare("x", "direct"), (exchange(CONFIGURE, "x"),)),
    "exchange.declare with an alternate": Row(
        m.ExchangeDeclare("new", "direct", arguments=ALTERNATE),
        (exchange(CONFIGURE, "new"), exchange(READ, "new"), exchange(WRITE, "other")),
    ),
    "exchange.declare with an alternate, again": Row(
        m.ExchangeDeclare("guarded", "direct", arguments=ALTERNATE), (exchange(CONFIGURE, "guarded"),)
    ),
    "exchange.declare passive": Row(
        m.ExchangeDeclare("x", "direct", passive=True), any_of("exchange", "x"), any_will_do=True
    ),
    "exchange.declare passive, missing": Row(
        m.ExchangeDeclare("missing", "direct", passive=True),
        any_of("exchange", "missing"),
        any_will_do=True,
        otherwise=NO_EXCHANGE,
    ),
    "exchange.delete": Row(m.ExchangeDelete("x"), (exchange(CONFIGURE, "x"),)),
    "exchange.delete, missing": Row(m.ExchangeDelete("missing"), (exchange(CONFIGURE, "missing"),)),
    "exchange.bind": Row(m.ExchangeBind("other", "x", "k"), (exchange(WRITE, "other"), exchange(READ, "x"))),
    "exchange.unbind": Row(
        m.ExchangeUnbind("other", "x", "k"), (exchange(WRITE, "other"), exchange(READ, "x"))
    ),
    "exchange.bind, missing": Row(
        m.ExchangeBind("missing", "x", "k"),
        (exchange(WRITE, "missing"), exchange(READ, "x")),
        otherwise=NO_EXCHANGE,
    ),
    "queue.declare": Row(m.QueueDeclare("new"), (queue(CONFIGURE, "new"),)),
    "queue.declare again": Row(m.QueueDeclare("q"), (queue(CONFIGURE, "q"),)),
    "queue.declare with dead letters": Row(
        m.QueueDeclare("new", arguments=DEAD),
        (queue(CONFIGURE, "new"), queue(READ, "new"), exchange(WRITE, "other")),
    ),
    "queue.declare with dead letters to the default exchange": Row(
        m.QueueDeclare("new", arguments={"x-dead-letter-exchange": ""}),
        (queue(CONFIGURE, "new"), queue(READ, "new"), exchange(WRITE, "amq.default")),
    ),
    "queue.declare with dead letters, again": Row(
        m.QueueDeclare("mortal", arguments=DEAD), (queue(CONFIGURE, "mortal"),)
    ),
    "queue.declare passive": Row(m.QueueDeclare("q", passive=True), any_of("queue", "q"), any_will_do=True),
    "queue.declare passive, missing": Row(
        m.QueueDeclare("missing", passive=True),
        any_of("queue", "missing"),
        any_will_do=True,
        otherwise=NO_QUEUE,
    ),
    "queue.bind": Row(m.QueueBind("q", "x", "k"), (queue(WRITE, "q"), exchange(READ, "x"))),
    "queue.bind, missing": Row(
        m.QueueBind("missing", "x", "k"), (queue(WRITE, "missing"), exchange(READ, "x")), otherwise=NO_QUEUE
    ),
    "queue.unbind": Row(m.QueueUnbind("q", "x", "k"), (queue(WRITE, "q"), exchange(READ, "x"))),
    "queue.purge": Row(m.QueuePurge("q"), (queue(READ, "q"),)),
    "queue.purge, missing": Row(m.QueuePurge("missing"), (queue(READ, "missing"),), otherwise=NO_QUEUE),
    "queue.delete": Row(m.QueueDelete("q"), (queue(CONFIGURE, "q"),)),
    "queue.delete, missing": Row(m.QueueDelete("missing"), (queue(CONFIGURE, "missing"),)),
    "basic.publish": Row(Publish("x", "k"), (exchange(WRITE, "x"),)),
    "basic.publish, missing": Row(Publish("missing"), (exchange(WRITE, "missing"),), otherwise=NO_EXCHANGE),
    "basic.publish to the default exchange": Row(Publish("", "q"), (exchange(WRITE, "amq.default"),)),
    "basic.publish to where bindings and alternates lead": Row(
        Publish("guarded", "k"), (exchange(WRITE, "guarded"),)
    ),
    "basic.publish to a topic exchange": Row(Publish("amq.topic", "k"), (exchange(WRITE, "amq.topic"),)),
    "basic.publish with further keys": Row(
        Publish("", "q", BasicProperties(headers={"CC": ["mortal"], "BCC": ["q"]})),
        (exchange(WRITE, "amq.default"),),
    ),
    "basic.consume": Row(m.BasicConsume("q"), (queue(READ, "q"),)),
    "basic.consume, missing": Row(m.BasicConsume("missing"), (queue(READ, "missing"),), otherwise=NO_QUEUE),
    "basic.consume of direct replies": Row(m.BasicConsume(REPLY_TO, no_ack=True), ()),
    "basic.get": Row(m.BasicGet("q"), (queue(READ, "q"),)),
    "basic.get, missing": Row(m.BasicGet("missing"), (queue(READ, "missing"),), otherwise=NO_QUEUE),
}

DEFAULT_EXCHANGE: Final = "403 ACCESS_REFUSED - operation not permitted on the default exchange"
NOT_FOR_ANYBODY: Final[tuple[Method, ...]] = (
    m.ExchangeDeclare("", "direct"),
    m.ExchangeDeclare("", "direct", passive=True),
    m.ExchangeDelete(""),
    m.ExchangeBind("", "x"),
    m.ExchangeBind("x", ""),
    m.ExchangeUnbind("", "x"),
    m.ExchangeUnbind("x", ""),
    m.QueueBind("q", "", "k"),
    m.QueueUnbind("q", "", "k"),
)
ON_A_QUEUE: Final[tuple[Method, ...]] = (
    m.QueueDeclare("own"),
    m.QueueDeclare("own", passive=True),
    m.QueueDeclare("own", exclusive=True),
    m.QueueBind("own", "x", "k"),
    m.QueueUnbind("own", "x", "k"),
    m.QueuePurge("own"),
    m.QueueDelete("own"),
    m.BasicConsume("own"),
    m.BasicGet("own"),
)


def refused(need: Need, host: str) -> str:
    permission, kind, name = need
    where = f"{permission} access to {kind} '{name}' in vhost '{host}'"
    return f"403 ACCESS_REFUSED - {where} refused for user 'u'"


def expected(row: Row, host: str, missing: Sequence[Need]) -> str:
    """What a user hears who lacks these of the needs."""
    if missing and (not row.any_will_do or len(missing) == len(row.needs)):
        return refused(missing[0], host)
    return row.otherwise.format(host)


def outcome(channel: ClientChannel, request: Request) -> str:
    """Reply code and text if the channel was closed, or nothing."""
    if isinstance(request, Publish):
        channel.publish(request.exchange, request.key, b"", request.properties)
        answer = channel.call(m.BasicQos())
    else:
        answer = channel.call(request)
    if isinstance(answer, m.ChannelClose):
        return f"{answer.reply_code} {answer.reply_text}"
    assert answer is not None
    return ""


def bench() -> ClientBench:
    """Two virtual hosts with the same exchanges and queues."""
    bench = ClientBench(TWO_HOSTS)
    for host in HOSTS:
        channel = Peer(bench).open(virtual_host=host).channel()
        for name in ("x", "other"):
            channel.exchange(name)
        channel.exchange("guarded", arguments=ALTERNATE)
        channel.declare("q")
        channel.declare("mortal", arguments=DEAD)
        channel.link("guarded", "other", "k")
    return bench


def user(bench: ClientBench, host: str, configure: str, write: str, read: str) -> ClientChannel:
    """A user of that host who may do everything in the other one."""
    access = bench.broker.access
    access.add_user("u", "u")
    for each in HOSTS:
        access.set_permissions("u", each, ".*", ".*", ".*")
    access.set_permissions("u", host, configure, write, read)
    return Peer(bench).open("u", "u", host).channel()


def exactly(names: Sequence[str]) -> str:
    return f"^({'|'.join(names)})$" if names else ""


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("granted", EVERY_SET, ids="+".join)
@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_what_each_set_of_permissions_allows(row: Row, granted: tuple[str, ...], host: str) -> None:
    expressions = (".*" if permission in granted else "" for permission in PERMISSIONS)
    missing = [need for need in row.needs if need[0] not in granted]
    assert outcome(user(bench(), host, *expressions), row.request) == expected(row, host, missing)


NEEDS: Final = [
    pytest.param(row, need, id=f"{name}: {' '.join(need)}")
    for name, row in METHODS.items()
    if not row.any_will_do
    for need in row.needs
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("row", "need"), NEEDS)
def test_each_need_is_a_need(row: Row, need: Need, host: str) -> None:
    permission, _, name = need
    expressions = (f"^(?!{name}$)" if each == permission else ".*" for each in PERMISSIONS)
    assert outcome(user(bench(), host, *expressions), row.request) == refused(need, host)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_there_are_no_other_needs(row: Row, host: str) -> None:
    for needs in [[need] for need in row.needs] if row.any_will_do else [row.needs]:
        named = (
            exactly([name for granted, _, name in needs if granted == permission])
            for permission in PERMISSIONS
        )
        assert outcome(user(bench(), host, *named), row.request) == expected(row, host, [])


@pytest.mark.parametrize("permission", [".*", ""])
@pytest.mark.parametrize("method", NOT_FOR_ANYBODY, ids=repr)
def test_the_default_exchange_is_nobodys(method: Method, permission: str) -> None:
    channel = user(bench(), "/", permission, permission, permission)
    assert outcome(channel, method) == DEFAULT_EXCHANGE


@pytest.mark.parametrize("method", ON_A_QUEUE, ids=repr)
def test_the_exclusive_queue_of_another_is_locked_to_who_may_and_refused_to_who_may_not(
    method: Method,
) -> None:
    both = bench()
    owner = Peer(both).open().channel()
    owner.declare("own", exclusive=True)
    locked = outcome(user(both, "/", ".*", ".*", ".*"), method)
    assert locked.startswith(
        "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'own' in vhost '/'"
    )
    assert outcome(user(both, "/", "", "", ""), method).startswith("403 ACCESS_REFUSED - ")
    assert isinstance(owner.call(method), Method)
    assert not isinstance(owner.next(), m.ChannelClose)


def test_a_generated_name_needs_configure_like_any_other() -> None:
    both = bench()
    text = outcome(user(both, "/", "^own", ".*", ".*"), m.QueueDeclare(""))
    assert text.startswith("403 ACCESS_REFUSED - configure access to queue 'amq.gen-")
    assert outcome(user(both, "/", "^amq\\.gen-", "", ""), m.QueueDeclare("")) == ""


def test_a_reply_needs_write_on_the_default_exchange_and_nothing_on_the_reply_queue() -> None:
    both = bench()
    asking = Peer(both).open().channel()
    asking.consume(REPLY_TO, no_ack=True)
    asking.publish("", "q", b"?", BasicProperties(reply_to=REPLY_TO))
    address = asking.get("q").properties.reply_to
    assert outcome(user(both, "/", "", "^amq\\.default$", ""), Publish("", address)) == ""
    assert len(asking.deliveries()) == 1
    assert outcome(user(both, "/", ".*", "^amq\\.rabbitmq", ".*"), Publish("", address)) == refused(
        exchange(WRITE, "amq.default"), "/"
    )
    for method in (m.BasicConsume(address), m.BasicGet(address), m.QueuePurge(address)):
        assert outcome(user(both, "/", ".*", ".*", ".*"), method).startswith("404 NOT_FOUND - no queue")


TOPICS: Final[dict[str, tuple[Request, str]]] = {
    "publish": (Publish("t", "no"), "write access to topic 'no' in exchange 't'"),
    "publish with CC": (
        Publish("t", "yes", BasicProperties(headers={"CC": ["yes", "no"]})),
        "write access to topic 'no' in exchange 't'",
    ),
    "publish with BCC": (
        Publish("t", "yes", BasicProperties(headers={"BCC": ["no"]})),
        "write access to topic 'no' in exchange 't'",
    ),
    "queue.bind": (m.QueueBind("q", "t", "no"), "read access to topic 'no' in exchange 't'"),
    "queue.unbind": (m.QueueUnbind("q", "t", "no"), "read access to topic 'no' in exchange 't'"),
    "exchange.bind": (m.ExchangeBind("x", "t", "no"), "read access to topic 'no' in exchange 't'"),
    "exchange.unbind": (m.ExchangeUnbind("x", "t", "no"), "read access to topic 'no' in exchange 't'"),
}
UNGUARDED: Final[tuple[Request, ...]] = (
    Publish("t", "yes"),
    Publish("t", "yes", BasicProperties(headers={"CC": ["yes"], "BCC": ["yes"]})),
    Publish("x", "no"),
    Publish("amq.topic", "no"),
    m.QueueBind("q", "t", "yes"),
    m.QueueBind("q", "amq.topic", "no"),
    m.ExchangeBind("t", "x", "no"),
)


def guarded() -> ClientChannel:
    both = bench()
    Peer(both).open().channel().exchange("t", "topic")
    channel = user(both, "/", ".*", ".*", ".*")
    both.broker.access.set_topic_permissions("u", "/", "t", "^yes$", "^yes$")
    return channel


@pytest.mark.parametrize(("request_", "text"), TOPICS.values(), ids=TOPICS)
def test_s088_a_topic_that_is_not_allowed(request_: Request, text: str) -> None:
    assert outcome(guarded(), request_) == f"403 ACCESS_REFUSED - {text} in vhost '/' refused for user 'u'"


@pytest.mark.parametrize("request_", UNGUARDED, ids=repr)
def test_s088_topic_permissions_are_for_their_exchange_and_say_nothing_of_others(request_: Request) -> None:
    assert outcome(guarded(), request_) == ""


def test_s088_topic_permissions_hold_from_the_next_publish_on() -> None:
    channel = guarded()
    access = channel.peer.bench.broker.access
    publish = Publish("t", "yes")
    assert outcome(channel, publish) == ""
    access.set_topic_permissions("u", "/", "t", "^later$", "")
    assert outcome(channel, publish).startswith("403 ACCESS_REFUSED - write access to topic 'yes'")


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_a_permission_that_is_taken_away_is_missed_at_once(row: Row) -> None:
    """Whatever has been remembered while it was there."""
    both = bench()
    channel = user(both, "/", ".*", ".*", ".*")
    for exchange_name in ("x", "guarded", "amq.topic", ""):
        channel.publish(exchange_name, "k")
    channel.all()
    both.broker.access.set_permissions("u", "/", "", "", "")
    assert outcome(channel, row.request) == expected(row, "/", row.needs)


def test_a_user_without_permissions_in_a_virtual_host_does_not_get_in() -> None:
    both = bench()
    both.broker.access.add_user("u", "u")
    both.broker.access.set_permissions("u", "blue", ".*", ".*", ".*")
    peer = Peer(both)
    peer.log_in("u", "u", CAPABILITIES)
    peer.tune()
    text = peer.closed_with(0, m.ConnectionOpen("/"))
    assert text == "530 NOT_ALLOWED - access to vhost '/' refused for user 'u'"
