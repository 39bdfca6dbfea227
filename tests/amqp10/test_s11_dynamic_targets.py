"""Dynamic targets, and what a sender's attach may ask besides an address, §11 of the acceptance list."""

from __future__ import annotations

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described
from tests.harness.bench import ClientBench

from .client import Session
from .parts import data
from .peer import Peer, session_of, waiting

HELLO = data(b"hello")


def dynamic(*capabilities: str, **fields: object) -> p.Target:
    return p.Target(dynamic=True, capabilities=list(capabilities), **fields)


def test_x062_dynamic_targets_are_temporary_queues_or_nothing(bench: ClientBench) -> None:
    session = session_of(bench)
    for target in (dynamic(), dynamic("topic")):
        assert (
            session.ask_sender(target)
            .refusal()
            .startswith("amqp:not-implemented Dynamic target not supported: ")
        )
    assert set(bench.host.queues) == {"q"}


def test_s211_a_dynamic_target_is_a_queue_that_lives_as_long_as_the_link(bench: ClientBench) -> None:
    session = Peer(bench).open(container_id="client").begin()
    sender = session.sender(dynamic("temporary-queue"), name="link")
    target = sender.attached.target
    name = target.address.removeprefix("/queues/")
    assert name.startswith("amq.dyn-client-link")
    assert target.dynamic
    assert target.expiry_policy == "link-detach"
    assert target.capabilities == ["temporary-queue"]
    assert target.dynamic_node_properties["lifetime-policy"] in (p.DeleteOnClose(), Described(0x2B, []))
    assert bench.queue(name).exclusive
    assert sender.publish(HELLO) == p.Accepted()
    assert waiting(bench, name) == [HELLO]
    receiver = session.receiver(target.address, credit=1)
    assert receiver.get().body == b"hello"
    sender.detach()
    assert set(bench.host.queues) == {"q"}
    assert receiver.refusal().startswith("amqp:resource-deleted")


def test_s211_the_name_of_a_dynamic_target_has_an_end(bench: ClientBench) -> None:
    session = Peer(bench).open(container_id="c" * 100).begin()
    address = session.sender(dynamic("temporary-queue"), name="l" * 50).attached.target.address
    assert address.startswith("/queues/amq.dyn.gen")


def test_s211_a_dynamic_target_goes_with_its_session_and_connection(bench: ClientBench) -> None:
    session = session_of(bench)
    session.sender(dynamic("temporary-queue"))
    session.end()
    assert set(bench.host.queues) == {"q"}
    session_of(bench).sender(dynamic("temporary-queue")).peer.drop()
    assert set(bench.host.queues) == {"q"}


def test_s182_s211_a_dynamic_target_needs_both_permissions(bench: ClientBench) -> None:
    for permissions, what in (
        ({"write": "^$"}, "write access to exchange 'amq.default'"),
        ({"configure": "^$"}, "configure access to queue 'amq.dyn"),
    ):
        bench.user("ann", **permissions)
        session = session_of(bench, "ann")
        assert (
            session.ask_sender(dynamic("temporary-queue"))
            .refusal()
            .startswith(f"amqp:unauthorized-access {what}")
        )
        assert set(bench.host.queues) == {"q"}


# Outcomes.


def test_x057_a_sender_that_asks_for_unknown_outcomes_is_refused(bench: ClientBench) -> None:
    session: Session = session_of(bench)
    source = p.Source(address="test", outcomes=["amqp:accepted:list", "amqp:great:list"])
    assert session.ask_sender("/queues/q", source=source).refusal() == (
        "amqp:not-implemented Outcomes not supported: [amqp:great:list]"
    )
    source = p.Source(address="test", outcomes=["amqp:accepted:list", "amqp:rejected:list"])
    sender = session.sender("/queues/q", source=source)
    assert sender.attached.source == source
    assert sender.publish(HELLO) == p.Accepted()
