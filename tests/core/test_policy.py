"""Policies: which one holds, what it may say, and what it means together with arguments."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.arguments.merging import lower, lower_above_zero
from leveret.arguments.policy_keys import OPERATOR_KEYS, POLICY_KEYS
from leveret.errors import PreconditionFailed
from leveret.limits import Overflow, QueueLimits, QueueType
from leveret.policy import (
    ApplyTo,
    Definition,
    Policies,
    Policy,
    effective_alternate,
    effective_limits,
    merged,
)
from leveret.values import Value

CLASSIC = QueueType.CLASSIC


def policy(
    name: str, definition: Definition, pattern: str = ".*", priority: int = 0, **kind: ApplyTo
) -> Policy:
    return Policy(name, "/", pattern, definition, priority, kind.get("apply_to", ApplyTo.ALL))


def holding(*policies: Policy, operator: tuple[Policy, ...] = ()) -> Policies:
    held = Policies()
    for each in policies:
        held.set(each)
    for each in operator:
        held.set_operator(each)
    return held


def test_without_a_policy_nothing_is_said() -> None:
    assert Policies().for_queue("/", "q", CLASSIC) == {}
    assert Policies().for_exchange("/", "x") == {}


def test_a_pattern_is_searched_for_in_the_name() -> None:
    policies = holding(policy("p", {"max-length": 1}, pattern="ord"))
    assert policies.for_queue("/", "the-orders", CLASSIC) == {"max-length": 1}
    assert policies.for_queue("/", "bills", CLASSIC) == {}
    assert policies.for_queue("other", "orders", CLASSIC) == {}


def test_the_highest_priority_holds_alone_and_of_equals_the_first_by_name() -> None:
    low, high = policy("a", {"max-length": 1}), policy("b", {"expires": 9}, priority=1)
    equal = policy("c", {"expires": 8}, priority=1)
    assert holding(equal, high, low).for_queue("/", "q", CLASSIC) == {"expires": 9}
    assert holding(low, high, equal).for_queue("/", "q", CLASSIC) == {"expires": 9}


REACHED: dict[ApplyTo, set[str]] = {
    ApplyTo.ALL: {"classic", "quorum", "stream", "exchange"},
    ApplyTo.QUEUES: {"classic", "quorum", "stream"},
    ApplyTo.EXCHANGES: {"exchange"},
    ApplyTo.CLASSIC_QUEUES: {"classic"},
    ApplyTo.QUORUM_QUEUES: {"quorum"},
    ApplyTo.STREAMS: {"stream"},
}


@pytest.mark.parametrize("apply_to", ApplyTo)
def test_a_policy_reaches_what_it_applies_to(apply_to: ApplyTo) -> None:
    policies = holding(policy("p", {"max-length-bytes": 1}, apply_to=apply_to))
    reached = {kind.value for kind in QueueType if policies.for_queue("/", "n", kind)}
    if policies.for_exchange("/", "n"):
        reached.add("exchange")
    assert reached == REACHED[apply_to]


def test_s145_s146_no_policy_reaches_the_default_exchange() -> None:
    policies = holding(policy("p", {"alternate-exchange": "a"}, pattern=".*"))
    assert policies.for_exchange("/", "") == {}
    assert policies.for_exchange("/", "x") == {"alternate-exchange": "a"}


def test_an_operator_policy_tightens_and_fills_in() -> None:
    policies = holding(
        policy("p", {"max-length": 10, "overflow": "reject-publish"}),
        operator=(policy("o", {"max-length": 5, "expires": 7}),),
    )
    assert policies.for_queue("/", "q", CLASSIC) == {
        "max-length": 5,
        "overflow": "reject-publish",
        "expires": 7,
    }


def test_an_operator_policy_does_not_loosen() -> None:
    policies = holding(policy("p", {"max-length": 10}), operator=(policy("o", {"max-length": 50}),))
    assert policies.for_queue("/", "q", CLASSIC) == {"max-length": 10}


def test_an_operator_policy_holds_alone() -> None:
    policies = holding(operator=(policy("o", {"max-length": 50}),))
    assert policies.for_queue("/", "q", CLASSIC) == {"max-length": 50}
    assert policies.for_exchange("/", "x") == {}


def test_a_stream_passes_over_what_it_has_no_use_for() -> None:
    policies = holding(policy("p", {"max-length": 1, "max-length-bytes": 2, "max-age": "7D"}))
    assert policies.for_queue("/", "s", QueueType.STREAM) == {"max-length-bytes": 2, "max-age": "7D"}


def test_a_policy_says_how_large_segments_are_unless_the_argument_does() -> None:
    said = holding(policy("p", {"stream-max-segment-size-bytes": 5})).for_queue("/", "s", QueueType.STREAM)
    assert effective_limits(QueueLimits(), said).max_segment_bytes == 5
    assert effective_limits(QueueLimits(max_segment_bytes=9), said).max_segment_bytes == 9
    assert effective_limits(QueueLimits(max_segment_bytes=9), {"max-age": "7D"}).max_segment_bytes == 9


REFUSED: list[tuple[Definition, str]] = [
    ({}, "the definition is empty"),
    ({"max-length": -1}, "max-length: -1 is negative"),
    ({"max-length": "5"}, "max-length: unacceptable type 'longstr', expected a whole number"),
    ({"expires": 0}, "expires: 0 is below the minimum 1"),
    ({"message-ttl": 315_360_000_001}, "message-ttl: 315360000001 is above the maximum 315360000000"),
    (
        {"overflow": "x"},
        "overflow: 'x' is not one of drop-head, reject-publish, reject-publish-dlx, self-destruct, "
        "flow-to-disk, producer-flow-control",
    ),
    ({"dead-letter-exchange": 1}, "dead-letter-exchange: unacceptable type 'signedint', expected a text"),
    ({"alternate-exchange": 1}, "alternate-exchange: unacceptable type 'signedint', expected a text"),
    ({"max-age": "7"}, "max-age: '7' is not an age such as 7D (units Y M D h m s)"),
]


@pytest.mark.parametrize(("definition", "reason"), REFUSED)
def test_a_definition_that_is_wrong_is_refused_in_words(definition: Definition, reason: str) -> None:
    policies = Policies()
    with pytest.raises(PreconditionFailed) as raised:
        policies.set(policy("p", definition))
    assert str(raised.value) == f"invalid policy 'p' in vhost '/': {reason}"
    assert policies.list() == []


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        PreconditionFailed, match=r"'max-lenght' is not one of the keys; did you mean max-length\?$"
    ):
        Policies().set(policy("p", {"max-lenght": 1}))


def test_a_pattern_that_is_no_expression_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match=r"pattern '\(' is not a regular expression"):
        Policies().set(policy("p", {"expires": 1}, pattern="("))


def test_operator_policies_hold_numbers_that_bound_a_queue_only() -> None:
    for key in POLICY_KEYS.keys() - OPERATOR_KEYS.keys():
        with pytest.raises(
            PreconditionFailed,
            match=f"invalid operator policy 'o' in vhost '/': '{key}' is not one of the keys",
        ):
            Policies().set_operator(policy("o", {key: 1}))
    for key in OPERATOR_KEYS:
        Policies().set_operator(policy("o", {key: 1}))


def test_ignored_keys_are_kept_and_mean_nothing() -> None:
    policies = holding(policy("p", {"queue-mode": "lazy", "ha-mode": "all"}))
    definition = policies.for_queue("/", "q", CLASSIC)
    assert definition == {"queue-mode": "lazy", "ha-mode": "all"}
    assert effective_limits(QueueLimits(), definition) == QueueLimits()


def test_clearing_what_is_not_there_changes_nothing() -> None:
    policies = Policies()
    assert not policies.clear("/", "p")
    assert not policies.clear_operator("/", "p")


def test_policies_are_listed_by_name_and_go_with_their_virtual_host() -> None:
    policies = holding(policy("b", {"expires": 1}), policy("a", {"expires": 1}))
    policies.set(Policy("c", "other", "", {"expires": 1}))
    assert [p.name for p in policies.list("/")] == ["a", "b"]
    policies.forget_virtual_host("/")
    assert [p.name for p in policies.list()] == ["c"]


def test_x031_the_argument_beats_the_policy_for_dead_letters_and_overflow() -> None:
    asked = QueueLimits(dead_letter_exchange="a", overflow=Overflow.DROP_HEAD, overflow_asked=True)
    definition = {"dead-letter-exchange": "p", "dead-letter-routing-key": "k", "overflow": "reject-publish"}
    limits = effective_limits(asked, definition)
    assert (limits.dead_letter_exchange, limits.dead_letter_key, limits.overflow) == (
        "a",
        "k",
        Overflow.DROP_HEAD,
    )
    limits = effective_limits(QueueLimits(), definition)
    assert (limits.dead_letter_exchange, limits.overflow) == ("p", Overflow.REJECT_PUBLISH)


def test_an_empty_dead_letter_exchange_is_the_default_exchange_and_not_absent() -> None:
    limits = effective_limits(QueueLimits(dead_letter_exchange=""), {"dead-letter-exchange": "p"})
    assert limits.dead_letter_exchange == ""


def test_s128_the_alternate_exchange_of_the_argument_wins() -> None:
    assert effective_alternate({"alternate-exchange": "a"}, {"alternate-exchange": "p"}) == "a"
    assert effective_alternate({}, {"alternate-exchange": "p"}) == "p"
    assert effective_alternate({}, {}) is None


NUMBERS = {
    "message_ttl_ms": "message-ttl",
    "expires_ms": "expires",
    "max_length": "max-length",
    "max_bytes": "max-length-bytes",
    "delivery_limit": "delivery-limit",
    "consumer_timeout_ms": "consumer-timeout",
}
some = st.none() | st.integers(1, 1000)
definitions = st.dictionaries(st.sampled_from(list(NUMBERS.values())), st.integers(1, 1000))


@given(st.fixed_dictionaries(dict.fromkeys(NUMBERS, some)), definitions)
def test_of_two_numbers_the_lower_holds(asked: dict[str, int | None], definition: dict[str, int]) -> None:
    limits = attrs.asdict(effective_limits(QueueLimits(**asked), definition))  # type: ignore[arg-type]
    for field, key in NUMBERS.items():
        said = [n for n in (asked[field], definition.get(key)) if n is not None]
        assert limits[field] == min(said, default=None)


@given(definitions, definitions, definitions)
def test_merging_numbers_is_associative_commutative_and_idempotent(
    a: dict[str, Value], b: dict[str, Value], c: dict[str, Value]
) -> None:
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, a) == a


@given(definitions)
def test_limits_never_grow_by_a_policy_applied_twice(definition: dict[str, int]) -> None:
    once = effective_limits(QueueLimits(), definition)
    assert effective_limits(once, definition) == once


def test_a_number_beats_unlimited_and_unlimited_beats_silence() -> None:
    assert lower(-1, 5) == lower(5, -1) == 5
    assert lower(-1, None) == -1
    assert lower_above_zero(0, 60) == 60
    assert effective_limits(QueueLimits(delivery_limit=-1), {"delivery-limit": 3}).delivery_limit == 3
    assert effective_limits(QueueLimits(consumer_timeout_ms=0), {}).consumer_timeout_ms == 0
