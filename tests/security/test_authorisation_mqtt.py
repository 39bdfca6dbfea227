"""Every packet of MQTT that touches an exchange or a queue, under every permission there is: what is refused has not
happened, and its client is told with 0x87."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, combinations
from typing import Final

import attrs
import pytest

from leveret.protocols.mqtt.broker.retained import retained_of
from leveret.protocols.mqtt.broker.sessions import sessions_of
from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.properties import PUBREC
from tests.harness.bench import ClientBench
from tests.harness.permissions import CONFIGURE, PERMISSIONS, READ, WRITE, Need, exchange, queue
from tests.mqtt.peer import Peer

TOPIC: Final = exchange(WRITE, "amq.topic")
FROM_TOPIC: Final = exchange(READ, "amq.topic")
QUEUE: Final = "mqtt-subscription-mqos1"
OWN: Final = "m"  # the id of the client that asks
KEPT: Final = {"session_expiry_interval": 100}


@attrs.frozen
class Row:
    """What a client does, as a function that returns the reason code that it is told, and what that needs.

    `before` is what it has done while it was allowed everything.
    """

    act: Callable[[Peer], int]
    needs: tuple[Need, ...]
    before: Callable[[Peer], object] | None = None
    topic: str = ""  # the permission for the topic `a` that it needs as well


def published(peer: Peer, qos: int, retain: bool = False, payload: bytes = b"x") -> int:
    packet_id = 7 if qos else 0
    peer.send(p.Publish("a", payload, qos, retain, False, packet_id))
    if not qos:
        return disconnected(peer)
    (answer,) = peer.taken(p.Ack)
    assert answer.kind == PUBREC if qos == 2 else True
    return int(answer.reason_code)


def disconnected(peer: Peer) -> int:
    """The reason for which the broker has closed the connection, or 0."""
    ends = peer.taken(p.Disconnect)
    assert bool(ends) == peer.front.closed
    return int(ends[0].reason_code) if ends else 0


def subscribed(peer: Peer, qos: int, topic_filter: str = "a") -> int:
    (code,) = peer.subscribe(topic_filter, qos=qos)
    return code if code >= r.UNSPECIFIED_ERROR else 0


def unsubscribed(peer: Peer) -> int:
    return peer.unsubscribe("a")[0]


def came_back(peer: Peer) -> int:
    """Go and come back to the session, whose subscriptions are made anew."""
    peer.drop()
    again = Peer(peer.bench).connect(OWN, clean=False, user="u", password=b"u", **KEPT)
    assert again.connected is not None
    return again.connected.reason_code or disconnected(again)


def to_subscribe(name: str) -> tuple[Need, ...]:
    return queue(CONFIGURE, name), queue(WRITE, name), queue(READ, name), FROM_TOPIC


SUBSCRIBED: Final = partial(subscribed, qos=1)
ROWS: Final[dict[str, Row]] = {
    "PUBLISH with QoS 0": Row(partial(published, qos=0), (TOPIC,), topic=WRITE),
    "PUBLISH with QoS 1": Row(partial(published, qos=1), (TOPIC,), topic=WRITE),
    "PUBLISH with QoS 2": Row(partial(published, qos=2), (TOPIC,), topic=WRITE),
    "PUBLISH, retained": Row(partial(published, qos=1, retain=True), (TOPIC,), topic=WRITE),
    "PUBLISH that deletes": Row(partial(published, qos=1, retain=True, payload=b""), (TOPIC,), topic=WRITE),
    "SUBSCRIBE with QoS 0": Row(
        partial(subscribed, qos=0), to_subscribe("mqtt-subscription-mqos0"), topic=READ
    ),
    "SUBSCRIBE with QoS 1": Row(SUBSCRIBED, to_subscribe(QUEUE), topic=READ),
    "SUBSCRIBE with QoS 2": Row(partial(subscribed, qos=2), to_subscribe(QUEUE), topic=READ),
    "SUBSCRIBE, shared": Row(
        partial(subscribed, qos=1, topic_filter="$share/g/a"), to_subscribe("mqtt-shared-g:a"), topic=READ
    ),
    "SUBSCRIBE to more": Row(
        partial(subscribed, qos=1, topic_filter="a/b"),
        (queue(WRITE, QUEUE), queue(READ, QUEUE), FROM_TOPIC),
        before=SUBSCRIBED,
    ),
    "UNSUBSCRIBE": Row(unsubscribed, (), before=SUBSCRIBED),
    "CONNECT to a session": Row(
        came_back, (queue(WRITE, QUEUE), queue(READ, QUEUE), FROM_TOPIC), before=SUBSCRIBED
    ),
}
# Packets of clients without a row, each for its reason.
NEED_NONE: Final = {
    p.Connect: "gets in: a virtual host needs a permission in it; its will is published as a PUBLISH is, see below",
    p.Ack: "messages that it has, or has published",
    p.PingReq: "is there",
    p.Disconnect: "goes",
    p.Auth: "logs in, and may go on if it may read its queues: see below",
}
OF_SERVERS: Final = {p.ConnAck, p.SubAck, p.UnsubAck, p.PingResp}
PARTS: Final = {p.Will, p.Subscription}


def test_every_packet_has_a_row_or_needs_none() -> None:
    known = {each for each in vars(p).values() if isinstance(each, type) and each.__module__ == p.__name__}
    with_row = {each for each in known if any(name.split()[0] == each.__name__.upper() for name in ROWS)}
    assert with_row - {p.Connect} == {p.Publish, p.Subscribe, p.Unsubscribe}
    assert known - with_row - set(NEED_NONE) - OF_SERVERS - PARTS == set()


def state(bench: ClientBench) -> object:
    host = bench.host
    return (
        sorted((each.name, len(each.bindings)) for each in host.exchanges.values()),
        sorted((each.name, each.ready, each.unsettled) for each in host.queues.values()),
        sorted((each.topic, each.payload) for each in retained_of(host)),
        [
            sorted(subscribed for group in each.groups.values() for subscribed in group.by_filter)
            for each in sessions_of(host)
        ],
    )


def prepared(row: Row) -> Peer:
    """A client that may do everything, beside a queue that gets what it publishes, and a retained message."""
    bench = ClientBench()
    bench.user("u")
    bench.host.bind(bench.host.exchange("amq.topic"), bench.host.declare_queue("all"), "#")
    Peer(bench).connect("boss").publish("a", b"kept", retain=True)
    peer = Peer(bench).connect(OWN, user="u", password=b"u", **KEPT)
    if row.before is not None:
        assert row.before(peer) == 0
        assert [each.payload for each in peer.messages()] == [b"kept"]
    return peer


def check(row: Row, peer: Peer, is_refused: bool) -> None:
    bench = peer.bench
    assert isinstance(bench, ClientBench)
    before = state(bench)
    code = row.act(peer)
    bench.settle()
    if is_refused:
        assert code == r.NOT_AUTHORIZED
        assert state(bench) == before
    else:
        assert code == 0


def permit(peer: Peer, **allowed: str) -> None:
    bench = peer.bench
    bench.broker.access.set_permissions("u", "/", *(allowed[each] for each in PERMISSIONS))
    bench.settle()


EVERY_SET: Final = tuple(chain.from_iterable(combinations(PERMISSIONS, count) for count in range(4)))


@pytest.mark.parametrize("granted", EVERY_SET, ids="+".join)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_each_set_of_permissions_allows(row: Row, granted: tuple[str, ...]) -> None:
    peer = prepared(row)
    permit(peer, **{each: ".*" if each in granted else "" for each in PERMISSIONS})
    check(row, peer, any(permission not in granted for permission, _, _ in row.needs))


@pytest.mark.parametrize(
    ("row", "need"),
    [
        pytest.param(row, need, id=f"{name}: {' '.join(need)}")
        for name, row in ROWS.items()
        for need in row.needs
    ],
)
def test_each_need_is_a_need(row: Row, need: Need) -> None:
    peer = prepared(row)
    permission, _, name = need
    permit(peer, **{each: f"^(?!{name}$)" if each == permission else ".*" for each in PERMISSIONS})
    check(row, peer, is_refused=True)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_there_are_no_other_needs(row: Row) -> None:
    peer = prepared(row)
    names = {each: [name for permission, _, name in row.needs if permission == each] for each in PERMISSIONS}
    permit(peer, **{each: f"^({'|'.join(found)})$" if found else "^never$" for each, found in names.items()})
    check(row, peer, is_refused=False)


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.topic])
@pytest.mark.parametrize("expression", ["^b$", "^a$"])
def test_topic_permissions_hold_as_well(row: Row, expression: str) -> None:
    peer = prepared(row)
    of = {WRITE: ".*", READ: ".*", row.topic: expression}
    peer.bench.broker.access.set_topic_permissions("u", "/", "amq.topic", of[WRITE], of[READ])
    check(row, peer, is_refused=expression == "^b$")


@pytest.mark.parametrize("write", ["", "^amq.topic$"])
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_needs_what_a_publish_needs(write: str, retain: bool) -> None:
    peer = prepared(ROWS["PUBLISH with QoS 1"])
    bench = peer.bench
    assert isinstance(bench, ClientBench)
    dying = Peer(bench).connect("dying", user="u", password=b"u", will=p.Will("a", b"gone", 1, retain))
    permit(peer, configure="", write=write, read="")
    before = state(bench)
    dying.drop()
    assert (bench.queue("all").ready == 2) == bool(write)
    found = retained_of(bench.host).get("a")
    assert found is not None
    assert found.payload == (b"gone" if write and retain else b"kept")
    if not write:
        assert state(bench)[:3] == before[:3]  # type: ignore[index]


def test_another_user_s_session_is_not_had_by_its_name() -> None:
    peer = prepared(ROWS["UNSUBSCRIBE"])
    bench = peer.bench
    assert isinstance(bench, ClientBench)
    bench.user("eve")
    before = state(bench)
    eve = Peer(bench).connect(OWN, user="eve", password=b"eve")
    assert eve.connected is not None
    assert eve.connected.reason_code == r.NOT_AUTHORIZED
    assert state(bench) == before
    assert not peer.front.closed
