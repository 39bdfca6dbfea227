"""What a good client says in a long conversation, header and frames: for the fuzz tests to mutate."""

from __future__ import annotations

from struct import unpack_from

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from leveret.protocols.amqp10.machine.contract import FRAME_SIZE_MIN
from tests.harness.attack import Recording, split
from tests.harness.bench import ClientBench

from .attack import SETTINGS
from .client import SETTLED, Session
from .controller import Control, in_tx
from .parts import annotations, application_properties, data, section
from .peer import SECOND, Peer


class Recorded(Recording, Peer):
    """A client that remembers what it said."""


def transcript() -> tuple[bytes, ...]:
    """A long conversation in headers and frames: a bit of everything that a client can say."""
    bench = ClientBench(SETTINGS)
    peer = Recorded(bench)
    peer.open(max_frame_size=FRAME_SIZE_MIN, idle_time_out=60_000)
    manage(peer.begin(0))
    publish(peer.begin(1))
    consume(peer.begin(2))
    transact(peer.begin(3))
    subscribe(peer.begin(4))
    peer.send_bytes(b"\0\0\0\x08\x02\0\0\0")
    peer.sessions[1].end()
    peer.close()
    return split(peer.said, lambda said, at: unpack_from(">I", said, at)[0])


def manage(session: Session) -> None:
    node, paired = "/management", {"paired": True}
    requests = session.sender(
        p.Target(address=node),
        "pair",
        source=p.Source(address=node),
        snd_settle_mode=SETTLED,
        properties=paired,
    )
    responses = session.receiver(
        p.Source(address=node),
        name="pair",
        target=p.Target(address=node),
        snd_settle_mode=SETTLED,
        properties=paired,
        credit=20,
    )
    for number, (method, target, body) in enumerate(
        (
            ("PUT", "/queues/q", {"durable": True, "arguments": {"x-max-length": 9, "x-max-priority": 3}}),
            ("PUT", "/queues/made", {"auto_delete": True, "exclusive": True}),
            ("GET", "/queues/q", None),
            ("PUT", "/exchanges/x", {"type": "topic", "durable": True}),
            (
                "POST",
                "/bindings",
                {"source": "x", "destination_queue": "q", "binding_key": "a.#", "arguments": {}},
            ),
            ("GET", "/bindings?src=x&dstq=q&key=a.%23", None),
            ("DELETE", "/bindings/src=x;dstq=q;key=b;args=", None),
            ("DELETE", "/queues/q/messages", None),
            ("DELETE", "/queues/made", None),
            ("GET", "/nothing", None),
        )
    ):
        properties = p.Properties(message_id=number, subject=method, to=target, reply_to="$me")
        requests.send(properties, section(0x77, body))
        assert responses.get() is not None, session.ended


def publish(session: Session) -> None:
    fixed = session.sender("/queues/q")
    everything = (
        p.Header(durable=True, priority=2, ttl=60_000),
        annotations({"x-cc": ["other"], "x-note": [1, {"deep": b"\xff"}]}),
        p.Properties(
            message_id=b"id", user_id=b"guest", subject="subject", correlation_id=7, group_sequence=1
        ),
        application_properties({"n": 4, "colour": "red", "none": None}),
        data(b"body"),
        section(0x78, {Symbol("x-footer"): 1}),
    )
    for number in range(4):
        fixed.publish(data(str(number).encode()))
    fixed.publish(*everything)
    fixed.send(data(b"y" * 1500), frames=3)
    fixed.send(data(b"settled"), settled=True)
    fixed.publish(section(0x77, [1, {"a": None}]))
    fixed.publish(section(0x76, [1]), section(0x76, ["two"]))
    anywhere = session.sender(None, rcv_settle_mode=SECOND)
    number = anywhere.send(p.Properties(to="/exchanges/x/a.b"), data(b"routed"))
    session.dispose(None, number, role=False)
    anywhere.send(p.Properties(to="/exchanges/missing/k"), data(b"lost"))
    session.send(p.Transfer(handle=0, delivery_id=99, delivery_tag=b"aborted", more=True), data(b"z")[:2])
    session.send(p.Transfer(handle=0, aborted=True))
    anywhere.detach(closed=False)


def consume(session: Session) -> None:
    receiver = session.receiver(p.Source(address="/queues/q", capabilities=(Symbol("queue"),)), credit=2)
    for outcome in (
        p.Accepted(),
        p.Released(),
        p.Modified(delivery_failed=True, message_annotations={Symbol("x-opt-a"): 1}),
        p.Rejected(error=p.Error(condition=Symbol("my:reason"), description="no")),
    ):
        receiver.want(1)
        receiver.answer(outcome)
    receiver.answer(p.Accepted(), settled=False)
    session.flow(echo=True)
    receiver.want(50, drain=True)
    receiver.want(3, echo=True)
    copies = session.receiver(p.Source(address="/queues/q", distribution_mode="copy"), credit=2)
    copies.detach()
    selected = Described(Symbol("apache.org:selector-filter:string"), "n = 4 OR colour IN ('red', 'blue')")
    session.receiver(p.Source(address="/queues/q", filter={"s": selected}), credit=1, snd_settle_mode=SETTLED)
    session.receiver(p.Source(dynamic=True, capabilities=(Symbol("temporary-queue"),)), credit=5)
    receiver.detach(closed=False)


def transact(session: Session) -> None:
    control = Control(session)
    sender, receiver = session.sender("/queues/q"), session.receiver("/queues/q", credit=1)
    for finish in (control.commit, control.roll_back):
        tx = control.declare()
        sender.publish(data(b"in"), state=in_tx(tx))
        receiver.answer(in_tx(tx, p.Accepted()), settled=False)
        finish(tx)
        receiver.want(1)


def subscribe(session: Session) -> None:
    source = p.Source(address="/exchanges/x/a.%23", durable=2, expiry_policy=Symbol("never"))
    session.receiver(source, name="news", credit=3).detach(closed=False)
    session.receiver(source, name="news", credit=3).detach()
    session.receiver("/topic/a.*", credit=3)
    session.sender("/queue/old")
    session.sender("/exchange/amq.topic/a.b").publish(data(b"one"))
