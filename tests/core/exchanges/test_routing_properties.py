"""Routing against its definition (S048-S055, S132-S137), with routes remembered while the topology changes under them.

The definition needs no order and no worklist. A message reaches a set of exchanges that is closed under two rules: what
is bound with a match is reached, and if nothing is, the alternate is. Its queues are those bound with a match to any.
"""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.broker import Outcome
from leveret.config.compat import Compat, MissingAlternate
from leveret.policy import ApplyTo, Policy
from tests.core.exchanges.test_exchanges import matches
from tests.harness.bench import CoreBench, message

exchange_names = st.sampled_from(["e0", "e1", "e2", "e3", "e4"])
queue_names = st.sampled_from(["q0", "q1", "q2"])
kinds = st.sampled_from(["direct", "fanout", "topic", "headers"])
KEYS = ("a", "b", "a.b", "q0", "")
keys = st.sampled_from(KEYS)
patterns = st.sampled_from(["a", "b", "a.b", "#", "*", "a.*", "q0", ""])
alternates = st.sampled_from([None, "e0", "e1", "e2", "e3", "e4", "amq.direct", "none"])


@attrs.define
class Declared:
    """An exchange as it was declared."""

    kind: str
    alternate: str | None
    auto_delete: bool


class RoutingMachine(RuleBasedStateMachine):
    """Up to five exchanges and three queues. Every route is remembered, and compared after each change."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = CoreBench(compat=Compat(missing_alternate=MissingAlternate.SILENT))
        self.host = self.bench.host
        self.exchanges: dict[str, Declared] = {"amq.direct": Declared("direct", None, False)}
        self.queues: set[str] = set()
        self.bindings: set[tuple[str, bool, str, str]] = set()  # source, to an exchange, name, key
        self.policy: tuple[str, str] | None = None  # the exchange it is for, and its alternate

    @initialize(
        declared=st.lists(st.tuples(kinds, alternates), min_size=5, max_size=5),
        bound=st.lists(st.tuples(exchange_names, queue_names, patterns), min_size=4, max_size=6, unique=True),
    )
    def begin(self, declared: list[tuple[str, str | None]], bound: list[tuple[str, str, str]]) -> None:
        for number, (kind, alternate) in enumerate(declared):
            self.declare_exchange(f"e{number}", kind, alternate, auto_delete=False)
        for number in range(3):
            self.declare_queue(f"q{number}")
        for source, queue, key in bound:
            self.bind_or_unbind(source, False, "", queue, key)

    # The topology changes.

    @rule(name=exchange_names, kind=kinds, alternate=alternates, auto_delete=st.booleans())
    def declare_exchange(self, name: str, kind: str, alternate: str | None, auto_delete: bool) -> None:
        if name in self.exchanges:
            self.host.delete_exchange(name)
            self.without_exchanges({name})
        arguments = {} if alternate is None else {"alternate-exchange": alternate}
        self.host.declare_exchange(name, kind, auto_delete=auto_delete, arguments=arguments)
        self.exchanges[name] = Declared(kind, alternate, auto_delete)

    @rule(name=queue_names)
    def declare_queue(self, name: str) -> None:
        self.host.declare_queue(name)
        self.queues.add(name)

    @rule(source=exchange_names, to_exchange=st.booleans(), e=exchange_names, q=queue_names, key=patterns)
    def bind_or_unbind(self, source: str, to_exchange: bool, e: str, q: str, key: str) -> None:
        name = e if to_exchange else q
        if source not in self.exchanges or name not in (self.exchanges if to_exchange else self.queues):
            return
        destination = self.host.exchange(name) if to_exchange else self.host.queue(name)
        binding = (source, to_exchange, name, key)
        if binding in self.bindings:
            assert self.host.unbind(self.host.exchange(source), destination, key)
            self.without_bindings({binding})
        else:
            self.host.bind(self.host.exchange(source), destination, key)
            self.bindings.add(binding)

    @rule(name=exchange_names)
    def delete_exchange(self, name: str) -> None:
        if name in self.exchanges:
            self.host.delete_exchange(name)
            self.without_exchanges({name})

    @rule(name=queue_names)
    def delete_queue(self, name: str) -> None:
        if name in self.queues:
            self.host.delete_queue(self.host.queue(name))
            self.queues.discard(name)
            self.without_bindings({b for b in self.bindings if b[1:3] == (False, name)})

    @rule(name=exchange_names, alternate=alternates.filter(bool))
    def set_policy(self, name: str, alternate: str) -> None:
        definition = {"alternate-exchange": alternate}
        self.bench.broker.policies.set(Policy("p", "/", f"^{name}$", definition, apply_to=ApplyTo.EXCHANGES))
        self.host.apply_policies()
        self.policy = (name, alternate)

    @precondition(lambda self: self.policy is not None)
    @rule()
    def clear_policy(self) -> None:
        self.bench.broker.policies.clear("/", "p")
        self.host.apply_policies()
        self.policy = None

    def without_exchanges(self, names: set[str]) -> None:
        for name in names:
            del self.exchanges[name]
        self.bindings = {b for b in self.bindings if b[0] not in names}
        self.without_bindings({b for b in self.bindings if b[1] and b[2] in names})

    def without_bindings(self, gone: set[tuple[str, bool, str, str]]) -> None:
        """Bindings go, and with the last one of an auto-delete exchange that exchange."""
        self.bindings -= gone
        sources = {b[0] for b in gone if self.exchanges[b[0]].auto_delete}
        if unused := sources - {b[0] for b in self.bindings}:
            self.without_exchanges(unused)

    # Messages.

    @rule(name=exchange_names, key=keys, cc=st.lists(keys, max_size=2).map(tuple))
    def publish(self, name: str, key: str, cc: tuple[str, ...]) -> None:
        name = name if name in self.exchanges else ""
        exchange = self.host.exchange(name)
        expected = self.reached(name, {key, *cc})
        before = {queue: self.host.queue(queue).ready for queue in self.queues}
        outcome = self.bench.broker.publish(exchange, message(key, cc=cc))
        got = {queue: self.host.queue(queue).ready - before[queue] for queue in self.queues}
        assert got == {queue: int(queue in expected) for queue in self.queues}
        assert outcome is (Outcome.TAKEN if expected else Outcome.UNROUTABLE)

    def reached(self, name: str, keys: set[str]) -> set[str]:
        """The queues, by the definition."""
        if name == "":
            return keys & self.queues
        exchanges = {name}
        while True:
            more = {to for source in exchanges for to in self.leads_to(source, keys)}
            if more <= exchanges:
                return {b[2] for b in self.matching(exchanges, keys) if not b[1]}
            exchanges |= more

    def leads_to(self, source: str, keys: set[str]) -> set[str]:
        matching = self.matching({source}, keys)
        if matching:
            return {b[2] for b in matching if b[1]}
        return {self.alternate(source)} & set(self.exchanges)

    def matching(self, sources: set[str], keys: set[str]) -> set[tuple[str, bool, str, str]]:
        return {b for b in self.bindings if b[0] in sources and self.matches(b[0], b[3], keys)}

    def matches(self, source: str, pattern: str, keys: set[str]) -> bool:
        kind = self.exchanges[source].kind
        if kind == "direct":
            return pattern in keys
        if kind == "topic":
            return any(matches(words(pattern), words(key)) for key in keys)
        return True  # fanout, and headers without criteria

    def alternate(self, name: str) -> str:
        said = self.exchanges[name].alternate
        if said is None and self.policy is not None and self.policy[0] == name:
            said = self.policy[1]
        return said or "none"

    # What always holds.

    @invariant()
    def a_remembered_route_is_the_route(self) -> None:
        for exchange in map(self.host.exchange, ["", *self.exchanges]):
            for key in KEYS:
                remembered = self.bench.broker.route(exchange, message(key))
                assert {queue.name for queue in remembered.queues} == self.reached(exchange.name, {key})

    @invariant()
    def the_topology_is_what_was_asked_for(self) -> None:
        declared = {name for name in self.host.exchanges if name.startswith("e")}
        assert declared == set(self.exchanges) - {"amq.direct"}
        assert self.bindings == {
            (b.source.name, b.destination.is_exchange, b.destination.name, b.key)
            for b in self.host.bindings()
        }


def words(key: str) -> list[str]:
    return key.split(".") if key else []


TestRouting = RoutingMachine.TestCase
TestRouting.settings = settings(stateful_step_count=60)
