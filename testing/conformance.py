"""Conformance kit: checks an exchange type with a few samples, and raises AssertionError if it breaks the contract.

    def test_longest_is_a_good_exchange_type():
        check_exchange_type(Longest, bindings=[("a", {}), ("a.b", {})], messages=[("some.key", {})])

The samples are what the type is made for; Hypothesis adds odd keys, headers and arguments. Every run checks the same
examples. What is checked:

    the class            can be registered and called as the broker does
    refusals             `validate` and `validate_binding` raise PreconditionFailed and nothing else
    routes               lead to bound destinations only, and to none once everything is unbound
    bindings             leave no trace: bound and unbound again is as if never bound
    `looks_at`           is true: what it does not name makes no difference
    `route`              changes nothing, neither the message nor the next answer
    a reload             in mid-life makes no difference
    held messages        are taken back after a restart of the node
    `keep` and `close`   raise nothing and leave no timer behind
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

import attrs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from leveret.errors import MISTAKES, PreconditionFailed
from leveret.exchanges.answer import WrongAnswer, listed
from leveret.exchanges.exchange_type import HANDLED, ExchangeType, Handled, LooksAt
from leveret.exchanges.standard import STANDARD
from leveret.message import Message
from leveret.server.plugin_loader import faults
from leveret.testing.fakes import Bench, fake_message, publish
from leveret.values import Table, Timestamp, Value

Sample: TypeAlias = tuple[str, Table]  # a binding's key and arguments
MessageSample: TypeAlias = tuple[str, Table] | tuple[str, Table, bytes]  # a message's key, headers and body
Answer: TypeAlias = set[str] | Handled
Drawn = TypeVar("Drawn")

DESTINATIONS: Final = (("q1", False), ("q2", False), ("q3", False), ("e1", True))


@attrs.frozen
class Subject:
    """The type under test and its samples."""

    type_class: type[ExchangeType]
    arguments: Table
    bindings: Sequence[Sample]
    messages: Sequence[MessageSample]
    exchange_types: Mapping[str, type[ExchangeType]]
    by_chance: bool
    examples: int

    def bench(self) -> Bench:
        return Bench(self.type_class, self.arguments, self.exchange_types)

    def require(self, truth: bool, otherwise: str) -> None:
        if not truth:
            raise AssertionError(f"{self.type_class.__name__}: {otherwise}")


@attrs.frozen
class Planned:
    """A binding of an example; if `passing`, it is undone while others stay."""

    place: tuple[str, bool]  # of DESTINATIONS
    sample: Sample
    passing: bool

    def bind(self, bench: Bench) -> bool:
        """Bind, and return False if the type refuses such a binding."""
        (name, is_exchange), (key, arguments) = self.place, self.sample
        try:
            bench.bind(name, key, arguments, is_exchange)
        except PreconditionFailed:
            return False
        return True

    def unbind(self, bench: Bench) -> None:
        (name, is_exchange), (key, arguments) = self.place, self.sample
        bench.unbind(name, key, arguments, is_exchange)

    def identity(self, bench: Bench) -> tuple[object, ...]:
        (name, is_exchange), (key, arguments) = self.place, self.sample
        return bench.binding(name, key, arguments, is_exchange).identity


def check_exchange_type(
    type_class: type[ExchangeType],
    *,
    arguments: Table | None = None,
    bindings: Sequence[Sample] = (("", {}), ("a", {}), ("a.b", {})),
    messages: Sequence[MessageSample] = (("", {}), ("a", {}), ("a.b", {})),
    exchange_types: Mapping[str, type[ExchangeType]] = STANDARD,
    by_chance: bool = False,
    examples: int = 50,
) -> None:
    """Check that `type_class` keeps the contract of `ExchangeType`. Raises AssertionError with the reason if not.

    The type must accept `arguments` for an exchange, and each of `bindings` (key, arguments) for a binding. `messages`
    (key, headers, and a body if it matters) should be of interest to the type. `by_chance`: answers may differ from one
    call to the next. `exchange_types` are the registered ones, for a type built on others. `examples` is their number
    for each check, or the `max_examples` of Hypothesis's profile if that is less.
    """
    subject = Subject(type_class, arguments or {}, bindings, messages, exchange_types, by_chance, examples)
    check_class(subject)
    check_samples(subject)
    check_with(subject, tables(subject), check_refusal)
    messages_drawn = st.lists(drawn_messages(subject), max_size=4)
    check_with(
        subject, st.tuples(st.lists(planned_bindings(subject), max_size=6), messages_drawn), check_bindings
    )
    check_with(subject, messages_drawn, check_keep)
    if not by_chance:
        for one, other in itertools.product(all_samples(subject), repeat=2):
            check_looks_at(subject, (one, other))
        check_with(subject, st.tuples(drawn_messages(subject), drawn_messages(subject)), check_looks_at)


def all_samples(subject: Subject) -> list[Message]:
    """Return the samples, with and without headers and body: one of these may be all that a type looks at."""
    found = []
    for sample in subject.messages:
        found.append(sampled(sample))
        found.append(fake_message(sample[0]))
        found.extend(fake_message(sample[0], {}, body) for body in sample[2:])
    return found


def sampled(sample: MessageSample) -> Message:
    return fake_message(sample[0], sample[1], *sample[2:])


def check_with(
    subject: Subject, strategy: st.SearchStrategy[Drawn], check: Callable[[Subject, Drawn], None]
) -> None:
    """Run a check on drawn examples."""

    @settings(
        max_examples=min(subject.examples, settings().max_examples),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),  # Phase.explain takes seconds; the message says enough
    )
    @given(strategy)
    def run(drawn: Drawn) -> None:
        check(subject, drawn)

    run()


def check_class(subject: Subject) -> None:
    standard = STANDARD.get(subject.type_class.name) is subject.type_class  # standard names need no `x-`
    found = [] if standard else list(faults(subject.type_class))
    subject.require(not found, "; ".join(found))


def check_samples(subject: Subject) -> None:
    """Check that the type accepts the given samples."""
    bench = subject.bench()
    for key, arguments in subject.bindings:
        bench.bind("q1", key, arguments)


def check_refusal(subject: Subject, odd: Table) -> None:
    """Check that odd arguments are accepted, or refused with PreconditionFailed; anything else fails the check."""
    with suppress(PreconditionFailed):
        Bench(subject.type_class, odd, subject.exchange_types)
    with suppress(PreconditionFailed):
        subject.bench().exchange.type.validate_binding("key", odd)
    difference = subject.bench().exchange.type.equivalent(odd)
    subject.require(
        difference is None or isinstance(difference, str), "equivalent() is the name of an argument, or None"
    )


def check_bindings(subject: Subject, example: tuple[list[Planned], list[Message]]) -> None:
    """Bind, unbind some, reload, unbind the rest; compare with an exchange that never had the passing ones."""
    plan, messages = example
    bench, reference = subject.bench(), subject.bench()
    bound = {planned.identity(bench): planned for planned in plan if planned.bind(bench)}.values()
    check_answers(subject, messages, bench)
    for planned in bound:
        if planned.passing:
            planned.unbind(bench)
        else:
            planned.bind(reference)
    check_answers(subject, messages, bench, reference)
    bench.exchange.replace_type(subject.type_class)
    check_answers(subject, messages, bench, reference)
    for planned in bound:
        if not planned.passing:
            planned.unbind(bench)
    check_answers(subject, messages, bench, subject.bench())
    check_close(subject, bench)


def check_answers(
    subject: Subject, messages: list[Message], bench: Bench, reference: Bench | None = None
) -> None:
    """Check that the answers name bound destinations only, and equal the reference's answers."""
    bound = {binding.destination.name for binding in bench.exchange.bindings}
    for message in [*messages, *map(sampled, subject.messages)]:
        answer = asked(subject, bench, message)
        if answer is not HANDLED:
            subject.require(answer <= bound, f"routes to {answer - bound}, not bound: {described(message)}")
        if reference is not None and not subject.by_chance:
            expected = asked(subject, reference, message)
            otherwise = (
                f"routes to {answer} after unbinding or reloading, else to {expected}: {described(message)}"
            )
            subject.require(answer == expected, otherwise)


def check_keep(subject: Subject, messages: list[Message]) -> None:
    """Publish for real, reload in between, restart the node, and close."""
    bench = subject.bench()
    for key, arguments in subject.bindings:
        bench.bind("q1", key, arguments)
    for message in messages:
        publish(bench.exchange, message)
        bench.exchange.replace_type(subject.type_class)
    bench.restart()
    check_close(subject, bench)


def check_looks_at(subject: Subject, pair: tuple[Message, Message]) -> None:
    """Check that messages are routed alike if they differ only in what the type says it does not look at."""
    one, other = pair
    if subject.type_class.looks_at is LooksAt.MESSAGE:
        return
    if subject.type_class.looks_at is LooksAt.KEY:
        other = Message(other.encoding, other.exchange, one.key, b"", other.body, other.facts)
    if subject.type_class.looks_at is LooksAt.HEADERS:
        other = Message(one.encoding, other.exchange, one.key, one.properties, other.body, one.facts)
    bench = subject.bench()
    for number, (key, arguments) in enumerate(subject.bindings):
        bench.bind(f"q{number}", key, arguments)
    same = asked(subject, bench, one) == asked(subject, bench, other)
    subject.require(
        same, f"looks at more than {subject.type_class.looks_at}: {described(one)}, {described(other)}"
    )


def check_close(subject: Subject, bench: Bench) -> None:
    bench.exchange.type.close()
    subject.require(bench.broker.timers.next_at() is None, "a timer is left behind after close()")


def asked(subject: Subject, bench: Bench, message: Message) -> Answer:
    """Return the type's answer, after checking that `route` changes neither the message nor the next answer."""
    before = described(message)
    answer = answered(subject, bench, message)
    subject.require(
        described(message) == before, f"route() changed the message: {before} -> {described(message)}"
    )
    if not subject.by_chance:
        again = answered(subject, bench, message)
        subject.require(again == answer, f"route() answers {before} one way, then another")
    return answer


def answered(subject: Subject, bench: Bench, message: Message) -> Answer:
    """Return the names of the destinations that the type answers with. Anything else, or an exception, is a fault."""
    try:
        answer: object = bench.exchange.type.route(message)
        if answer is HANDLED:
            return HANDLED
        found = listed(answer)
    except WrongAnswer as wrong:
        raise AssertionError(f"{subject.type_class.__name__}: {wrong}: {described(message)}") from None
    except MISTAKES as error:
        otherwise = f"route() raised {type(error).__name__}: {error}: {described(message)}"
        raise AssertionError(f"{subject.type_class.__name__}: {otherwise}") from error
    return {destination.name for destination in found}


def described(message: Message) -> str:
    return f"key {message.key!r}, headers {message.headers!r}, body {message.body!r}"


def planned_bindings(subject: Subject) -> st.SearchStrategy[Planned]:
    samples = st.sampled_from(subject.bindings) | st.tuples(keys(subject), tables(subject))
    return st.builds(Planned, st.sampled_from(DESTINATIONS), samples, st.booleans())


def drawn_messages(subject: Subject) -> st.SearchStrategy[Message]:
    bodies = st.sampled_from([b"", b"body", b"\xff\x00", *(body for s in subject.messages for body in s[2:])])
    odd = st.builds(fake_message, keys(subject), tables(subject), bodies)
    return st.builds(sampled, st.sampled_from(subject.messages)) | odd


def keys(subject: Subject) -> st.SearchStrategy[str]:
    """Return a strategy for keys: those of the samples, and odd ones: long, empty, many dots, not UTF-8."""
    known = [sample[0] for sample in (*subject.bindings, *subject.messages)]
    odd = ["", ".", "a..b", "#", "*", "#.#.#", "-1", "1" * 255, "a." * 127, "\udcff", "\u00e9"]
    return st.sampled_from([*known, *odd]) | st.text(max_size=30)


def tables(subject: Subject) -> st.SearchStrategy[dict[str, Value]]:
    """Return a strategy for tables, mostly with names that the type knows, and with values of every type."""
    samples = [subject.arguments, *(sample[1] for sample in (*subject.bindings, *subject.messages))]
    known = {name for table in samples for name in table} | set(subject.type_class.argument_names)
    known |= {row.name for row in subject.type_class.arguments}
    seen = [value for table in samples for value in table.values()]
    names = st.sampled_from(sorted(known | {"x-match", "x-odd", ""})) | st.text(max_size=5)
    found = st.sampled_from(seen) | values() if seen else values()
    return st.dictionaries(names, found, max_size=4)


def values() -> st.SearchStrategy[Value]:
    plain: st.SearchStrategy[Value] = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.decimals(allow_nan=False, allow_infinity=False),
        st.text(max_size=10),
        st.binary(max_size=10),
        st.builds(Timestamp, st.integers(0, 2**63)),
    )
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    )
