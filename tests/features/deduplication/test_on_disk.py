"""Ids on disk: there if and only if the message's commit is, through restarts, sweeps and damage."""

from __future__ import annotations

import random

import pytest

from leveret.durable.store.memory import MemoryStore
from leveret.exchanges.exchange_type import Exchange
from leveret.features.deduplication import id_log
from leveret.features.deduplication.id_log import RECORD, IdLog
from leveret.policy import ApplyTo, Policy
from leveret.values import Value
from tests.core.fakes import waiting
from tests.durable.site import Site, held_site, land_all
from tests.features.deduplication.published import Confirmed, publish
from tests.features.deduplication.test_exchange import SWITCH


def declared(site: Site, name: str = "x", durable: bool = True, **said: Value) -> Exchange:
    arguments = {**SWITCH, **{key.replace("_", "-"): value for key, value in said.items()}}
    exchange = site.host.declare_exchange(name, "fanout", durable=durable, arguments=arguments)
    site.host.bind(exchange, site.queue(), "")
    site.settle()
    return exchange


def log_of(exchange: Exchange) -> IdLog:
    assert exchange.deduplication is not None
    assert isinstance(exchange.deduplication.kept, IdLog)
    return exchange.deduplication.kept


def entries(exchange: Exchange) -> int:
    assert exchange.deduplication is not None
    return exchange.deduplication.entries


def numbers(site: Site) -> set[int]:
    """The streams that have something on disk."""
    return {stream for stream, _ in site.store.content.segments}


@pytest.mark.parametrize("clean", [False, True])
def test_ids_survive_the_node(clean: bool) -> None:
    site = Site()
    publish(site, declared(site), "a", "b")
    for _ in range(2):
        site = site.again(clean=clean)
        exchange = site.host.exchange("x")
        publish(site, exchange, "a", "b", "c")
    assert exchange.repeated == 3
    assert sorted(waiting(site.queue()).split()) == ["a", "b", "c"]


@pytest.mark.parametrize("said", [{"x_cache_persistence": "memory"}, {"durable": False}])
def test_ids_of_an_exchange_that_keeps_them_in_memory_do_not(said: dict[str, Value]) -> None:
    site = Site()
    exchange = declared(site, durable=said.pop("durable", True) is True, **said)
    publish(site, exchange, "a", "a")
    assert (exchange.repeated, numbers(site)) == (1, set())
    again = site.again()
    exchange = declared(again, durable=exchange.durable, **said)
    publish(again, exchange, "a")
    assert exchange.repeated == 0


def test_ids_of_transient_messages_and_of_transient_queues_do_not() -> None:
    site = Site()
    exchange = declared(site)
    publish(site, exchange, "t", durable=False)
    publish(site, exchange, "p")
    lonely = site.host.declare_exchange("lonely", "fanout", durable=True, arguments=SWITCH)
    site.host.bind(lonely, site.host.declare_queue("short"), "")
    publish(site, lonely, "a", "a")
    assert lonely.repeated == 1
    again = site.again()
    exchange, lonely = again.host.exchange("x"), again.host.exchange("lonely")
    assert (entries(exchange), entries(lonely)) == (1, 0)
    publish(again, exchange, "t", "p")
    assert exchange.repeated == 1


def test_an_id_is_on_disk_if_and_only_if_its_message_is() -> None:
    site = held_site()
    exchange = declared(site)
    land_all(site)
    publish(site, exchange, "a")
    crashed = site.again()
    assert (waiting(crashed.queue()), entries(crashed.host.exchange("x"))) == ("", 0)
    land_all(site)
    crashed = site.again()
    assert (waiting(crashed.queue()), entries(crashed.host.exchange("x"))) == ("a", 1)


def test_a_duplicate_is_not_confirmed_before_the_message_is_on_disk() -> None:
    site = held_site()
    exchange = declared(site)
    land_all(site)
    publish(site, exchange, "a")  # in flight
    again = Confirmed()
    publish_with(site, exchange, again)
    assert again.confirmed == 0
    land_all(site)
    assert again.confirmed == 1
    publish_with(site, exchange, again)
    assert again.confirmed == 2  # at once, as all is on disk


def publish_with(site: Site, exchange: Exchange, publisher: Confirmed) -> None:
    publisher.published += 1
    site.broker.publishers.append(publisher)
    publish(site, exchange, "a")


def test_the_time_of_an_id_goes_on_while_the_node_is_away() -> None:
    site = Site()
    publish(site, declared(site, x_cache_ttl=10_000), "a")
    soon, late = site.again(away_s=5), site.again(away_s=11)
    for each, repeated in ((soon, 1), (late, 0)):
        publish(each, each.host.exchange("x"), "a")
        assert each.host.exchange("x").repeated == repeated


def test_the_last_ids_are_known_after_a_restart_as_before() -> None:
    site = Site()
    publish(site, declared(site, x_cache_size=3), *"abcde")
    site = site.again()
    exchange = site.host.exchange("x")
    publish(site, exchange, *"cde")
    assert (exchange.repeated, entries(exchange)) == (3, 3)
    publish(site, exchange, "f", "c")
    assert exchange.repeated == 3


def test_forgotten_ids_stay_forgotten() -> None:
    site = Site()
    exchange = declared(site)
    publish(site, exchange, "a", "b")
    assert exchange.deduplication is not None
    assert exchange.deduplication.clear() == 2
    site.settle()
    publish(site, exchange, "c")
    site = site.again()
    exchange = site.host.exchange("x")
    assert entries(exchange) == 1
    publish(site, exchange, "c", "a")
    assert exchange.repeated == 1


def test_ids_after_a_forgetting_are_known_though_nothing_was_on_disk_before() -> None:
    site = Site()
    exchange = declared(site)
    publish(site, exchange, *"abc", durable=False)
    assert exchange.deduplication is not None
    exchange.deduplication.clear()
    for _ in range(2):
        site = site.again()
        exchange = site.host.exchange("x")
        publish(site, exchange, "d")
    assert exchange.repeated == 1


def test_ids_that_were_forgotten_before_their_commit_are_not_written() -> None:
    site = Site()
    exchange = declared(site)
    site.broker.tick()
    publish_without_settling(site, exchange, "a")
    assert exchange.deduplication is not None
    exchange.deduplication.clear()
    site.settle()
    assert entries(site.again().host.exchange("x")) == 0


def publish_without_settling(site: Site, exchange: Exchange, id_: str) -> None:
    from tests.features.deduplication.published import identified

    site.broker.publish(exchange, identified(id_, exchange="x"))


def test_a_deleted_exchange_leaves_nothing_and_one_of_its_name_begins_anew() -> None:
    site = Site()
    publish(site, declared(site), "a")
    assert len(numbers(site)) == 1
    site.host.delete_exchange("x")
    site.settle()
    assert (numbers(site), "deduplication" in site.kinds()) == (set(), False)
    publish(site, declared(site), "a")
    assert entries(site.again().host.exchange("x")) == 1


def test_a_policy_that_goes_takes_the_ids_with_it() -> None:
    site = Site()
    exchange = site.exchange("x")
    site.host.bind(exchange, site.queue(), "")
    site.broker.policies.set(
        Policy("p", "/", "x", {"x-message-deduplication": True}, apply_to=ApplyTo.EXCHANGES)
    )
    site.host.apply_policies()
    publish(site, exchange, "a")
    site = site.again()
    exchange = site.host.exchange("x")
    publish(site, exchange, "a")
    assert exchange.repeated == 1
    site.broker.policies.clear("/", "p")
    site.host.apply_policies()
    site.settle()
    assert (numbers(site), "deduplication" in site.kinds()) == (set(), False)


def test_a_log_never_has_much_more_than_the_ids_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_log, "SLACK_OCTETS", 1024)
    monkeypatch.setattr(id_log, "SWEPT_LEAST", 4)
    site = Site()
    exchange = declared(site, x_cache_size=100)
    chance = random.Random(5)
    most = 0
    for n in range(600):
        publish(site, exchange, *[f"{n}.{m}" for m in range(chance.randrange(1, 8))])
        site.queue().purge()
        most = max(most, log_of(exchange).octets)
        if n % 150 == 149:
            known = entries(exchange)
            site = site.again(clean=chance.random() < 0.5)
            exchange = site.host.exchange("x")
            assert entries(exchange) == known == 100
    # How much is written once more depends on digests, which chance decides: 3.3 to 4.7 times in 24 runs.
    assert most < 1024 + 5 * 100 * RECORD.size
    assert site.store.stats().segment_octets < 4 * most


def test_damage_costs_the_ids_in_it_and_no_more() -> None:
    site = Site()
    exchange = declared(site)
    publish(site, exchange, "a")
    publish(site, exchange, "b")
    site.settle()
    number = log_of(exchange).number
    store = site.store.reopened()
    [segment] = [each for (stream, _), each in store.content.segments.items() if stream == number]
    segment.octets[len(segment.octets) // 2 - 1] ^= 0xFF
    site.store = store
    again = Site(store)
    assert entries(again.host.exchange("x")) == 1


def test_nothing_is_written_for_those_who_do_not_deduplicate() -> None:
    site = Site()
    exchange = site.exchange("x")
    site.host.bind(exchange, site.queue(), "")
    publish(site, exchange, "a", "a")
    assert waiting(site.queue()) == "a a"
    assert (numbers(site), list(MemoryStore().spans())) == (set(), [])
