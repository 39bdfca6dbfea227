"""Virtual hosts: what declaring, binding and deleting leave behind."""

from __future__ import annotations

import pytest

from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
from leveret.exchanges.fanout import Fanout
from leveret.exchanges.standard import STANDARD
from leveret.limits import VirtualHostLimits
from leveret.policy import Policy
from leveret.queues.work_queue import WorkQueue
from leveret.virtual_host import PREDECLARED, VirtualHost, generated_name
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench


class Noting(Fanout):
    """A fanout that notes what it is told."""

    name = "x-noting"

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.told: list[str] = []

    def bind(self, binding: Binding) -> None:
        self.told.append(f"bind {binding.destination.name}")

    def unbind(self, binding: Binding) -> None:
        self.told.append(f"unbind {binding.destination.name}")

    def close(self) -> None:
        self.told.append("close")


class Deaf(Fanout):
    """A fanout that wants to hear of nothing."""

    name = "x-deaf"

    def bind(self, binding: Binding) -> None:
        if binding.key == "no":
            raise ValueError(binding.key)

    def unbind(self, binding: Binding) -> None:
        raise ValueError(binding.key)

    def close(self) -> None:
        raise ValueError


TYPES: dict[str, type[ExchangeType]] = {**STANDARD, "x-noting": Noting, "x-deaf": Deaf}


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench(TYPES)


@pytest.fixture
def host(bench: CoreBench) -> VirtualHost:
    return bench.host


def exchange(host: VirtualHost, name: str, auto_delete: bool = False, type_: str = "fanout") -> Exchange:
    return host.declare_exchange(name, type_, auto_delete=auto_delete)


def noted(exchange: Exchange) -> list[str]:
    assert isinstance(exchange.type, Noting)
    return exchange.type.told


def without_traces(host: VirtualHost) -> bool:
    """Whether nothing refers to exchanges or queues that are gone."""
    there = {*host.exchanges.values(), *host.queues.values()}
    incoming = {binding for destination in there for binding in host.bindings_to(destination)}
    return incoming == set(host.bindings()) and set(host._incoming) <= there


# Declaring.


def test_s034_some_exchanges_are_there_from_the_start_and_stay(host: VirtualHost) -> None:
    for name, type_, internal in PREDECLARED:
        found = host.exchange(name)
        assert (found.type.name, found.internal, found.durable) == (type_, internal, True)
        with pytest.raises(AccessRefused, match=f"deletion of system exchange '{name}'"):
            host.delete_exchange(name)
    with pytest.raises(AccessRefused, match=r"exchange name .amq.new. contains reserved prefix"):
        exchange(host, "amq.new")


def test_declaring_again_gives_the_same_thing_and_moves_nothing(host: VirtualHost) -> None:
    first, queue = exchange(host, "x"), host.declare_queue("q")
    before = host.revision
    assert exchange(host, "x") is first
    assert host.declare_queue("q") is queue
    assert host.revision == before


def test_what_is_not_there_is_not_found(host: VirtualHost) -> None:
    with pytest.raises(NotFound, match="no exchange 'x' in vhost '/'"):
        host.exchange("x")
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'"):
        host.queue("q")
    with pytest.raises(NotFound, match="vhost none not found"):
        host.broker.virtual_host("none")


def test_x020_a_virtual_host_may_be_full(host: VirtualHost) -> None:
    host.limits = VirtualHostLimits(max_queues=1)
    queue = host.declare_queue("q")
    with pytest.raises(PreconditionFailed, match=r"queue limit in vhost '/' \(1\) is reached"):
        host.declare_queue("p")
    assert host.declare_queue("q") is queue
    host.delete_queue(queue)
    host.declare_queue("p")


def test_who_may_not_create_leaves_nothing(host: VirtualHost) -> None:
    def refuse() -> None:
        raise AccessRefused("no")

    before = host.revision
    with pytest.raises(AccessRefused):
        host.declare_exchange("x", "fanout", may_create=refuse)
    with pytest.raises(AccessRefused):
        host.declare_queue("q", may_create=refuse)
    assert ("x" in host.exchanges, "q" in host.queues, host.revision) == (False, False, before)


def test_s060_generated_names_differ() -> None:
    names = {generated_name("amq.gen-") for _ in range(100)}
    assert len(names) == 100
    assert {len(name) for name in names} == {len("amq.gen-") + 22}


def test_a_hidden_queue_is_reached_by_its_name_and_listed_nowhere(host: VirtualHost) -> None:
    hidden = WorkQueue(host, "reply", host.declare_queue("q").limits)
    host.add_hidden_queue(hidden)
    assert (host.destination_queue("reply"), "reply" in host.queues) == (hidden, False)
    host.delete_queue(hidden)
    assert host.destination_queue("reply") is None


# Binding.


def test_s056_binding_again_is_the_same_binding_and_the_type_hears_of_one(host: VirtualHost) -> None:
    source, queue = exchange(host, "x", type_="x-noting"), host.declare_queue("q")
    first = host.bind(source, queue, "k", {"a": [1, {"b": b"c"}]})
    assert host.bind(source, queue, "k", {"a": [1, {"b": b"c"}]}) is first
    assert host.bind(source, queue, "k", {"a": True}) is not host.bind(source, queue, "k", {"a": 1})
    assert noted(source) == ["bind q"] * 3
    assert host.unbind(source, queue, "k", {"a": [1, {"b": b"c"}]})
    assert not host.unbind(source, queue, "k", {"a": [1, {"b": b"c"}]})
    assert len(list(host.bindings_to(queue))) == 2


def test_a_queue_and_an_exchange_of_the_same_name_are_different_destinations(host: VirtualHost) -> None:
    source, queue, hop = exchange(host, "x"), host.declare_queue("same"), exchange(host, "same")
    host.bind(source, queue, "k")
    host.bind(source, hop, "k")
    host.unbind(source, queue, "k")
    assert [binding.destination for binding in source.bindings] == [hop]


@pytest.mark.parametrize("what", ["declare", "bind", "unbind", "delete queue", "delete exchange", "policy"])
def test_every_change_moves_the_revision(host: VirtualHost, what: str) -> None:
    source, queue = exchange(host, "x"), host.declare_queue("q")
    host.bind(source, queue, "old")
    before = host.revision
    changes = {
        "declare": lambda: host.declare_queue("new"),
        "bind": lambda: host.bind(source, queue, "new"),
        "unbind": lambda: host.unbind(source, queue, "old"),
        "delete queue": lambda: host.delete_queue(queue),
        "delete exchange": lambda: host.delete_exchange("x"),
        "policy": host.apply_policies,
    }
    changes[what]()
    assert host.revision > before


# Deleting.


def test_s058_a_deleted_exchange_takes_its_bindings_along_on_both_sides(host: VirtualHost) -> None:
    source, middle = exchange(host, "source", type_="x-noting"), exchange(host, "middle", type_="x-noting")
    queue = host.declare_queue("q")
    for from_, to in ((source, middle), (middle, queue), (middle, middle), (middle, source)):
        host.bind(from_, to, "")
    host.delete_exchange("middle")
    assert list(host.bindings()) == []
    assert noted(source) == ["bind middle", "unbind middle"]
    assert noted(middle)[-1] == "close"
    assert without_traces(host)


def test_a_deleted_queue_takes_its_bindings_along(host: VirtualHost) -> None:
    source, queue = exchange(host, "x", type_="x-noting"), host.declare_queue("q")
    for key in "ab":
        host.bind(source, queue, key)
    host.delete_queue(queue)
    assert noted(source) == ["bind q"] * 2 + ["unbind q"] * 2
    assert without_traces(host)


def test_s042_an_exchange_with_bindings_can_be_spared(host: VirtualHost) -> None:
    source, queue = exchange(host, "x"), host.declare_queue("q")
    host.bind(source, queue, "")
    with pytest.raises(PreconditionFailed, match="exchange 'x' in vhost '/' in use"):
        host.delete_exchange("x", if_unused=True)
    host.unbind(source, queue, "")
    host.delete_exchange("x", if_unused=True)


def test_s045_an_auto_delete_exchange_goes_with_its_last_binding_not_before(host: VirtualHost) -> None:
    source, queue = exchange(host, "x", auto_delete=True), host.declare_queue("q")
    for key in "ab":
        host.bind(source, queue, key)
    host.unbind(source, queue, "a")
    assert "x" in host.exchanges
    host.unbind(source, queue, "b")
    assert "x" not in host.exchanges


def test_s045_exchanges_go_in_chains_and_rings_however_long(host: VirtualHost) -> None:
    queue = host.declare_queue("q")
    exchanges = [exchange(host, f"x{n}", auto_delete=True) for n in range(2000)]
    for n, each in enumerate(exchanges):
        host.bind(each, exchanges[n - 1] if n else queue, "")
    host.delete_queue(queue)
    assert len(host.exchanges) == len(PREDECLARED) + 1
    assert without_traces(host)
    ring = [exchange(host, f"r{n}", auto_delete=True) for n in range(2000)]
    for n, each in enumerate(ring):
        host.bind(each, ring[n - 1], "")
    host.delete_exchange("r7")
    assert len(host.exchanges) == len(PREDECLARED) + 1
    assert without_traces(host)


def test_a_name_can_be_used_again_after_it_was_deleted(bench: CoreBench, host: VirtualHost) -> None:
    old = host.declare_queue("q")
    bench.publish("q", b"a")
    host.delete_queue(old)
    new = host.declare_queue("q")
    bench.publish("q", b"b")
    host.delete_queue(old)  # a second time: somebody held on to it
    assert host.queue("q") is new
    assert (old.ready, new.ready) == (0, 1)


def test_a_virtual_host_ends_with_everything_in_it(bench: CoreBench) -> None:
    host = bench.broker.add_virtual_host("other")
    assert bench.broker.add_virtual_host("other", VirtualHostLimits(max_queues=5)) is host
    assert host.limits.max_queues == 5
    source = exchange(host, "x", type_="x-noting")
    queue = host.declare_queue("q", arguments={"x-expires": 1000, "x-message-ttl": 1000})
    host.bind(source, queue, "")
    consumer = FakeConsumer(queue)
    bench.broker.delete_virtual_host("other")
    assert (consumer.ended, noted(source)[-1]) == (1, "close")
    assert [each.name for each in bench.broker.hosts()] == ["/"]
    assert bench.broker.timers.next_at() is None
    bench.settle()


def test_permissions_and_policies_end_with_their_virtual_host(bench: CoreBench) -> None:
    broker = bench.broker
    user = broker.access.add_user("u", "secret")
    for name in ("other", "/"):
        broker.add_virtual_host(name)
        broker.access.set_permissions("u", name, ".*", ".*", ".*")
        broker.policies.set(Policy("p", name, ".*", {"max-length": 1}))
        broker.policies.set_operator(Policy("o", name, ".*", {"delivery-limit": 2}))
    broker.delete_virtual_host("other")
    again = broker.add_virtual_host("other")
    assert [broker.access.may_enter(user, name) for name in ("other", "/")] == [False, True]
    limits = [host.declare_queue("q").limits for host in (again, bench.host)]
    assert [(each.max_length, each.delivery_limit) for each in limits] == [(None, None), (1, 2)]


def test_a_type_that_fails_to_hear_of_a_deletion_does_not_stop_it(
    host: VirtualHost, caplog: pytest.LogCaptureFixture
) -> None:
    source, queue = exchange(host, "x", auto_delete=True, type_="x-deaf"), host.declare_queue("q")
    consumer = FakeConsumer(queue)
    for key in "ab":
        host.bind(source, queue, key)
    host.delete_queue(queue)
    assert (consumer.ended, source.route_errors, "x" in host.exchanges) == (1, 3, False)
    assert without_traces(host)
    assert caplog.messages == ["exchange 'x' of type x-deaf in vhost '/' failed to hear of a deletion"]


def test_a_type_that_fails_to_bind_has_no_binding(host: VirtualHost) -> None:
    source, queue = exchange(host, "x", type_="x-deaf"), host.declare_queue("q")
    with pytest.raises(PreconditionFailed, match="'x-deaf' failed to bind queue 'q': ValueError: no"):
        host.bind(source, queue, "no")
    assert list(host.bindings()) == []
    assert without_traces(host)
