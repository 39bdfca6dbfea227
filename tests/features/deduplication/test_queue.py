"""A queue that drops duplicates: by what is in it, or by the last ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker import TAKEN
from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import Exchange
from leveret.features.deduplication.deduplication import Deduplication, PresentMessages
from leveret.features.leases.lease import opened
from leveret.policy import Policy
from leveret.queues.queue import Queue
from leveret.transaction import Transaction
from leveret.values import Value
from tests.core.fakes import CoreBench, FakeConsumer, waiting
from tests.durable.paged import small
from tests.durable.site import Site, held_site, land_all
from tests.features.deduplication.published import Confirmed, identified, written
from tests.features.deduplication.published import publish as publish_to
from tests.harness.bench import spelled

__all__ = ["small"]

OTHER_KINDS: list[dict[str, Value]] = [
    {},
    {"x_max_priority": 3},
    {"x_queue_type": "quorum"},
    {"x_sequence_header": "n"},
    {"x_message_group_key": "g"},
    {"x_max_priority": 2, "x_fair_share": 1},
    {"x_single_active_consumer": True},
]


def publish(bench: CoreBench | Site, *ids: Value, durable: bool = True) -> None:
    exchange: Exchange = bench.host.default_exchange
    assert set(publish_to(bench, exchange, *ids, key="q", durable=durable)) == {TAKEN}


def known_by(queue: Queue) -> Deduplication:
    assert queue.deduplication is not None
    return queue.deduplication


def declared(bench: CoreBench | Site, **said: Value) -> Queue:
    arguments = {"x_message_deduplication": True, **said}
    if "x_queue_type" in said:
        return bench.host.declare_queue("q", durable=True, arguments=spelled(arguments))
    return bench.queue(**arguments)


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


@pytest.mark.parametrize("said", OTHER_KINDS, ids=str)
def test_every_kind_of_work_queue_drops_a_message_whose_id_is_in_it(said: dict[str, Value]) -> None:
    bench = CoreBench()
    durable = said.get("x_queue_type") == "quorum"
    arguments = {key.replace("_", "-"): value for key, value in said.items()}
    queue = bench.host.declare_queue(
        "q", durable=durable, arguments={**arguments, "x-message-deduplication": True}
    )
    publish(bench, "a", "b", "a")
    assert (queue.ready, queue.repeated, known_by(queue).entries) == (2, 1, 2)
    consumer = FakeConsumer(queue)
    bench.settle()
    assert known_by(queue).entries == 2  # they are with a consumer
    publish(bench, "b")
    assert queue.repeated == 2
    consumer.accept_all()
    bench.settle()
    assert known_by(queue).entries == 0
    publish(bench, "a")
    assert consumer.got[-1].message.body == b"a"


def test_a_message_that_is_replaced_by_a_newer_one_takes_its_id_with_it(bench: CoreBench) -> None:
    queue = declared(bench, x_last_value_key="value")  # which all messages lack, and so share
    publish(bench, "a", "a", "b", "b", "a")
    assert (waiting(queue), queue.repeated, known_by(queue).entries) == ("a", 2, 1)


def test_a_message_that_comes_back_keeps_its_id_and_is_no_duplicate(bench: CoreBench) -> None:
    queue = declared(bench)
    consumer = FakeConsumer(queue, credit=1)
    publish(bench, "a")
    consumer.release(consumer.held[0])
    bench.settle()
    publish(bench, "a")
    assert (consumer.bodies(), queue.repeated) == ("a a", 1)


def test_a_message_that_waits_for_its_retry_keeps_its_id(bench: CoreBench) -> None:
    queue = declared(bench, x_queue_type="quorum", x_delayed_retry_type="all", x_delayed_retry_min=1000)
    consumer = FakeConsumer(queue, credit=1)
    publish(bench, "a")
    consumer.release(consumer.held[0])
    publish(bench, "a")
    assert (queue.repeated, consumer.bodies()) == (1, "a")
    bench.advance(2)
    assert (known_by(queue).entries, consumer.bodies()) == (1, "a a")
    consumer.accept_all()
    assert known_by(queue).entries == 0


def dies_of_age(bench: CoreBench, queue: Queue) -> None:
    bench.advance(2)


def dies_by_rejection(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue)
    bench.settle()
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    consumer.leave()
    bench.settle()


def is_taken_settled(bench: CoreBench, queue: Queue) -> None:
    while queue.take_one(settled=True) is not None:
        pass


def is_consumed_settled(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue, settled=True)
    bench.settle()
    consumer.leave()


def is_purged(bench: CoreBench, queue: Queue) -> None:
    assert queue.purge() == 2


@pytest.mark.parametrize(
    "leave", [dies_of_age, dies_by_rejection, is_taken_settled, is_consumed_settled, is_purged]
)
def test_an_id_goes_with_its_message(bench: CoreBench, leave: Callable[[CoreBench, Queue], None]) -> None:
    queue = declared(bench, x_message_ttl=1000)
    publish(bench, "a", "b")
    leave(bench, queue)
    assert known_by(queue).entries == 0
    publish(bench, "a", "a")
    assert waiting(queue) == "a"


def test_the_messages_that_a_limit_drops_take_their_ids_with_them(bench: CoreBench) -> None:
    queue = declared(bench, x_max_length=2)
    publish(bench, "a", "b", "c", "b", "a")
    assert (waiting(queue), queue.repeated, known_by(queue).entries) == ("c a", 1, 2)


def test_a_full_queue_refuses_and_remembers_nothing_but_takes_a_duplicate(bench: CoreBench) -> None:
    queue = declared(bench, x_max_length=1, x_overflow="reject-publish")
    default = bench.host.default_exchange
    assert [each.name for each in publish_to(bench, default, "a", "a", "b", key="q")] == [
        "TAKEN",
        "TAKEN",
        "REFUSED",
    ]
    assert queue.purge() == 1
    publish(bench, "b")
    assert waiting(queue) == "b"


def test_after_a_purge_an_old_message_does_not_take_a_new_ones_id_with_it(bench: CoreBench) -> None:
    queue = declared(bench)
    consumer = FakeConsumer(queue, credit=1)
    publish(bench, "a")
    queue.purge()  # not the one with the consumer, but all ids
    publish(bench, "a")
    consumer.accept(consumer.held[0])
    bench.settle()
    publish(bench, "a")
    assert (queue.repeated, consumer.bodies()) == (1, "a a")


@pytest.mark.parametrize("said", [{"x_cache_size": 2}, {"x_cache_ttl": 1000}])
def test_with_a_size_or_a_time_an_id_outlives_its_message(bench: CoreBench, said: dict[str, Value]) -> None:
    queue = declared(bench, **said)
    publish(bench, "a")
    is_taken_settled(bench, queue)
    publish(bench, "a")
    assert (waiting(queue), queue.repeated) == ("", 1)
    bench.advance(2)
    publish(bench, "b", "c", "a")
    assert waiting(queue) == "b c a"


def test_a_dead_letter_that_comes_back_to_a_queue_that_knows_the_last_ids_is_let_in(bench: CoreBench) -> None:
    queue = declared(bench, x_cache_size=10, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    consumer = FakeConsumer(queue, credit=1)
    publish(bench, "a")
    consumer.reject(consumer.held[0])
    bench.settle()
    assert (consumer.bodies(), queue.repeated) == ("a a", 0)
    publish(bench, "a")
    assert queue.repeated == 1


def test_duplicates_in_a_transaction_are_dropped_at_its_commit(bench: CoreBench) -> None:
    queue = declared(bench)
    tx = Transaction()
    for _ in range(2):
        tx.publish(bench.broker, bench.host.default_exchange, identified("a", b"a", "q"))
    tx.rollback()
    assert known_by(queue).entries == 0
    for _ in range(2):
        tx.publish(bench.broker, bench.host.default_exchange, identified("a", b"a", "q"))
    assert tx.commit() == 0
    assert (waiting(queue), queue.repeated) == ("a", 1)


def test_what_was_promised_room_is_looked_at_as_well(bench: CoreBench) -> None:
    queue = declared(bench)
    for _ in range(2):
        queue.admit(identified("a", b"a", "q"))
    assert (waiting(queue), queue.repeated) == ("a", 1)


def test_a_run_is_taken_up_to_its_first_duplicate(bench: CoreBench) -> None:
    queue = declared(bench)
    again, other = identified("a", b"a", "q"), identified("b", b"b", "q")
    assert queue.takes_of([other, again, again, other]) == 2
    assert queue.push_run([other, again, again, other]) == 2
    assert queue.takes_of([again, other]) == queue.push_run([other]) == 0
    assert (waiting(queue), known_by(queue).entries) == ("b a", 2)


def test_a_lease_takes_a_message_out_of_the_queue_and_gives_it_back_with_its_id(bench: CoreBench) -> None:
    queue = declared(bench)
    publish(bench, "a")
    lease = opened(queue, "r")
    lease.reserve(0, 1, 1000, 0, lambda why: None)
    bench.settle()
    assert known_by(queue).entries == 0
    lease.release(lambda why: None)
    for _ in range(3):
        bench.advance(0.1)
    publish(bench, "a")
    assert (queue.ready, queue.repeated) == (1, 1)


def test_a_policy_switches_between_both(bench: CoreBench) -> None:
    queue = bench.queue()
    policies = bench.broker.policies
    policies.set(Policy("p", "/", "q", {"x-message-deduplication": True}))
    bench.host.apply_policies()
    publish(bench, "a", "a")
    assert isinstance(queue.deduplication, PresentMessages)
    policies.set(Policy("p", "/", "q", {"x-message-deduplication": True, "x-cache-size": 5}))
    bench.host.apply_policies()
    assert (queue.present, known_by(queue).entries) == (None, 0)
    policies.clear("/", "p")
    bench.host.apply_policies()
    assert queue.deduplication is None
    publish(bench, "a")
    assert waiting(queue) == "a a"


def test_streams_refuse_the_arguments(bench: CoreBench) -> None:
    with pytest.raises(PreconditionFailed, match="'x-message-deduplication' for queue 's'"):
        bench.host.declare_queue(
            "s", durable=True, arguments={"x-queue-type": "stream", "x-message-deduplication": True}
        )


# On disk.


@pytest.mark.parametrize("clean", [False, True])
def test_after_a_restart_the_ids_of_what_is_there_are_known_and_no_others(clean: bool) -> None:
    site = Site()
    queue = declared(site)
    publish(site, "gone", "a", "b")
    taken = queue.take_one(settled=False)
    assert taken is not None
    queue.accept(taken)
    held = queue.take_one(settled=False)  # it comes back
    assert held is not None
    publish(site, "transient", durable=False)
    for _ in range(2):
        site = site.again(clean=clean)
        assert known_by(site.queue(x_message_deduplication=True)).entries == 2
    publish(site, "a", "b", "gone", "transient")
    queue = site.queue(x_message_deduplication=True)
    assert (queue.repeated, queue.ready) == (2, 4)


def test_a_place_is_not_given_to_another_message_while_an_id_on_disk_has_it() -> None:
    site = Site()
    queue = declared(site)
    publish(site, "a", "b")
    is_taken_settled_in(site, queue)
    site = site.again()
    queue = site.queue(x_message_deduplication=True)
    publish(site, "c", "d")
    site = site.again()
    publish(site, "a", "b", "c")
    assert site.queue(x_message_deduplication=True).repeated == 1


def is_taken_settled_in(site: Site, queue: Queue) -> None:
    while queue.take_one(settled=True) is not None:
        pass
    site.settle()


def test_a_duplicate_in_a_queue_is_confirmed_once_the_message_is_on_disk() -> None:
    site = held_site()
    declared(site)
    land_all(site)
    publish(site, "a")
    again = Confirmed()
    again.published = 1
    site.broker.publishers.append(again)
    publish(site, "a")
    assert again.confirmed == 0
    land_all(site)
    assert again.confirmed == 1


def test_the_log_of_a_queue_that_empties_again_and_again_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    from leveret.features.deduplication import id_log

    monkeypatch.setattr(id_log, "SLACK_OCTETS", 512)
    site = Site()
    queue = declared(site)
    publish(site, "old")
    for n in range(200):
        publish(site, f"a{n}", f"b{n}")
        for _ in range(2):
            queue.take_one(settled=True)
        publish(site, "old")  # at the end again
        if n % 60 == 59:
            site = site.again()
            queue = site.queue(x_message_deduplication=True)
            assert known_by(queue).entries == queue.ready
    kept = known_by(queue).kept
    assert isinstance(kept, id_log.IdLog)
    assert kept.octets < 512 + 4 * id_log.RECORD.size * (known_by(queue).entries + 2)


@pytest.mark.usefixtures("small")
def test_what_a_limit_drops_from_disk_takes_its_ids_with_it() -> None:
    site = Site()
    queue = declared(site)
    for n in range(30):
        site.broker.publish(site.host.default_exchange, written(f"{n}", "q"))
    site = site.again()  # all of it is on disk only
    queue = site.queue(x_message_deduplication=True)
    site.broker.policies.set(Policy("p", "/", "q", {"max-length": 4}))
    site.host.apply_policies()
    for _ in range(20):
        site.settle()
    assert (queue.ready, known_by(queue).entries) == (4, 4)


def test_a_deleted_queue_leaves_nothing() -> None:
    site = Site()
    queue = declared(site)
    publish(site, "a")
    site.host.delete_queue(queue)
    site.settle()
    assert "deduplication" not in site.kinds()
    assert not site.store.content.segments
