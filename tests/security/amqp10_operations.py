"""Every operation of AMQP 1.0 that touches a resource, and what it needs.

A row names permissions on exchanges and queues, in the order in which they are asked for; the names are regular
expressions, since some queues get theirs from the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol, Value
from tests.amqp10.client import Link, Receiver, Sender, Session
from tests.amqp10.parts import VALUE, data, section, told
from tests.amqp10.peer import Peer
from tests.amqp10.test_s14_management import Pair, ask_requests, ask_responses
from tests.harness.bench import ClientBench
from tests.harness.permissions import CONFIGURE, READ, WRITE, Need, any_of, exchange, queue

TEMPORARY: Final = Symbol("temporary-queue")
HELLO: Final = data(b"hello")

Act: TypeAlias = Callable[[Session], str]  # its refusal, or nothing


@attrs.frozen
class Row:
    act: Act
    needs: tuple[Need, ...] = ()
    any_will_do: bool = False  # of the needs
    otherwise: str = ""  # why it fails even if it is allowed


# What a client does.


def refusal(session: Session, link: Link | None = None) -> str:
    """Why the session or a link of it has ended, if it has."""
    session.peer.read()
    if session.ended is not None:
        return told(session.ended.error)
    return told(link.detached.error) if link is not None and link.detached is not None else ""


def to(target: object, *sections: object, **fields: object) -> Act:
    """Attach a sender, and send what there is to send."""

    def act(session: Session) -> str:
        link = session.ask_sender(target, **fields)
        if refusal(session, link) or not sections:
            return refusal(session, link)
        outcome = link.publish(*sections)
        if isinstance(outcome, p.Rejected):
            return told(outcome.error)
        return refusal(session, link)

    return act


def named(address: str) -> p.Properties:
    return p.Properties(to=address)


def from_(source: object, **fields: object) -> Act:
    """Attach a receiver."""

    def act(session: Session) -> str:
        return refusal(session, session.ask_receiver(source, name="link", **fields))

    return act


def subscription(address: str = "/exchanges/x/k", *capabilities: str, **fields: object) -> p.Source:
    return p.Source(address=address, capabilities=[Symbol(each) for each in capabilities], **fields)


def come_back(session: Session) -> str:
    """To a subscription that is there, with a null source."""
    link = Receiver(session, "kept")
    return refusal(session, session.attach(link, source=None, target=p.Target()))


def replace(session: Session) -> str:
    """A subscription that is there by one to another exchange."""
    source = subscription("/exchanges/other/k", durable=2, expiry_policy=Symbol("never"))
    return refusal(session, session.ask_receiver(source, name="kept"))


def in_a_transaction(session: Session) -> str:
    """Declare one, post to an exchange, commit."""
    control = session.ask_sender(p.Coordinator())
    declared = control.publish(data_of(p.Declare()))
    assert isinstance(declared, p.Declared)
    link = session.ask_sender("/exchanges/x/k")
    if refused := refusal(session, link):
        return refused
    link.publish(HELLO, state=p.TransactionalState(txn_id=declared.txn_id))
    control.publish(data_of(p.Discharge(txn_id=declared.txn_id, fail=False)))
    return refusal(session, link)


def transaction_alone(session: Session) -> str:
    control = session.ask_sender(p.Coordinator())
    declared = control.publish(data_of(p.Declare()))
    assert isinstance(declared, p.Declared)
    assert control.publish(data_of(p.Discharge(txn_id=declared.txn_id, fail=True))) == p.Accepted()
    return refusal(session, control)


def data_of(value: Value) -> bytes:
    return section(VALUE, value)


def management(session: Session) -> str:
    """The pair of links alone."""
    requests, responses = ask_requests(session), ask_responses(session)
    return refusal(session, requests) or refusal(session, responses)


def asking(method: str, target: str, body: Value = None, status: int = 204) -> Act:
    """A management request; an answer of another status is as good as a refusal."""

    def act(session: Session) -> str:
        pair = Pair(session)
        pair.send(method, target, body)
        response = pair.responses.get()
        if response is None:
            return refusal(session)
        subject = response.properties.subject
        return "" if int(subject) == status else f"{subject} {response.body}"

    return act


def bind_body(**fields: Value) -> dict[str, Value]:
    return {"source": "x", "binding_key": "k", "arguments": {}, **fields}


# The table.

DEFAULT: Final = "amq.default"
GENERATED: Final = r"amq\.gen-.*"
DYNAMIC: Final = r"amq\.dyn-.*"
SUBSCRIBED: Final = (
    queue(CONFIGURE, GENERATED),
    queue(WRITE, GENERATED),
    exchange(READ, "x"),
    queue(READ, GENERATED),
)


def subscribing(name: str, source: str = "x") -> tuple[Need, ...]:
    return queue(CONFIGURE, name), queue(WRITE, name), exchange(READ, source), queue(READ, name)


TO: Final[dict[str, Row]] = {
    "/queues/q": Row(to("/queues/q", HELLO), (exchange(WRITE, DEFAULT),)),
    "/queues/missing": Row(to("/queues/missing"), (exchange(WRITE, DEFAULT),), otherwise="amqp:not-found"),
    "/exchanges/x/k": Row(to("/exchanges/x/k", HELLO), (exchange(WRITE, "x"),)),
    "/exchanges/x": Row(to("/exchanges/x", HELLO), (exchange(WRITE, "x"),)),
    "/exchanges/missing": Row(
        to("/exchanges/missing/k"), (exchange(WRITE, "missing"),), otherwise="amqp:not-found"
    ),
    "/exchanges/inner, internal": Row(
        to("/exchanges/inner/k"), otherwise="amqp:unauthorized-access forbidden to publish to internal"
    ),
    "/exchanges/guarded, with an alternate": Row(
        to("/exchanges/guarded/k", HELLO), (exchange(WRITE, "guarded"),)
    ),
    "/exchanges/amq.topic/k": Row(to("/exchanges/amq.topic/k", HELLO), (exchange(WRITE, r"amq\.topic"),)),
    "anonymous": Row(to(None)),
    "anonymous, to /queues/q": Row(to(None, named("/queues/q"), HELLO), (exchange(WRITE, DEFAULT),)),
    "anonymous, to /exchanges/x/k": Row(to(None, named("/exchanges/x/k"), HELLO), (exchange(WRITE, "x"),)),
    "v1 /exchange/x/k": Row(to("/exchange/x/k", HELLO), (exchange(WRITE, "x"),)),
    "v1 /exchange/x": Row(to("/exchange/x", HELLO), (exchange(WRITE, "x"),)),
    "v1 /topic/k": Row(to("/topic/k", HELLO), (exchange(WRITE, r"amq\.topic"),)),
    "v1 /amq/queue/q": Row(to("/amq/queue/q", HELLO), (exchange(WRITE, DEFAULT),)),
    "v1 /reply-queue/q": Row(to("/reply-queue/q", HELLO), (exchange(WRITE, DEFAULT),)),
    "v1 /temp-queue/q": Row(to("/temp-queue/q", HELLO), (exchange(WRITE, DEFAULT),)),
    "v1 /queue": Row(to("/queue", p.Properties(subject="q"), HELLO), (exchange(WRITE, DEFAULT),)),
    "v1 /queue/new": Row(to("/queue/new", HELLO), (exchange(WRITE, DEFAULT), queue(CONFIGURE, "new"))),
    "v1 /queue/q": Row(to("/queue/q", HELLO), (exchange(WRITE, DEFAULT), queue(CONFIGURE, "q"))),
    "v1 new": Row(to("new", HELLO), (exchange(WRITE, DEFAULT), queue(CONFIGURE, "new"))),
    "dynamic": Row(
        to(p.Target(dynamic=True, capabilities=[TEMPORARY]), HELLO, name="link"),
        (exchange(WRITE, DEFAULT), queue(CONFIGURE, DYNAMIC)),
    ),
    "coordinator": Row(transaction_alone),
    "coordinator, and posting": Row(in_a_transaction, (exchange(WRITE, "x"),)),
    "/management": Row(management),
}
FROM: Final[dict[str, Row]] = {
    "/queues/q": Row(from_("/queues/q"), (queue(READ, "q"),)),
    "/queues/missing": Row(from_("/queues/missing"), (queue(READ, "missing"),), otherwise="amqp:not-found"),
    "v1 /amq/queue/q": Row(from_("/amq/queue/q"), (queue(READ, "q"),)),
    "v1 /reply-queue/q": Row(from_("/reply-queue/q"), (queue(READ, "q"),)),
    "v1 /temp-queue/new": Row(from_("/temp-queue/new"), (queue(READ, "new"), queue(CONFIGURE, "new"))),
    "v1 /queue/new": Row(from_("/queue/new"), (queue(READ, "new"), queue(CONFIGURE, "new"))),
    "v1 /queue/q": Row(from_("/queue/q"), (queue(READ, "q"), queue(CONFIGURE, "q"))),
    "v1 q": Row(from_("q"), (queue(READ, "q"), queue(CONFIGURE, "q"))),
    "v1 /exchange/x/k": Row(from_("/exchange/x/k"), SUBSCRIBED),
    "v1 /exchange/x": Row(from_("/exchange/x"), SUBSCRIBED),
    "v1 /topic/k": Row(from_("/topic/k"), subscribing(GENERATED, r"amq\.topic")),
    "/exchanges/x/k, topic": Row(from_(subscription("/exchanges/x/k", "topic")), SUBSCRIBED),
    "/exchanges/x/k, durable": Row(
        from_(subscription(durable=2, expiry_policy=Symbol("never"))), subscribing(r"amq\.sub-test/link")
    ),
    "/exchanges/x/k, shared": Row(
        from_(subscription("/exchanges/x/k", "shared")), subscribing(r"amq\.sub\.volatile-test/link")
    ),
    "/exchanges/x/k, shared, durable": Row(
        from_(subscription("/exchanges/x/k", "shared", durable=2)), subscribing(r"amq\.sub\.shared-test/link")
    ),
    "/exchanges/x/k, shared by all": Row(
        from_(subscription("/exchanges/x/k", "shared", "global", durable=2)),
        subscribing(r"amq\.sub\.global\.shared-/link"),
    ),
    "null, of what is there": Row(
        come_back,
        (
            queue(READ, r"amq\.sub-test/kept"),
            queue(CONFIGURE, r"amq\.sub-test/kept"),
            queue(WRITE, r"amq\.sub-test/kept"),
            exchange(READ, "x"),
        ),
    ),
    "another exchange for what is there": Row(
        replace,
        (
            queue(READ, r"amq\.sub-test/kept"),
            queue(WRITE, r"amq\.sub-test/kept"),
            exchange(READ, "other"),
            queue(CONFIGURE, r"amq\.sub-test/kept"),
        ),
    ),
    "dynamic": Row(
        from_(p.Source(dynamic=True, capabilities=[TEMPORARY])),
        (queue(CONFIGURE, DYNAMIC), queue(READ, DYNAMIC)),
    ),
}
REQUESTS: Final[dict[tuple[str, str], Row]] = {
    ("PUT", "queues/:"): Row(asking("PUT", "/queues/new", {}, 201), (queue(CONFIGURE, "new"),)),
    ("GET", "queues/:"): Row(asking("GET", "/queues/q", None, 200), any_of("queue", "q"), any_will_do=True),
    ("DELETE", "queues/:"): Row(asking("DELETE", "/queues/q", None, 200), (queue(CONFIGURE, "q"),)),
    ("DELETE", "queues/:/messages"): Row(
        asking("DELETE", "/queues/q/messages", None, 200), (queue(READ, "q"),)
    ),
    ("PUT", "exchanges/:"): Row(
        asking("PUT", "/exchanges/new", {"type": "direct"}), (exchange(CONFIGURE, "new"),)
    ),
    ("GET", "exchanges/:"): Row(
        asking("GET", "/exchanges/x", None, 200), any_of("exchange", "x"), any_will_do=True
    ),
    ("DELETE", "exchanges/:"): Row(asking("DELETE", "/exchanges/x"), (exchange(CONFIGURE, "x"),)),
    ("POST", "bindings"): Row(
        asking("POST", "/bindings", bind_body(destination_queue="q")),
        (queue(WRITE, "q"), exchange(READ, "x")),
    ),
    ("GET", "bindings"): Row(
        asking("GET", "/bindings?src=x&dstq=q&key=k", None, 200), (queue(WRITE, "q"), exchange(READ, "x"))
    ),
    ("DELETE", "bindings/:"): Row(
        asking("DELETE", "/bindings/src=x;dstq=q;key=k;args="), (queue(WRITE, "q"), exchange(READ, "x"))
    ),
    ("PUT", "auth/tokens"): Row(asking("PUT", "/auth/tokens", b"u")),
}
MORE_REQUESTS: Final[dict[str, Row]] = {
    "PUT with dead letters": Row(
        asking("PUT", "/queues/new", {"arguments": {"x-dead-letter-exchange": "other"}}, 201),
        (queue(CONFIGURE, "new"), queue(READ, "new"), exchange(WRITE, "other")),
    ),
    "PUT with an alternate": Row(
        asking("PUT", "/exchanges/new", {"arguments": {"alternate-exchange": "other"}}),
        (exchange(CONFIGURE, "new"), exchange(READ, "new"), exchange(WRITE, "other")),
    ),
    "POST from exchange to exchange": Row(
        asking("POST", "/bindings", bind_body(destination_exchange="other")),
        (exchange(WRITE, "other"), exchange(READ, "x")),
    ),
}
OPERATIONS: Final[dict[str, Row]] = {
    **{f"to {name}": row for name, row in TO.items()},
    **{f"from {name}": row for name, row in FROM.items()},
    **{" ".join(route): row for route, row in REQUESTS.items()},
    **MORE_REQUESTS,
}

# The other performatives: what a session and its links do with what they were granted.
GRANTED: Final = {
    p.Open: "the virtual host, which needs a permission in it",
    p.Begin: "a session",
    p.Flow: "credit of links",
    p.Disposition: "deliveries that it was sent",
    p.Detach: "links",
    p.End: "sessions",
    p.Close: "the connection",
}
ROWS_FOR: Final = {p.Attach: (*TO.values(), *FROM.values()), p.Transfer: tuple(REQUESTS.values())}


# The bench.

V1: Final = "protocols.amqp10.addresses.v1 = true\n"


def bench() -> ClientBench:
    bench = ClientBench(V1)
    host = bench.host
    for name in ("x", "other"):
        host.declare_exchange(name, "direct")
    host.declare_exchange("inner", "direct", internal=True)
    host.declare_exchange("guarded", "direct", arguments={"alternate-exchange": "other"})
    host.bind(host.exchange("guarded"), host.declare_queue("q"), "k", {})
    source = subscription(durable=2, expiry_policy=Symbol("never"))
    Peer(bench).open().begin().receiver(source, name="kept").peer.drop()
    sender: Sender = Peer(bench).open().begin().sender("/queues/q")
    sender.publish(HELLO)
    sender.peer.drop()
    return bench


def user(bench: ClientBench, configure: str = ".*", write: str = ".*", read: str = ".*") -> Session:
    access = bench.broker.access
    access.add_user("u", "u")
    access.set_permissions("u", "/", configure, write, read)
    return Peer(bench).open("u", "u").begin()


def state(bench: ClientBench) -> object:
    """All there is that an operation may change."""
    queues = bench.host.queues.values()
    return (
        sorted(bench.host.exchanges),
        sorted((each.name, each.ready, each.unsettled, len(each.consumers)) for each in queues),
        sorted(
            (binding.source.name, each.name, binding.key)
            for each in queues
            for binding in bench.host.bindings_to(each)
        ),
    )
