"""Target addresses of version 2 from the client's side, §11 of the acceptance list: where a sender's messages go."""

from __future__ import annotations

from struct import pack

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.publishing.publish_targets import TARGETS_MAX, targets_of
from tests.harness.bench import ClientBench, StoredBench

from .client import SETTLED, Sender
from .controller import Control, in_tx
from .parts import annotations, data, told
from .peer import Peer, bind, declare, declared, session_of
from .samples import BAD_ADDRESSES

HELLO = data(b"hello")


def to(address: str) -> p.Properties:
    return p.Properties(to=address)


def keys(bench: ClientBench, queue: str = "q") -> list[tuple[str, str]]:
    """Exchange and routing key of the messages in a queue."""
    messages = [delivery.message for delivery in bench.queue(queue).waiting()]
    return [(message.exchange, message.key) for message in messages]


def catch_all(bench: ClientBench, exchange: str, type_: str = "fanout") -> str:
    """An exchange whose messages all go to q."""
    if exchange not in bench.host.exchanges:
        bench.host.declare_exchange(exchange, type_)
    bind(bench, exchange, "q", "#" if type_ == "topic" else "")
    return exchange


# Fixed targets.


@pytest.mark.parametrize(
    ("address", "exchange", "key"),
    [
        ("/exchanges/x/rk", "x", "rk"),
        ("/exchanges/x", "x", ""),
        ("/exchanges/x/", "x", ""),
        ("/exchanges/x/a.b.c", "x", "a.b.c"),
        ("/exchanges/x/my-routing_key%2F123", "x", "my-routing_key/123"),
        ("/exchanges/x/+%2B", "x", "++"),
        ("/exchanges/x/%F0%9F%A5%95", "x", "🥕"),
        ("/exchanges/x/!$&'()*+,;=:@-._~", "x", "!$&'()*+,;=:@-._~"),
        ("/exchanges/x/%c3%A4", "x", "ä"),
        ("/queues/q", "", "q"),
    ],
)
def test_s183_s184_s186_s187_s188_a_message_goes_where_its_target_says(
    bench: ClientBench, address: str, exchange: str, key: str
) -> None:
    """X058: hexadecimal digits of either case."""
    catch_all(bench, "x")
    sender = session_of(bench).sender(address)
    assert sender.attached.target.address == address
    assert sender.publish(HELLO) == p.Accepted()
    assert keys(bench) == [(exchange, key)]


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("a/b", "a%2Fb"), ("🥕", "%F0%9F%A5%95"), ("50%", "50%25"), (" ", "%20"), ("+", "+")],
)
def test_s187_s212_names_are_percent_encoded(bench: ClientBench, name: str, encoded: str) -> None:
    """S210: in targets, and in `to`."""
    declare(bench, name)
    bench.host.declare_exchange(name, "fanout")
    bind(bench, name, name)
    session = session_of(bench)
    for address in (f"/queues/{encoded}", f"/exchanges/{encoded}"):
        assert session.sender(address).publish(HELLO) == p.Accepted()
        assert session.sender(None).publish(to(address), HELLO) == p.Accepted()
    assert bench.queue(name).ready == 4


BAD = [*BAD_ADDRESSES, "/exchanges/%61mq.default/mykey"]


@pytest.mark.parametrize("address", BAD)
def test_s189_s190_s191_bad_addresses_are_refused(bench: ClientBench, address: str) -> None:
    sender = session_of(bench).ask_sender(address)
    assert sender.refusal() == f"amqp:invalid-field Attach refused: bad_address_string '{address}'"


@pytest.mark.parametrize(
    "address", ["q", "/queue/q", "/exchange/x", "/topic/a", "", "/", "/queues", "/exchanges"]
)
def test_s197_x065_other_addresses_are_refused(bench: ClientBench, address: str) -> None:
    sender = session_of(bench).ask_sender(address)
    assert sender.refusal() == f"amqp:invalid-field Attach refused: amqp_address_v1_not_permitted '{address}'"


def test_s192_a_missing_exchange(bench: ClientBench) -> None:
    sender = session_of(bench).ask_sender("/exchanges/nowhere/key")
    assert sender.attached.target is None
    assert sender.refusal() == "amqp:not-found no exchange 'nowhere' in vhost '/'"


def test_s193_a_missing_queue(bench: ClientBench) -> None:
    sender = session_of(bench).ask_sender("/queues/nowhere")
    assert sender.attached.target is None
    assert sender.refusal() == "amqp:not-found no queue 'nowhere' in vhost '/'"


def test_s198_an_internal_exchange(bench: ClientBench) -> None:
    bench.host.declare_exchange("x", "fanout", internal=True)
    why = "amqp:unauthorized-access forbidden to publish to internal exchange 'x' in vhost '/'"
    session = session_of(bench)
    assert session.ask_sender("/exchanges/x").refusal() == why
    sender = session.sender(None)
    sender.send(to("/exchanges/x"), HELLO)
    assert sender.refusal() == why
    assert session.ended is None


def test_an_exclusive_queue_can_be_sent_to_by_everybody(bench: ClientBench) -> None:
    """As through the default exchange in 0-9-1: exclusive is who consumes."""
    owner = Peer(bench).open()
    owner.front.client.declare_queue("mine", exclusive=True)
    assert session_of(bench).sender("/queues/mine").publish(HELLO) == p.Accepted()


# Permissions.


@pytest.mark.parametrize(
    ("address", "name"),
    [("/exchanges/x/key", "x"), ("/queues/q", "amq.default"), ("/exchanges/nowhere", "nowhere")],
)
def test_s182_s184_without_permission_to_write_the_attach_is_refused_or_the_message_rejected(
    bench: ClientBench, address: str, name: str
) -> None:
    bench.host.declare_exchange("x", "fanout")
    bench.user("ann", write="^$")
    why = f"write access to exchange '{name}' in vhost '/' refused for user 'ann'"
    session = session_of(bench, "ann")
    refused = session.ask_sender(address)
    assert refused.attached.target is None
    assert refused.refusal() == f"amqp:unauthorized-access {why}"
    sender, other = session.sender(None), session.receiver("/queues/q")
    for _ in range(400):  # its credit comes back
        assert sender.rejection(to(address), HELLO) == f"amqp:unauthorized-access {why}"
    number = sender.send(to(address), HELLO, settled=True)
    assert sender.refusal() == f"amqp:unauthorized-access {why}"
    assert sender.detached.error.info == {"delivery-tag": pack(">I", number)}
    assert (session.ended, other.detached) == (None, None)


@pytest.mark.parametrize("profile", ["rabbitmq-3.13", "rabbitmq-4.0", "rabbitmq-4"])
def test_s182_in_the_profiles_of_rabbitmq_the_session_ends(profile: str) -> None:
    bench = ClientBench(f'compat.profile = "{profile}"')
    declare(bench, "q", durable=True)
    bench.user("ann", write="^$")
    why = (
        "amqp:unauthorized-access write access to exchange 'amq.default' in vhost '/' refused for user 'ann'"
    )
    session = session_of(bench, "ann")
    session.ask_sender("/queues/q")
    assert session.refusal() == why
    session = session.peer.begin()
    session.sender(None).send(to("/queues/q"), HELLO)
    assert session.refusal() == why


@pytest.mark.parametrize("target", ["/queues/q", None])
def test_s182_in_a_transaction_the_message_is_rejected(bench: ClientBench, target: str | None) -> None:
    bench.user("ann")
    session = session_of(bench, "ann")
    sender, control = session.sender(target), Control(session)
    bench.user("ann", write="^$")
    tx = control.declare()
    number = sender.send(to("/queues/q"), HELLO, state=in_tx(tx))
    outcome = sender.outcome(number)
    assert isinstance(outcome, p.TransactionalState)
    assert told(outcome.outcome.error).startswith("amqp:unauthorized-access write access to exchange")
    assert control.commit(tx) == p.Accepted()  # its controller knows
    tx = control.declare()
    sender.send(to("/queues/q"), HELLO, state=in_tx(tx), settled=True)
    assert told(control.commit(tx).error).startswith("amqp:transaction:rollback")
    assert (session.ended, sender.detached, bench.queue("q").ready) == (None, None, 0)


def test_s182_a_permission_that_is_taken_away_is_missed_by_the_next_message(
    bench: ClientBench,
) -> None:
    bench.user("ann")
    session = session_of(bench, "ann")
    fixed, anonymous = session.sender("/queues/q"), session.peer.begin().sender(None)
    assert fixed.publish(HELLO) == p.Accepted()
    assert anonymous.publish(to("/queues/q"), HELLO) == p.Accepted()
    bench.user("ann", write="^x$")
    why = "write access to exchange 'amq.default' in vhost '/' refused for user 'ann'"
    assert fixed.rejection(HELLO) == f"amqp:unauthorized-access {why}"
    assert anonymous.rejection(to("/queues/q"), HELLO) == f"amqp:unauthorized-access {why}"
    assert bench.queue("q").ready == 2
    bench.user("ann")
    assert fixed.publish(HELLO) == p.Accepted()


def test_s182_what_came_before_the_refusal_is_answered(bench: ClientBench) -> None:
    bench.user("ann", write="^amq.default$")
    session = session_of(bench, "ann")
    sender = session.sender(None)
    good = sender.send(to("/queues/q"), HELLO, settle=False)
    bad = sender.send(to("/exchanges/amq.fanout"), HELLO, settle=False)
    last = sender.send(to("/queues/q"), HELLO, settle=False)
    bench.settle()
    assert sender.outcome(good) == sender.outcome(last) == p.Accepted()
    rejected = sender.outcome(bad)
    assert told(rejected.error).startswith("amqp:unauthorized-access write access to exchange 'amq.fanout'")
    assert session.ended is None


def test_s088_s182_topic_permissions_hold_for_each_key(bench: ClientBench) -> None:
    bench.user("ann")
    bench.broker.access.set_topic_permissions("ann", "/", "amq.topic", "^a[.]", "")
    bind(bench, "amq.topic", "q", "#")
    peer = Peer(bench).open("ann")
    good = peer.begin()
    assert good.sender("/exchanges/amq.topic/a.b").publish(HELLO) == p.Accepted()
    assert good.sender(None).publish(to("/exchanges/amq.topic/a.c"), HELLO) == p.Accepted()
    refused = "write access to topic 'b.a' in exchange 'amq.topic' in vhost '/' refused for user 'ann'"
    why = f"amqp:unauthorized-access {refused}"
    assert good.ask_sender("/exchanges/amq.topic/b.a").refusal() == why
    assert good.sender(None).rejection(to("/exchanges/amq.topic/b.a"), HELLO) == why
    copied = good.sender("/exchanges/amq.topic/a.b")
    assert copied.rejection(annotations({"x-cc": ["a.d", "b.a"]}), HELLO) == why
    assert copied.publish(annotations({"x-cc": ["a.d"]}), HELLO) == p.Accepted()
    assert (good.ended, bench.queue("q").ready) == (None, 3)


# The anonymous terminus.


@pytest.mark.parametrize("target", [p.Target(), p.Target(address=None, capabilities=["x"])])
def test_s199_a_null_address_is_the_anonymous_terminus(bench: ClientBench, target: p.Target) -> None:
    sender = session_of(bench).sender(target)
    assert sender.attached.target is not None
    assert sender.attached.target.address is None
    assert sender.publish(to("/queues/q"), HELLO) == p.Accepted()


def test_s199_so_is_no_target_at_all(bench: ClientBench) -> None:
    session = session_of(bench)
    sender = Sender(session, "sender")
    session.attach(sender, initial_delivery_count=0)
    assert sender.attached.target == p.Target()
    assert sender.publish(to("/queues/q"), HELLO) == p.Accepted()


def test_s200_each_message_names_its_target(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender(None)
    for address in ("/exchanges/x/one", "/queues/q", "/exchanges/x", "/exchanges/x/one", "/queues/q"):
        assert sender.publish(to(address), HELLO) == p.Accepted()
    assert keys(bench) == [("x", "one"), ("", "q"), ("x", ""), ("x", "one"), ("", "q")]


def test_s201_a_message_without_a_target_is_rejected_and_the_link_goes_on(bench: ClientBench) -> None:
    sender = session_of(bench).sender(None)
    why = "amqp:precondition-failed anonymous terminus requires 'to' address to be set"
    assert sender.rejection(HELLO) == why
    assert sender.rejection(p.Properties(subject="q"), HELLO) == why
    assert sender.publish(to("/queues/q"), HELLO) == p.Accepted()


@pytest.mark.parametrize("address", [*BAD, "q", "/queue/q", "", "/queues"])
def test_s200_s202_a_bad_target_is_rejected_and_the_link_goes_on(bench: ClientBench, address: str) -> None:
    sender = session_of(ClientBench("protocols.amqp10.addresses.v1 = true")).sender(None)
    assert (
        sender.rejection(to(address), HELLO) == f"amqp:precondition-failed bad 'to' address string: {address}"
    )
    assert sender.publish(to("/exchanges/amq.fanout"), HELLO) == p.Released()


def test_s203_x063_a_missing_exchange_is_rejected_and_the_credit_comes_back(bench: ClientBench) -> None:
    sender = session_of(bench).sender(None)
    for _ in range(300):
        why = "amqp:not-found no exchange 'nowhere' in vhost '/'"
        assert sender.rejection(to("/exchanges/nowhere/key"), HELLO) == why
        assert sender.credit > 0
    assert sender.publish(to("/queues/q"), HELLO) == p.Accepted()


def test_s203_x063_rejections_of_one_batch_keep_to_their_messages(bench: ClientBench) -> None:
    """Accepted and rejected in turn, all answered together."""
    sender = session_of(bench).sender(None)
    addresses = ["/queues/q", "/exchanges/nowhere", "/queues/nowhere"]
    ids = [sender.send(to(addresses[at % 3]), HELLO, settle=False) for at in range(150)]
    bench.settle()
    outcomes = [type(sender.outcome(number)) for number in ids]
    assert outcomes == [p.Accepted, p.Rejected, p.Released] * 50


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ((to("/exchanges/nowhere"), HELLO), "amqp:not-found no exchange 'nowhere' in vhost '/'"),
        ((to("nonsense"), HELLO), "amqp:precondition-failed bad 'to' address string: nonsense"),
        ((HELLO,), "amqp:precondition-failed anonymous terminus requires 'to' address to be set"),
    ],
)
def test_s204_a_settled_message_without_a_target_ends_the_link(
    bench: ClientBench, sections: tuple, why: str
) -> None:
    sender = session_of(bench).sender(None)
    sender.send(*sections, settled=True, tag=b"its tag")
    assert sender.refusal() == why
    assert sender.detached.error.info == {"delivery-tag": b"its tag"}


def test_s205_a_missing_queue_is_no_error_but_nobody_gets_the_message(bench: ClientBench) -> None:
    sender = session_of(bench).sender(None)
    assert sender.publish(to("/queues/nowhere"), HELLO) == p.Released()
    assert sender.publish(to("/queues/nowhere"), HELLO, settled=True) is None
    assert sender.publish(to("/queues/q"), HELLO) == p.Accepted()


def test_what_is_remembered_of_addresses_has_an_end(bench: ClientBench) -> None:
    sender = session_of(bench).sender(None)
    for number in range(TARGETS_MAX + 10):
        sender.send(to(f"/queues/{number}"), HELLO, settled=True, settle=False)
    sender.peer.read()
    assert 0 < len(targets_of(sender.peer.front.client, "amqp10").by_name) <= TARGETS_MAX


def test_s199_a_fixed_target_heeds_no_to(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender("/exchanges/x/key")
    for address in ("/queues/q", "nonsense", "/exchanges/nowhere"):
        assert sender.publish(to(address), HELLO) == p.Accepted()
    assert keys(bench) == [("x", "key")] * 3


# Changes.


def test_s206_a_deleted_exchange_ends_the_link_at_the_next_message(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender("/exchanges/x/key")
    assert sender.publish(HELLO) == p.Accepted()
    bench.host.delete_exchange("x")
    assert sender.detached is None
    assert sender.publish(HELLO) == p.Released()
    assert sender.refusal() == "amqp:not-found no exchange 'x' in vhost '/'"


def test_s206_a_settled_message_to_a_deleted_exchange_ends_the_link_too(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender("/exchanges/x/key", snd_settle_mode=SETTLED)
    bench.host.delete_exchange("x")
    sender.send(HELLO)
    assert sender.refusal() == "amqp:not-found no exchange 'x' in vhost '/'"


def test_s206_what_came_before_the_deletion_is_accepted(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender("/exchanges/x/key")
    before = sender.send(HELLO, settle=False)
    bench.host.delete_exchange("x")
    after = sender.send(HELLO, settle=False)
    bench.settle()
    assert sender.outcome(before) == p.Accepted()
    assert sender.outcome(after) == p.Released()
    assert sender.refusal().startswith("amqp:not-found")


def test_s206_an_exchange_made_again_is_found_again(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender("/exchanges/x/key")
    anonymous = sender.session.sender(None)
    assert anonymous.publish(to("/exchanges/x/key"), HELLO) == p.Accepted()
    bench.host.delete_exchange("x")
    catch_all(bench, "x", "topic")
    assert sender.publish(HELLO) == p.Accepted()
    assert anonymous.publish(to("/exchanges/x/key"), HELLO) == p.Accepted()
    assert bench.host.exchange("x").published == 2


def test_s203_an_exchange_that_goes_is_missed_on_the_anonymous_terminus(bench: ClientBench) -> None:
    catch_all(bench, "x")
    sender = session_of(bench).sender(None)
    assert sender.publish(to("/exchanges/x"), HELLO) == p.Accepted()
    bench.host.delete_exchange("x")
    assert sender.rejection(to("/exchanges/x"), HELLO) == "amqp:not-found no exchange 'x' in vhost '/'"


def test_s179_the_sender_of_a_deleted_queue_is_detached(bench: ClientBench) -> None:
    session = session_of(bench)
    sender, other = session.sender("/queues/q"), session.sender("/exchanges/amq.direct/q")
    answered = sender.send(HELLO)
    bench.host.delete_queue(bench.queue("q"))
    sender.peer.read()
    assert sender.detached is None  # what is read with the answer to a deletion, clients take for its failure
    bench.advance(0.02)
    assert sender.refusal() == "amqp:resource-deleted queue 'q' in vhost '/' was deleted"
    assert sender.outcome(answered) == p.Accepted()
    assert other.publish(HELLO) == p.Released()
    declare(bench, "q")
    assert session.sender("/queues/q").publish(HELLO) == p.Accepted()


@pytest.mark.parametrize("way", ["delete", "declare again", "expire", "auto-delete"])
@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_s179_queues_of_all_types_end_their_senders_however_they_go(kind: str, way: str) -> None:
    bench = StoredBench()
    arguments = {"x-queue-type": kind}
    if kind != "stream" and way == "expire":
        arguments["x-expires"] = 1000  # type: ignore[assignment]
    auto_delete = kind != "stream" and way == "auto-delete"
    bench.host.declare_queue("q", durable=True, auto_delete=auto_delete, arguments=arguments)
    bench.settle()
    session = session_of(bench)
    sender, silent = session.sender("/queues/q"), session.sender("/queues/q", "silent")
    bench.store.held = True
    answered = sender.send(p.Header(durable=True), HELLO)
    if auto_delete:
        session.receiver("/queues/q").detach()
    elif "x-expires" in arguments:
        bench.advance(1)
    else:
        bench.host.delete_queue(bench.queue("q"))
    assert "q" not in bench.host.queues
    if way == "declare again":
        declare(bench, "q", durable=True, arguments=arguments)
    bench.advance(0.02)
    error = "amqp:resource-deleted queue 'q' in vhost '/' was deleted"
    assert silent.refusal() == error
    assert sender.detached is None  # before its message is answered, which waits for the disk
    bench.store.held = False
    while bench.store.given:
        bench.store.land()
    bench.advance(0.02)
    assert sender.outcome(answered) == p.Accepted()
    assert sender.refusal() == error


def test_s179_a_sender_that_has_left_is_not_told(bench: ClientBench) -> None:
    session = session_of(bench)
    session.sender("/queues/q").detach()
    queue = bench.queue("q")
    assert not queue.watchers
    bench.host.delete_queue(queue)
    session.sender("/exchanges/amq.direct/q")


def test_s179_a_deleted_queue_is_missed_by_its_sender() -> None:
    """In some profiles the link goes on: it leads to the default exchange, and there may be such a queue again."""
    bench = declared(ClientBench('compat.orphaned_sender = "release"'), ["q"])
    sender = session_of(bench).sender("/queues/q")
    assert sender.publish(HELLO) == p.Accepted()
    bench.host.delete_queue(bench.queue("q"))
    assert sender.publish(HELLO) == p.Released()
    declare(bench, "q")
    assert sender.publish(HELLO) == p.Accepted()


def test_s179_where_another_queue_has_the_message_it_is_accepted(bench: ClientBench) -> None:
    catch_all(bench, "x")
    declare(bench, "other")
    bind(bench, "x", "other")
    sender = session_of(bench).sender("/exchanges/x")
    assert sender.publish(HELLO) == p.Accepted()
    bench.host.delete_queue(bench.queue("q"))
    assert sender.publish(HELLO) == p.Accepted()
    bench.host.delete_queue(bench.queue("other"))
    assert sender.publish(HELLO) == p.Released()


# Annotations.


def test_s207_annotations_of_the_brokers_own_do_not_route(bench: ClientBench) -> None:
    catch_all(bench, "x")
    declare(bench, "other")
    sender = session_of(bench).sender("/exchanges/x/key")
    said = annotations({"x-exchange": "amq.direct", "x-routing-key": "other"})
    assert sender.publish(said, HELLO) == p.Accepted()
    anonymous = sender.session.sender(None)
    assert anonymous.publish(said, to("/exchanges/x/key"), HELLO) == p.Accepted()
    assert keys(bench) == [("x", "key")] * 2
    assert bench.queue("other").ready == 0


def test_s208_x_cc_adds_routing_keys(bench: ClientBench) -> None:
    for name in ("one", "two", "three"):
        declare(bench, name)
        bind(bench, "amq.direct", name, name)
    session = session_of(bench)
    copies = annotations({"x-cc": ["two", "three", "nowhere"]})
    for sender, sections in (
        (session.sender("/exchanges/amq.direct/one"), (copies, HELLO)),
        (session.sender("/queues/one"), (copies, HELLO)),
        (session.sender(None), (copies, to("/queues/one"), HELLO)),
        (session.sender("/exchanges/amq.direct/nowhere"), (copies, HELLO)),
    ):
        assert sender.publish(*sections) == p.Accepted()
    assert [bench.queue(name).ready for name in ("one", "two", "three")] == [3, 4, 4]


BAD_COPIES = ["two", 5, {"two": "two"}, [5], ["two", b"three"], [["two"]]]


@pytest.mark.parametrize("value", BAD_COPIES)
def test_s208_any_other_x_cc_is_released_and_ends_a_fixed_link(bench: ClientBench, value: object) -> None:
    sender = session_of(bench).sender("/queues/q")
    assert sender.publish(annotations({"x-cc": value}), HELLO) == p.Released()
    assert sender.refusal().startswith("amqp:invalid-field bad value for 'x-cc' message-annotation: ")
    sender = sender.session.sender("/queues/q")
    assert sender.publish(annotations({"x-cc": value}), HELLO, settled=True) is None
    assert sender.refusal().startswith("amqp:invalid-field bad value for 'x-cc' message-annotation: ")
    assert bench.queue("q").ready == 0


@pytest.mark.parametrize("value", BAD_COPIES)
def test_s208_any_other_x_cc_is_rejected_on_the_anonymous_terminus(bench: ClientBench, value: object) -> None:
    sender = session_of(bench).sender(None)
    sections = annotations({"x-cc": value}), to("/queues/q"), HELLO
    assert sender.rejection(*sections).startswith(
        "amqp:invalid-field bad value for 'x-cc' message-annotation: "
    )
    assert sender.publish(to("/queues/q"), HELLO) == p.Accepted()
    sender.send(*sections, settled=True)
    assert sender.refusal().startswith("amqp:invalid-field bad value for 'x-cc' message-annotation: ")
    assert bench.queue("q").ready == 1


def test_s209_reserved_annotation_keys_end_the_link(bench: ClientBench) -> None:
    for target, more in (("/queues/q", ()), (None, (to("/queues/q"),))):
        sender = session_of(bench).sender(target)
        sender.send(annotations({"mine": 1}), *more, HELLO)
        assert sender.refusal().startswith("amqp:decode-error failed to parse message: ")
    assert bench.queue("q").ready == 0
