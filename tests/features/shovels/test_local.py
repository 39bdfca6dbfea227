"""Shovels within a node: what they move, in which order, with whose permissions, and what is left when they stop."""

from __future__ import annotations

import attrs
import pytest

from leveret.errors import NotFound, PreconditionFailed, TooMany
from leveret.features.shovels import shovels as shovels_module
from leveret.features.shovels.shovels import Shovels
from leveret.features.transfers.transfer import delay_s
from leveret.message import LOWEST, Facts
from tests.harness.bench import ClientBench

from .yard import LOCAL, StoredYard, Yard


@pytest.fixture
def yard() -> Yard:
    return Yard()


MODES = ["on-confirm", "on-publish", "no-ack"]


@pytest.mark.parametrize("mode", MODES)
def test_messages_are_moved_in_order_and_those_that_come_later_too(yard: Yard, mode: str) -> None:
    yard.host.declare_queue("from")
    yard.publish(b"1", b"2")
    shovel = yard.set(ack_mode=mode)
    yard.publish(b"3")
    assert yard.bodies() == [b"1", b"2", b"3"]
    source = yard.host.queues["from"]
    assert (source.ready, source.unsettled, shovel.forwarded, shovel.state) == (0, 0, 3, "running")
    assert yard.host.queues["to"].durable  # it was declared


def test_more_than_the_prefetch_is_moved_a_prefetch_at_a_time(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.publish(*(b"%d" % number for number in range(50)))
    yard.set(src_prefetch_count=3)
    assert yard.host.queues["from"].unsettled <= 3
    yard.run(1.0)
    assert yard.bodies() == [b"%d" % number for number in range(50)]


def test_a_queue_is_moved_to_itself_without_an_end_to_the_settle(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.publish(b"1")
    shovel = yard.set(dest_queue="from")
    assert shovel.forwarded > 1
    source = yard.host.queues["from"]
    assert 1 <= source.ready + source.unsettled <= 2  # a copy is there before its original is gone


def test_an_exchange_is_the_source_by_a_queue_of_the_shovels_own(yard: Yard) -> None:
    yard.host.declare_queue("to")
    shovel = yard.set(src_exchange="amq.topic", src_exchange_key="a.#")
    (own,) = [name for name in yard.host.queues if name != "to"]
    yard.broker.publish(yard.host.exchanges["amq.topic"], attrs_message("a.b"))
    yard.run()
    assert yard.bodies() == [b"x"]
    yard.shovels.delete("/", "s")
    assert own not in yard.host.queues
    assert shovel.forwarded == 1


def attrs_message(key: str):  # type: ignore[no-untyped-def]
    from leveret.message import Message
    from leveret.protocols.amqp091.broker.encoding import ENCODING

    return Message(ENCODING, "amq.topic", key, b"\x00\x00", b"x", Facts())


def test_an_exchange_is_the_destination_with_the_messages_key_or_another(yard: Yard) -> None:
    for name in ("from", "kept", "other"):
        yard.host.declare_queue(name)
    for key, queue in (("from", "kept"), ("k", "other")):
        yard.host.bind(yard.host.exchanges["amq.direct"], yard.host.queues[queue], key, {})
    yard.publish(b"1")
    yard.set(dest_exchange="amq.direct")
    assert yard.bodies("kept") == [b"1"]
    yard.set(dest_exchange="amq.direct", dest_exchange_key="k")
    yard.publish(b"2")
    assert yard.bodies("other") == [b"2"]


def test_headers_tell_of_the_way_if_they_are_asked_for(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.publish(b"1")
    yard.set(dest_add_forward_headers=True, dest_add_timestamp_header=True)
    (delivery,) = yard.host.queues["to"].waiting()
    headers = delivery.message.headers
    (mark,) = headers["x-shovelled"]  # type: ignore[misc, union-attr]
    assert mark["shovel-name"] == "s"  # type: ignore[index, call-overload]
    assert mark["src-queue"] == "from"  # type: ignore[index, call-overload]
    assert "x-shovelled-timestamp" in headers


# Failures.


def test_what_a_destination_exchange_routes_to_no_queue_stays_at_the_source_on_confirm(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.host.declare_queue("kept")
    yard.host.bind(yard.host.exchanges["amq.direct"], yard.host.queues["kept"], "from", {})
    yard.publish(b"1")
    shovel = yard.set(dest_exchange="amq.direct", reconnect_delay=1)
    yard.host.unbind(yard.host.exchanges["amq.direct"], yard.host.queues["kept"], "from", {})
    yard.publish(*(b"%d" % number for number in range(2, 22)))
    assert (shovel.state, shovel.forwarded, yard.host.queues["from"].ready) == ("terminated", 1, 20)
    assert (
        shovel.reason
        == "exchange 'amq.direct' of the destination routes a message with the key 'from' to no queue"
    )
    yard.host.bind(yard.host.exchanges["amq.direct"], yard.host.queues["kept"], "from", {})
    yard.run(70.0)
    assert yard.bodies("kept") == [b"%d" % number for number in range(1, 22)]


def test_an_alternate_exchange_takes_what_no_binding_of_the_destination_matches(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.host.declare_exchange("there", "direct", arguments={"alternate-exchange": "amq.fanout"})
    yard.host.bind(yard.host.exchanges["amq.fanout"], yard.host.declare_queue("rest"), "", {})
    yard.publish(b"1", b"2")
    yard.set(dest_exchange="there")
    assert yard.bodies("rest") == [b"1", b"2"]


@pytest.mark.parametrize("mode", MODES)
def test_a_full_destination_loses_nothing_on_confirm(yard: Yard, mode: str) -> None:
    yard.host.declare_queue("from")
    yard.host.declare_queue("to", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    yard.publish(b"1", b"2", b"3")
    shovel = yard.set(ack_mode=mode, reconnect_delay=1)
    if mode != "on-confirm":
        assert (yard.bodies(), shovel.forwarded) == ([b"1"], 3)
        return
    assert (shovel.state, shovel.reason) == ("terminated", "the destination refuses messages")
    moved: list[bytes] = []
    for _ in range(10):
        moved += yard.bodies()
        yard.host.queues["to"].purge()
        yard.run(70.0)
    assert set(moved) == {b"1", b"2", b"3"}  # some may come twice


def test_a_destination_queue_that_is_gone_is_declared_again_and_nothing_is_lost(yard: Yard) -> None:
    yard.host.declare_queue("from")
    shovel = yard.set(reconnect_delay=1)
    yard.host.delete_queue(yard.host.queues["to"])
    yard.publish(b"1")
    assert shovel.state == "terminated"
    yard.run(5.0)
    assert yard.bodies() == [b"1"]


def test_a_predeclared_queue_has_to_be_there(yard: Yard) -> None:
    shovel = yard.set(src_predeclared=True)
    assert (shovel.state, "from" in yard.host.queues) == ("terminated", False)
    assert "from" in shovel.reason
    yard.host.declare_queue("from")
    yard.run(20.0)
    assert shovel.state == "running"


def test_a_source_queue_that_is_deleted_is_declared_again(yard: Yard) -> None:
    shovel = yard.set(reconnect_delay=1)
    yard.host.delete_queue(yard.host.queues["from"])
    yard.run(0.5)
    assert shovel.state == "terminated"
    yard.run(3.0)
    assert (shovel.state, "from" in yard.host.queues) == ("running", True)


def test_it_does_not_try_again_if_the_delay_is_0(yard: Yard) -> None:
    shovel = yard.set(src_predeclared=True, reconnect_delay=0)
    yard.host.declare_queue("from")
    yard.run(1000.0)
    assert shovel.state == "terminated"
    shovel.restart()
    yard.run()
    assert shovel.state == "running"


def test_delays_grow_to_a_minute_and_longer_ones_stay() -> None:
    assert [delay_s(5, failures) for failures in (1, 2, 3, 4, 5, 50)] == [5, 10, 20, 40, 60, 60]
    assert [delay_s(300, failures) for failures in (1, 9)] == [300, 300]


def test_what_is_unsettled_waits_again_when_it_is_deleted(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.bench.queue("from")
    shovel = yard.set(reconnect_delay=1)
    yard.broker.alarms.set("a test")
    yard.publish(b"1", b"2")
    assert (shovel.is_blocked, yard.bodies()) == (True, [])
    yard.shovels.delete("/", "s")
    assert yard.bodies("from") == [b"1", b"2"]
    with pytest.raises(NotFound):
        yard.shovels.delete("/", "s")


def test_an_alarm_holds_it_back_and_little_is_kept_meanwhile(yard: Yard) -> None:
    yard.host.declare_queue("from")
    shovel = yard.set(ack_mode="no-ack")
    yard.broker.alarms.set("a test")
    yard.publish(*[bytes(300_000)] * 20)
    assert yard.host.queues["from"].ready >= 10
    assert yard.bodies() == []
    yard.broker.alarms.clear("a test")
    yard.run(2.0)
    assert (len(yard.bodies()), shovel.is_blocked) == (20, False)


# Permissions.


def test_it_has_the_permissions_of_the_user_that_set_it(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.host.declare_queue("to")
    yard.bench.user("reader", write="^$")
    yard.publish(b"1")
    shovel = yard.set(user="reader", reconnect_delay=1)
    assert (shovel.state, yard.bodies()) == ("terminated", [])
    assert "access" in shovel.reason
    yard.broker.access.set_permissions("reader", "/", "", ".*", ".*")
    yard.run(3.0)
    assert yard.bodies() == [b"1"]


@pytest.mark.parametrize("loses", ["read", "write", "user", "host"])
def test_permissions_that_are_taken_away_end_it(yard: Yard, loses: str) -> None:
    yard.host.declare_queue("from")
    yard.host.declare_queue("to")
    yard.bench.user("mover")
    yard.set(user="mover", reconnect_delay=1)
    access = yard.broker.access
    if loses == "user":
        access.delete_user("mover")
    elif loses == "host":
        access.clear_permissions("mover", "/")
    else:
        access.set_permissions(
            "mover", "/", ".*", "^$" if loses == "write" else ".*", "^$" if loses == "read" else ".*"
        )
    yard.publish(b"1")
    yard.publish(b"2")
    assert yard.shovel.state == "terminated"
    assert set(yard.bodies("from")) | set(yard.bodies()) == {b"1", b"2"}
    assert b"2" in yard.bodies("from")


# A number of messages.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("asked", "moved"), [("queue-length", 3), (2, 2), (0, 0)])
def test_it_deletes_itself_when_it_has_moved_as_many_as_it_was_to_move(
    yard: Yard, mode: str, asked: object, moved: int
) -> None:
    yard.host.declare_queue("from")
    yard.publish(b"1", b"2", b"3")
    value = {**LOCAL, "src-queue": "from", "dest-queue": "to", "ack-mode": mode, "src-delete-after": asked}
    yard.shovels.set("/", "s", value, "guest")  # type: ignore[arg-type]
    yard.run()
    yard.publish(b"4")
    assert yard.bodies() == [b"1", b"2", b"3"][:moved]
    assert yard.bodies("from") == [b"1", b"2", b"3", b"4"][moved:]
    assert list(yard.shovels.of("/")) == []


# Those of a node.


def test_a_shovel_is_there_after_a_restart_and_goes_on() -> None:
    yard = StoredYard()
    yard.host.declare_queue("from", durable=True)
    yard.set()
    yard.publish(b"1")
    yard = yard.again()
    yard.publish(b"2")
    assert sorted(yard.bodies()) == [b"1", b"2"]
    assert yard.shovel.journey.user == "guest"
    yard.shovels.delete("/", "s")
    yard = yard.again()
    assert yard.broker.guests.find(Shovels) is None


def test_a_node_without_shovels_knows_none() -> None:
    assert ClientBench().broker.guests.find(Shovels) is None


def test_there_is_a_limit(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shovels_module, "SHOVELS_MAX", 1)
    yard.set()
    yard.set()
    with pytest.raises(TooMany):
        yard.shovels.set("/", "t", {**LOCAL, "src-queue": "a", "dest-queue": "b"}, "guest")


def test_a_shovel_goes_with_its_virtual_host(yard: Yard) -> None:
    yard.broker.add_virtual_host("other")
    yard.shovels.set("other", "s", {**LOCAL, "src-queue": "a", "dest-queue": "b"}, "guest")
    yard.broker.delete_virtual_host("other")
    assert list(yard.shovels.of("other")) == []


def test_a_broker_without_a_protocol_for_it_does_not_reach_others(yard: Yard) -> None:
    shovel = yard.set(dest_uri="amqp://there")
    assert (shovel.state, shovel.reason) == (
        "terminated",
        "this node connects to no other broker with the protocol amqp091",
    )


def test_a_wrong_one_changes_nothing(yard: Yard) -> None:
    before = yard.set()
    with pytest.raises(PreconditionFailed):
        yard.shovels.set("/", "s", {"src-uri": "http://x"}, "guest")
    assert yard.shovel is before
    assert before.state == "running"


def test_what_a_shovel_publishes_counts_for_the_publish_rates_of_its_user(yard: Yard) -> None:
    yard.host.declare_queue("from")
    user = yard.broker.access.user("guest")
    assert user is not None
    limits = attrs.evolve(user.limits, max_publish_rate=10)
    yard.broker.access.put_user(attrs.evolve(user, limits=limits))
    shovel = yard.set()
    yard.publish(*(b"%d" % number for number in range(40)))
    moved = len(yard.bodies())
    assert moved < 40
    assert shovel.is_blocked
    yard.run(1.0)
    assert moved + 5 <= len(yard.bodies()) <= moved + 15
    yard.run(5.0)
    assert yard.bodies() == [b"%d" % number for number in range(40)]


# The user who has set it.


def test_a_shovel_does_not_run_under_a_new_user_of_the_name_of_a_deleted_one() -> None:
    yard = StoredYard()
    yard.host.declare_queue("from", durable=True)
    yard.stored.user("ann", tags=("administrator",))
    assert yard.set("ann").state == "running"
    for again in (False, True):
        if not again:
            yard.broker.access.delete_user("ann")
            yard.stored.user("ann")
        else:
            yard = yard.again()
        yard.run()
        yard.publish(b"1")
        shovel = yard.shovel
        assert (shovel.state, shovel.journey.user) == ("terminated", "")
        assert "the user who has set it was deleted" in shovel.reason
        assert yard.host.queues["from"].ready == 1 + again
    yard.set("ann")
    assert (yard.shovel.state, yard.bodies()) == ("running", [b"1", b"1"])


def test_a_shovel_that_is_set_again_while_its_user_is_deleted_belongs_to_the_other(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.bench.user("ann")
    yard.set("ann")
    yard.broker.access.delete_user("ann")
    assert yard.set("guest").state == "running"
    yard.run()
    assert yard.shovel.journey.user == "guest"


def test_a_static_shovel_belongs_to_the_name_that_the_file_has(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.bench.user("ann")
    yard.shovels.set_static("/", "s", {**LOCAL, "src-queue": "from", "dest-queue": "to"}, "ann")
    yard.broker.access.delete_user("ann")
    yard.bench.user("ann")
    yard.run(60.0)
    assert yard.shovel.state == "running"


def test_a_shovel_that_runs_again_has_no_reason_of_failure() -> None:
    yard = Yard()
    shovel = yard.set(src_predeclared=True, reconnect_delay=1)
    assert shovel.state == "terminated"
    assert "from" in shovel.reason
    yard.host.declare_queue("from")
    yard.run(2.0)
    assert (shovel.state, shovel.reason) == ("running", "")


# Other properties.


def test_each_message_gets_the_properties_that_are_asked_for(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.set(
        dest_publish_properties={
            "delivery_mode": 2, "priority": 0, "expiration": "60000", "content_type": "text/plain", "app_id": "s",
        },
        dest_add_forward_headers=True,
    )  # fmt: skip
    yard.publish(b"1", facts=Facts(priority=5))
    (delivery,) = yard.host.queues["to"].waiting()
    message = delivery.message
    facts = message.facts
    assert (facts.durable, facts.priority, facts.ttl_ms) == (True, LOWEST, 60_000)
    assert delivery.expires_at == pytest.approx(yard.broker.now + 60, abs=1)
    said = message.encoding.read(message.properties)
    assert (said.content_type, said.app_id, said.durable, said.priority, said.ttl_ms) == (
        "text/plain", "s", True, 0, 60_000,
    )  # fmt: skip
    assert "x-shovelled" in (said.headers or {})


def test_without_any_properties_a_message_keeps_its_bytes(yard: Yard) -> None:
    yard.host.declare_queue("from")
    yard.set(publish_properties={})
    yard.publish(b"1")
    (delivery,) = yard.host.queues["to"].waiting()
    assert delivery.message.properties == b"\x10\x00\x02"
