"""Whatever is declared, bound, unbound and deleted, in whatever order: the next start finds what a broker should keep.

The model is the broker itself: what of it has to outlive the node is read off it (`Site.shape`), by rules that know
nothing of the store."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.client import Client
from leveret.errors import Failure
from leveret.limits import UserLimits, VirtualHostLimits
from leveret.policy import ApplyTo, Policy
from leveret.security.users import User
from leveret.selectors.parser import compile_selector
from leveret.values import Value
from leveret.virtual_host import VirtualHost
from tests.core.fakes import FakeConsumer
from tests.durable.site import Site
from tests.durable.store.test_values_text import VALUES
from tests.harness.call_count import calls


def hashable(value: Value) -> bool:
    """No binding can have an argument that is a signaling NaN."""
    return "sNaN" not in repr(value)


HOSTS = st.sampled_from(["/", "two"])
NAMES = st.sampled_from(["a", "b", "c"])
SOURCES = ["a", "b", "c", "amq.topic", "amq.headers"]
KEYS = st.sampled_from(["", "k", "k.#"])
TYPES = st.sampled_from(["direct", "fanout", "topic", "headers", "x-rare"])
TABLES = st.just({}) | st.dictionaries(st.sampled_from(["one", "$two"]), VALUES.filter(hashable), max_size=2)
EXPRESSIONS = st.sampled_from(["", ".*", "^a"])
FEW = st.none() | st.integers(0, 9)
YES = st.booleans()


class Changing(RuleBasedStateMachine):
    """A site whose users do all they can."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site()
        self.client = self.entered()

    def entered(self) -> Client:
        """Somebody in the first virtual host, with exclusive queues."""
        user = self.site.broker.access.put_user(User("owner"))
        self.site.broker.access.set_permissions("owner", "/", ".*", ".*", ".*")
        client = Client(self.site.broker, user)
        client.enter("/")
        return client

    def host(self, name: str) -> VirtualHost:
        return self.site.broker.add_virtual_host(name)

    # Exchanges, queues and bindings.

    @initialize()
    def furnish(self) -> None:
        for host in ("/", "two"):
            self.host(host).declare_exchange("a", "topic", durable=True)
            self.host(host).declare_queue("a", durable=True)

    @rule(host=HOSTS, name=NAMES, type_=TYPES, durable=YES, auto_delete=YES, internal=YES, arguments=TABLES)
    def declare_exchange(self, host, name, type_, durable, auto_delete, internal, arguments) -> None:
        said = name, type_, durable, auto_delete, internal, arguments
        attempt(lambda: self.host(host).declare_exchange(*said))

    @rule(host=HOSTS, name=NAMES, durable=YES, auto_delete=YES, arguments=TABLES, sieve=YES)
    def declare_queue(self, host, name, durable, auto_delete, arguments, sieve) -> None:
        selector = compile_selector("h.priority > 4") if sieve else None
        said = name, durable, False, auto_delete, arguments
        attempt(lambda: self.host(host).declare_queue(*said, selector=selector))

    @rule(name=NAMES, durable=YES)
    def declare_exclusive_queue(self, name, durable) -> None:
        attempt(lambda: self.client.declare_queue(name, durable, exclusive=True))

    @rule(host=HOSTS, binds=st.lists(st.tuples(YES, KEYS, TABLES), min_size=1, max_size=4), data=st.data())
    def bind(self, host, binds, data) -> None:
        at = self.host(host)
        sources = [each for name, each in at.exchanges.items() if name in SOURCES]
        source = data.draw(st.sampled_from(sources))
        for to_queue, key, arguments in binds:
            if ends := list(at.queues.values()) if to_queue else sources:
                destination = data.draw(st.sampled_from(ends))
                attempt(partial(at.bind, source, destination, key, arguments))

    @precondition(lambda self: any(self.bindings()))
    @rule(data=st.data())
    def unbind(self, data) -> None:
        binding = data.draw(st.sampled_from(self.bindings()))
        host = binding.source.virtual_host
        assert host.unbind(binding.source, binding.destination, binding.key, binding.arguments)

    def bindings(self):
        return [binding for host in self.site.broker.hosts() for binding in host.bindings()]

    @rule(host=HOSTS, name=NAMES)
    def delete_exchange(self, host, name) -> None:
        attempt(lambda: self.host(host).delete_exchange(name))

    @rule(host=HOSTS, name=NAMES)
    def delete_queue(self, host, name) -> None:
        attempt(lambda: self.host(host).delete_queue(self.host(host).queue(name)))

    @rule(host=HOSTS, name=NAMES)
    def use_and_leave(self, host, name) -> None:
        """Auto-delete queues go with that."""
        queue = self.host(host).queues.get(name)
        if queue is not None and queue.owner is None:
            FakeConsumer(queue).leave()
            self.site.settle()

    @rule(host=HOSTS, name=NAMES, notes=TABLES)
    def note(self, host, name, notes) -> None:
        if (queue := self.host(host).queues.get(name)) is not None:
            self.host(host).note(queue, notes)

    # Virtual hosts, users, policies.

    @rule(connections=FEW, queues=FEW)
    def limit(self, connections, queues) -> None:
        self.site.broker.add_virtual_host("two", VirtualHostLimits(connections, queues))

    @rule()
    def delete_virtual_host(self) -> None:
        attempt(lambda: self.site.broker.delete_virtual_host("two"))

    @rule(name=NAMES, password=st.sampled_from(["", "x"]), tags=st.sets(NAMES), channels=FEW)
    def put_user(self, name, password, tags, channels) -> None:
        self.site.broker.access.add_user(name, password, tags, UserLimits(None, channels))

    @rule(name=NAMES)
    def delete_user(self, name) -> None:
        self.site.broker.access.delete_user(name)

    @rule(name=NAMES, host=HOSTS, one=EXPRESSIONS, other=EXPRESSIONS)
    def set_permissions(self, name, host, one, other) -> None:
        attempt(lambda: self.site.broker.access.set_permissions(name, self.host(host).name, one, other, one))

    @rule(name=NAMES, host=HOSTS)
    def clear_permissions(self, name, host) -> None:
        self.site.broker.access.clear_permissions(name, host)

    @rule(name=NAMES, host=HOSTS, exchange=NAMES | st.just(""), one=EXPRESSIONS)
    def set_topic_permissions(self, name, host, exchange, one) -> None:
        host = self.host(host).name
        attempt(lambda: self.site.broker.access.set_topic_permissions(name, host, exchange, one, ""))

    @rule(name=NAMES, host=HOSTS, exchange=st.none() | NAMES)
    def clear_topic_permissions(self, name, host, exchange) -> None:
        self.site.broker.access.clear_topic_permissions(name, host, exchange)

    @rule(name=NAMES, host=HOSTS, length=st.integers(1, 5), apply_to=st.sampled_from(ApplyTo), operator=YES)
    def put_policy(self, name, host, length, apply_to, operator) -> None:
        policies = self.site.broker.policies
        put = policies.set_operator if operator else policies.set
        put(Policy(name, self.host(host).name, "a|b", {"max-length": length}, length, apply_to))
        self.host(host).apply_policies()

    @rule(name=NAMES, host=HOSTS, operator=YES)
    def clear_policy(self, name, host, operator) -> None:
        policies = self.site.broker.policies
        (policies.clear_operator if operator else policies.clear)(host, name)
        self.host(host).apply_policies()

    # Starts.

    @rule()
    def settle(self) -> None:
        self.site.settle()

    @rule()
    def start_again(self) -> None:
        self.site = self.site.again()
        self.client = self.entered()

    @invariant()
    def the_next_start_finds_it_all(self) -> None:
        after = self.site.again()
        assert after.shape() == self.site.shape()
        assert after.objects == self.site.objects
        assert not after.catalogue.incomplete


def attempt(change) -> None:
    """What is refused changes nothing."""
    with suppress(Failure):
        change()


TestChanging = Changing.TestCase
TestChanging.settings = settings(stateful_step_count=30)  # or it takes minutes to say what is wrong


def test_what_a_start_costs_is_in_proportion_to_what_there_is() -> None:
    def start(queues: int) -> int:
        site = Site()
        for number in range(queues):
            site.host.bind(site.host.exchange("amq.topic"), site.queue(f"q{number}"), f"k.{number}")
        site.settle()
        return calls(site.again).total()

    few, more, most = start(0), start(50), start(100)
    assert most - more <= (more - few) * 1.1


def test_deleting_a_virtual_host_costs_in_proportion_to_what_is_in_it() -> None:
    def delete(queues: int) -> int:
        site = Site()
        for number in range(queues):
            site.host.bind(site.host.exchange("amq.topic"), site.queue(f"q{number}"), f"k.{number}")
        return calls(lambda: site.broker.delete_virtual_host("/")).total()

    few, more, most = delete(0), delete(50), delete(100)
    assert most - more <= (more - few) * 1.1
