"""Target addresses of version 1, §12 of the acceptance list: permitted by a switch, beside those of version 2."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .client import Session
from .parts import data
from .peer import bind, declare, declared, session_of

V1 = "protocols.amqp10.addresses.v1 = true"
HELLO = data(b"hello")
NONE, CONFIGURATION, UNSETTLED_STATE = 0, 1, 2  # terminus durability


@pytest.fixture
def bench() -> ClientBench:
    """The exchange x, and a queue q that gets all of x and of amq.topic."""
    bench = declared(ClientBench(V1), ["q"])
    bench.host.declare_exchange("x", "fanout")
    bind(bench, "x", "q")
    bind(bench, "amq.topic", "q", "#")
    return bench


def subject(text: str) -> p.Properties:
    return p.Properties(subject=text)


def keys(bench: ClientBench) -> list[tuple[str, str]]:
    messages = [delivery.message for delivery in bench.queue("q").waiting()]
    return [(message.exchange, message.key) for message in messages]


@pytest.mark.parametrize(
    ("address", "sections", "exchange", "key"),
    [
        ("/exchange/x/rk", (subject("unheeded"),), "x", "rk"),
        ("/exchange/x", (subject("the subject"),), "x", "the subject"),
        ("/exchange/x", (), "x", ""),
        ("/exchange/x/", (subject("the subject"),), "x", "the subject"),
        ("/topic/a.b", (subject("unheeded"),), "amq.topic", "a.b"),
        ("/amq/queue/q", (subject("unheeded"),), "", "q"),
        ("/queue/q", (subject("unheeded"),), "", "q"),
        ("q", (subject("unheeded"),), "", "q"),
        ("/queue", (subject("q"),), "", "q"),
        ("/reply-queue/q", (), "", "q"),
    ],
)
def test_s213_s214_s215_s216_s217_where_messages_go(
    bench: ClientBench, address: str, sections: tuple, exchange: str, key: str
) -> None:
    """X064: /reply-queue/ too."""
    sender = session_of(bench).sender(address)
    assert sender.attached.target.address == address
    assert sender.publish(*sections, HELLO) == p.Accepted()
    assert keys(bench) == [(exchange, key)]


def test_s213_each_message_has_its_own_subject(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/exchange/x")
    for text in ("one", "two", "two", "one"):
        assert sender.publish(subject(text), HELLO) == p.Accepted()
    assert sender.publish(HELLO) == p.Accepted()
    assert [key for _, key in keys(bench)] == ["one", "two", "two", "one", ""]


def test_s217_a_subject_that_names_no_queue(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queue")
    assert sender.publish(subject("nowhere"), HELLO) == p.Released()
    assert sender.publish(HELLO) == p.Released()
    assert sender.publish(subject("q"), HELLO) == p.Accepted()


def test_s213_a_subject_that_no_other_protocol_could_tell_is_refused(bench: ClientBench) -> None:
    """Routing keys have up to 255 octets."""
    session = session_of(bench)
    sender = session.sender("/exchange/x")
    assert sender.publish(subject("ä" * 127 + "a"), HELLO) == p.Accepted()
    assert len(channel_of(bench).get("q").method.routing_key.encode()) == 255
    assert sender.publish(subject("ä" * 128), HELLO) == p.Released()
    why = "a subject that is a routing key has more than 255 octets"
    assert sender.refusal() == f"amqp:invalid-field {why}"


def test_s213_s206_an_exchange_that_goes_takes_links_with_subjects_along(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/exchange/x")
    assert sender.publish(subject("one"), HELLO) == p.Accepted()
    bench.host.delete_exchange("x")
    assert sender.publish(subject("one"), HELLO) == p.Released()
    assert sender.refusal() == "amqp:not-found no exchange 'x' in vhost '/'"


def test_s088_s213_topic_permissions_hold_for_each_subject(bench: ClientBench) -> None:
    bench.user("ann")
    bench.broker.access.set_topic_permissions("ann", "/", "amq.topic", "^(a[.]|$)", "")
    sender = session_of(bench, "ann").sender("/exchange/amq.topic")
    assert sender.publish(subject("a.b"), HELLO) == p.Accepted()
    why = "write access to topic 'b.a' in exchange 'amq.topic' in vhost '/' refused for user 'ann'"
    assert sender.rejection(subject("b.a"), HELLO) == f"amqp:unauthorized-access {why}"


def test_s182_s213_a_permission_that_is_taken_away_is_missed_by_the_next_message(
    bench: ClientBench,
) -> None:
    bench.user("ann")
    sender = session_of(bench, "ann").sender("/exchange/x")
    assert sender.publish(subject("one"), HELLO) == p.Accepted()
    bench.user("ann", write="^$")
    why = "write access to exchange 'x' in vhost '/' refused for user 'ann'"
    assert sender.rejection(subject("one"), HELLO) == f"amqp:unauthorized-access {why}"


def test_s214_the_topic_exchange_by_its_own_name(bench: ClientBench) -> None:
    assert session_of(bench).sender("/topic/a").publish(HELLO) == p.Accepted()
    refused = session_of(bench).ask_sender("/topic/")
    assert refused.refusal().startswith("amqp:invalid-field Attach refused: invalid_destination topic")


def test_s215_a_queue_that_must_exist(bench: ClientBench) -> None:
    session = session_of(bench)
    assert session.ask_sender("/amq/queue/new").refusal() == "amqp:not-found no queue 'new' in vhost '/'"
    assert "new" not in bench.host.queues


@pytest.mark.parametrize("address", ["new", "/queue/new"])
@pytest.mark.parametrize(
    ("durability", "durable"), [(NONE, False), (CONFIGURATION, True), (UNSETTLED_STATE, True)]
)
def test_s216_s218_a_queue_that_is_declared(
    bench: ClientBench, address: str, durability: int, durable: bool
) -> None:
    session = session_of(bench)
    sender = session.sender(p.Target(address=address, durable=durability))
    queue = bench.queue("new")
    assert queue.durable is durable
    assert not queue.auto_delete
    assert not queue.exclusive
    assert sender.publish(HELLO) == p.Accepted()
    sender.detach()
    session.end()
    assert bench.queue("new").ready == 1


def test_s216_a_queue_that_is_there_is_taken_as_it_is(bench: ClientBench) -> None:
    declare(bench, "durable", durable=True, arguments={"x-max-length": 5})
    assert session_of(bench).sender("durable").publish(HELLO) == p.Accepted()
    assert session_of(bench).sender("/queue/durable").publish(HELLO) == p.Accepted()
    assert bench.queue("durable").ready == 2


def test_s216_declaring_needs_permission_to_configure(bench: ClientBench) -> None:
    bench.user("ann", configure="^mine$")
    session = session_of(bench, "ann")
    session.sender("mine")
    why = "configure access to queue 'yours' in vhost '/' refused for user 'ann'"
    assert session.ask_sender("yours").refusal() == f"amqp:unauthorized-access {why}"
    assert "yours" not in bench.host.queues


def test_s216_a_queue_that_is_there_is_declared_by_who_may(bench: ClientBench) -> None:
    bench.user("ann", configure="^mine$")
    session = session_of(bench, "ann")
    why = "configure access to queue 'q' in vhost '/' refused for user 'ann'"
    assert session.ask_sender("q").refusal() == f"amqp:unauthorized-access {why}"
    channel_of(bench).declare("theirs", exclusive=True)
    assert session_of(bench).ask_sender("theirs").refusal().startswith("amqp:resource-locked ")


def test_s182_s216_nothing_is_declared_for_who_may_not_publish(bench: ClientBench) -> None:
    bench.user("ann", write="^$")
    session = session_of(bench, "ann")
    why = "write access to exchange 'amq.default' in vhost '/' refused for user 'ann'"
    assert session.ask_sender("new").refusal() == f"amqp:unauthorized-access {why}"
    assert "new" not in bench.host.queues


@pytest.mark.parametrize(
    ("address", "name"),
    [("/queue/a%2Fb", "a/b"), ("/queue/a%20b", "a%20b"), ("a%2Fb", "a/b"), ("50%", "50%")],
)
def test_s222_only_the_slash_is_encoded(bench: ClientBench, address: str, name: str) -> None:
    session_of(bench).sender(address)
    assert set(bench.host.queues) == {"q", name}


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/qqq/x", "unknown_destination '/qqq/x'"),
        ("/exchange/", "invalid_destination exchange '/'"),
        ("/exchange", "invalid_destination exchange ''"),
        ("/exchange/x/a/b", "invalid_destination exchange '/x/a/b'"),
        ("", "unknown_destination ''"),
        ("/exchanges", "unknown_destination '/exchanges'"),
        ("/queues", "unknown_destination '/queues'"),
    ],
)
def test_s223_x065_what_is_no_address(bench: ClientBench, address: str, why: str) -> None:
    assert session_of(bench).ask_sender(address).refusal() == f"amqp:invalid-field Attach refused: {why}"


def test_s224_a_missing_exchange(bench: ClientBench) -> None:
    refused = session_of(bench).ask_sender("/exchange/nowhere/key")
    assert refused.refusal() == "amqp:not-found no exchange 'nowhere' in vhost '/'"


def test_s225_what_can_be_version_2_is_that(bench: ClientBench) -> None:
    session = session_of(bench)
    declare(bench, "queues")
    assert session.sender("/queues/q").publish(HELLO) == p.Accepted()
    assert session.sender("/exchanges/x/rk").publish(HELLO) == p.Accepted()
    assert keys(bench) == [("", "q"), ("x", "rk")]
    assert (
        session.ask_sender("/queues/a/b")
        .refusal()
        .startswith("amqp:invalid-field Attach refused: bad_address")
    )
    assert session.sender("/queue/queues").publish(HELLO) == p.Accepted()
    assert session.sender("queues").publish(HELLO) == p.Accepted()
    assert bench.queue("queues").ready == 2


def test_s200_s202_a_message_does_not_name_its_target_in_the_old_way(bench: ClientBench) -> None:
    sender = session_of(bench).sender(None)
    why = "amqp:precondition-failed bad 'to' address string: /queue/q"
    assert sender.rejection(p.Properties(to="/queue/q"), HELLO) == why


@pytest.mark.parametrize(
    ("toml", "permitted"),
    [
        ("", False),
        ('compat.profile = "rabbitmq-3.13"', True),
        ('compat.profile = "rabbitmq-4"', False),
        ("compat.address_v1 = true", True),
        ('compat.profile = "rabbitmq-3.13"\nprotocols.amqp10.addresses.v1 = false', False),
        (V1, True),
    ],
)
def test_s197_whether_version_1_is_permitted(toml: str, permitted: bool) -> None:
    session: Session = session_of(ClientBench(toml))
    sender = session.ask_sender("q")
    if permitted:
        assert sender.detached is None
    else:
        assert sender.refusal().startswith("amqp:invalid-field Attach refused: amqp_address_v1_not_permitted")
