"""Finds mistakes, or what is most likely one, in a topology: findings with a severity, a code, a place, and advice.

Each rule is a generator in `RULES` by its code. The settings of policies count if there is no argument:
`EffectiveTopology` looks both up, and follows bindings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from leveret.arguments.names import meant, shown
from leveret.arguments.policy_keys import OPERATOR_KEYS, POLICY_KEYS
from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS
from leveret.arguments.row import Effect, Row
from leveret.arguments.warnings import (
    binding_warnings,
    exchange_warnings,
    policy_warnings,
    queue_warnings,
)
from leveret.config.types import Problem
from leveret.exchanges.standard import STANDARD
from leveret.limits import QueueType
from leveret.policy import ApplyTo
from leveret.selectors.pcre_translation import refusal_of
from leveret.server.topology_file import releases
from leveret.server.topology_file.dead_letter_cycles import dead_letter_cycles
from leveret.server.topology_file.effective import (
    ALTERNATE,
    DEAD_LETTER,
    DEAD_LETTER_KEY,
    EffectiveTopology,
    compiled,
    for_kind,
)
from leveret.server.topology_file.model import (
    BINDING,
    EXCHANGE,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    QUEUE,
    Thing,
    Topology,
)
from leveret.values import Table


class Severity(StrEnum):
    """The weight of a finding, the heaviest first."""

    ERROR = "error"  # a node refuses it, or messages are lost that were to be kept
    WARNING = "warning"  # it does not do what was most likely meant
    NOTE = "note"  # it may be meant so


@attrs.frozen
class Finding:
    severity: Severity
    code: str
    place: str
    what: str
    advice: str


Found = Iterator[tuple[Thing, str, str]]  # the object, the mistake, the advice

APPLY_TO: Final = tuple(each.value for each in ApplyTo)
TYPES: Final = frozenset(kind.value for kind in QueueType)
MESSAGE_SIZE: Final = "message-size"
ITEM: Final = re.compile(r"\w+\[\d+\]")  # in the place of a problem
PREDECLARED: Final = re.compile(r"amq\.")


def lint(topology: Topology, release: str | None = None) -> list[Finding]:
    """Return all findings: what a release of RabbitMQ would refuse, if one is named, and then what matters most.

    Raises ValueError if there is no profile of that release.
    """
    seen = EffectiveTopology(topology)
    refusals = [] if release is None else releases.refused_by(seen, release)
    found = [
        *(Finding(Severity.ERROR, releases.CODE, *_told(each)) for each in refusals),
        *(
            Finding(severity, code, *_told(each))
            for code, (severity, rule) in RULES.items()
            for each in rule(seen)
        ),
    ]
    return sorted(found, key=lambda each: list(Severity).index(each.severity))


def size_of_messages(content: object) -> list[Finding]:
    """Return a note if definitions come from RabbitMQ 3, which took larger messages than are taken here by default."""
    if not isinstance(content, Mapping) or content.get("product_name") not in (None, "RabbitMQ"):
        return []
    version = content.get("rabbitmq_version", content.get("rabbit_version"))
    if not isinstance(version, str) or not version.startswith("3."):
        return []
    what = f"RabbitMQ {version} took messages of up to 128 MiB, of which those above 16 MiB are refused here"
    return [
        Finding(
            Severity.NOTE, MESSAGE_SIZE, "the file", what, "set limits.message_size_max if there are such"
        )
    ]


def with_refusals(findings: Sequence[Finding], refused: Iterable[Problem]) -> list[Finding]:
    """Return findings together with what a node refuses, unless they name that object as an error already."""
    named = {each.place for each in findings if each.severity is Severity.ERROR}
    more = [
        Finding(
            Severity.ERROR,
            "refused",
            each.where or "the file",
            str(each).removeprefix(f"{each.where}: "),
            "correct it: a node refuses it",
        )
        for each in refused
        if named.isdisjoint(ITEM.findall(each.where))
    ]
    return sorted([*more, *findings], key=lambda each: list(Severity).index(each.severity))


def _told(found: tuple[Thing, str, str]) -> tuple[str, str, str]:
    thing, what, advice = found
    return thing.place or str(thing), what, advice


def bindings_to_missing(seen: EffectiveTopology) -> Found:
    for each in seen.topology.of(BINDING):
        _, host, source, kind, destination, *_ = each.key
        for end_kind, name in ((EXCHANGE, source), (kind, destination)):
            if not seen.is_there(end_kind, host, name):
                yield (
                    each,
                    f"{each}: there is no {end_kind} '{name}'",
                    f"declare the {end_kind}, or remove the binding",
                )


def exchanges_that_drop(seen: EffectiveTopology) -> Found:
    for each in seen.topology.of(EXCHANGE):
        if not seen.bindings_of(each.host, each.name) and seen.setting(each, ALTERNATE) is None:
            yield (
                each,
                f"{each} has neither a binding nor an alternate exchange: what is published to it is dropped",
                "bind a queue to it, or set alternate-exchange",
            )


def keys_of_topics(seen: EffectiveTopology) -> Found:
    """Find binding keys of topic exchanges whose wildcards are none.

    Words are parted by dots, and `*` and `#` are wildcards as whole words. Filters of protocols with slashes, where `+`
    stands for a level, are translated when a client subscribes; in a topology they are taken as they stand.
    """
    for each in seen.topology.of(BINDING):
        _, host, source, _, _, key, *_ = each.key
        if seen.type_of(host, source) != "topic":
            continue
        levels = key.split("/")
        if len(levels) > 1 and ("+" in levels or levels[-1] == "#"):
            meant_key = ".".join("*" if level == "+" else level for level in levels)
            yield (
                each,
                f"{each}: slashes part no words here, and '+' is no wildcard",
                f"bind it by '{meant_key}'",
            )
        for word in key.split("."):
            if len(word) > 1 and ("*" in word or "#" in word) and "/" not in word:
                yield each, f"{each}: '{word}' is no wildcard", "let * or # be a whole word, between dots"


def missing_alternates(seen: EffectiveTopology) -> Found:
    yield from _missing(seen, EXCHANGE, ALTERNATE, "what no binding matches is dropped")


def missing_dead_letter_exchanges(seen: EffectiveTopology) -> Found:
    yield from _missing(seen, QUEUE, DEAD_LETTER, "its dead letters are dropped")


def _missing(seen: EffectiveTopology, kind: str, setting: str, then: str) -> Found:
    for each in seen.topology.of(kind):
        name = seen.setting(each, setting)
        if name is not None and not seen.is_there(EXCHANGE, each.host, str(name)):
            yield (
                each,
                f"{each} has {setting} '{name}', which does not exist: {then}",
                f"declare the exchange, or correct {setting}",
            )


def alternate_cycles(seen: EffectiveTopology) -> Found:
    """Find cycles of alternate exchanges; each is reported once, at its first exchange by name."""
    for each in seen.topology.of(EXCHANGE):
        names = [each.name]
        while (following := seen.alternate(each.host, names[-1])) is not None and following not in names:
            names.append(following)
        if following == each.name and each.name == min(names):
            yield (
                each,
                f"alternate exchanges go round: {' -> '.join([*names, each.name])}",
                "let one of them have no alternate exchange, or another: an exchange is asked only once",
            )


def dead_letters_go_round(seen: EffectiveTopology) -> Found:
    for cycle, why in dead_letter_cycles(seen):
        names = " -> ".join([*(each.name for each in cycle), cycle[0].name])
        yield cycle[0], f"dead letters go round: {names}; {why[0]}", why[1]


def policies_of_nothing(seen: EffectiveTopology) -> Found:
    for each in seen.topology.of(POLICY, OPERATOR_POLICY):
        pattern = compiled(each.settings.get("pattern"))
        if pattern is None:
            continue
        candidates = [
            thing
            for thing in seen.topology.of(QUEUE, EXCHANGE)
            if thing.host == each.host and for_kind(each, thing)
        ]
        if not any(pattern.search(thing.name) for thing in candidates):
            yield (
                each,
                f"{each} matches nothing: the pattern {each.settings['pattern']!r} is found in none of the names "
                "it applies to",
                "correct the pattern or apply-to, or clear the policy",
            )


def patterns_that_do_not_compile(seen: EffectiveTopology) -> Found:
    for each in seen.topology.of(POLICY, OPERATOR_POLICY, PERMISSION):
        for name in ("pattern", "configure", "write", "read"):
            text = each.settings.get(name)
            why = None if text is None else refusal_of(str(text))
            if why is not None:
                yield each, f"{each}: {name} {text!r} is not a regular expression ({why})", "correct it"


def contradicting_arguments(seen: EffectiveTopology) -> Found:
    for each in seen.topology.of(QUEUE):
        for what, advice in _contradictions(each, seen):
            yield each, f"{each}: {what}", advice


def _contradictions(queue: Thing, seen: EffectiveTopology) -> Iterator[tuple[str, str]]:
    arguments = queue.settings["arguments"]
    assert isinstance(arguments, Mapping)
    kind = arguments.get("x-queue-type", "classic")
    if kind in ("quorum", "stream"):
        if not queue.settings.get("durable"):
            yield f"a {kind} queue is always durable", "make it durable"
        if queue.settings.get("auto_delete"):
            yield f"a {kind} queue cannot go with its last consumer", "remove auto_delete"
    for name in arguments:
        row = QUEUE_ARGUMENTS.get(name)
        if row is not None and kind in TYPES and QueueType(kind) not in row.types:
            yield f"{name} means nothing to a {kind} queue", "remove it, or choose another x-queue-type"
    if kind == "quorum" and arguments.get("x-overflow") == "reject-publish-dlx":
        yield "a quorum queue does not have x-overflow reject-publish-dlx", "use reject-publish"
    bounds = [seen.setting(queue, name) for name in ("max-length", "max-length-bytes")]
    at_least_once = seen.setting(queue, "dead-letter-strategy") == "at-least-once"
    if "x-overflow" in arguments and bounds == [None, None] and not at_least_once:
        yield (
            "x-overflow without a bound has no effect",
            "set x-max-length or x-max-length-bytes, or remove it",
        )
    if at_least_once and seen.setting(queue, "overflow") != "reject-publish":
        yield (
            "dead-letter-strategy at-least-once has no effect with this overflow",
            "set overflow to reject-publish",
        )
    if at_least_once and seen.setting(queue, DEAD_LETTER) is None:
        yield (
            "dead-letter-strategy at-least-once without a dead-letter exchange has no effect",
            "set dead-letter-exchange",
        )
    if seen.setting(queue, DEAD_LETTER_KEY) is not None and seen.setting(queue, DEAD_LETTER) is None:
        yield (
            "a dead-letter routing key without a dead-letter exchange has no effect",
            "set dead-letter-exchange",
        )


def refused(seen: EffectiveTopology) -> Found:
    """Find types and values that a node refuses. Which exchange types it has besides the standard ones is not known."""
    for each in seen.topology.of(QUEUE, EXCHANGE, POLICY, OPERATOR_POLICY):
        for what in faults_of(each):
            yield each, f"{each}: {what}", "correct it: a node refuses it"


def faults_of(thing: Thing) -> Iterator[str]:
    """Yield the sentences about a type and values that a node refuses."""
    if thing.kind == EXCHANGE:
        kind = str(thing.settings.get("type"))
        if kind not in STANDARD and (close := meant(kind, STANDARD)):
            yield f"the exchange type '{shown(kind)}' is not a standard one{close}"
        return
    definition = table_of(thing, "arguments" if thing.kind == QUEUE else "definition")
    known: Mapping[str, Row] = QUEUE_ARGUMENTS
    if thing.kind != QUEUE:
        known = OPERATOR_KEYS if thing.kind == OPERATOR_POLICY else POLICY_KEYS
        to = str(thing.settings.get("apply-to", "all"))
        if to not in APPLY_TO:
            yield f"apply-to '{shown(to)}' is not one of {', '.join(APPLY_TO)}{meant(to, APPLY_TO)}"
    for name, value in definition.items():
        row = known.get(name)
        fault = None if row is None or row.effect is not Effect.IMPLEMENTED else row.check(value)
        if fault is not None:
            yield f"{name}: {fault}"


def without_effect(seen: EffectiveTopology) -> Found:
    """Find arguments and policy keys that are accepted and do nothing, and names that are most likely misspelt."""
    for each in seen.topology.of(QUEUE, EXCHANGE, BINDING, POLICY, OPERATOR_POLICY):
        for warning in warnings_of(each, seen):
            yield each, f"{each}: {warning}", "remove it, or correct its name"
    for place, warning in seen.topology.passed_over:
        yield Thing(("file",), {}, place), warning, "remove it"


def warnings_of(thing: Thing, seen: EffectiveTopology) -> list[str]:
    """Return the sentences about a thing's arguments or keys that have no effect.

    What arguments of an exchange or binding mean is known of the standard exchange types only.
    """
    if thing.kind in (POLICY, OPERATOR_POLICY):
        return policy_faults(table_of(thing, "definition"), thing.kind == OPERATOR_POLICY)
    arguments = table_of(thing, "arguments")
    if thing.kind == QUEUE:
        return queue_warnings(arguments)
    if thing.kind == EXCHANGE:
        standard = STANDARD.get(str(thing.settings.get("type")))
        return [] if standard is None else exchange_warnings(arguments, standard.arguments)
    standard = STANDARD.get(seen.type_of(thing.host, thing.key[2]))
    return [] if standard is None else binding_warnings(arguments, standard.binding_arguments)


def policy_faults(definition: Table, operator: bool) -> list[str]:
    """Return the sentences about keys that a node refuses, or that have no effect."""
    known = OPERATOR_KEYS if operator else POLICY_KEYS
    refused = [f"{shown(name)} is refused{meant(name, known)}" for name in definition if name not in known]
    return [*refused, *policy_warnings(definition)]


def table_of(thing: Thing, name: str) -> Table:
    table = thing.settings.get(name)
    return table if isinstance(table, dict) else {}


RULES: Final[Mapping[str, tuple[Severity, Callable[[EffectiveTopology], Found]]]] = {
    "refused": (Severity.ERROR, refused),
    "bad-pattern": (Severity.ERROR, patterns_that_do_not_compile),
    "binding-to-missing": (Severity.ERROR, bindings_to_missing),
    "missing-alternate-exchange": (Severity.ERROR, missing_alternates),
    "missing-dead-letter-exchange": (Severity.ERROR, missing_dead_letter_exchanges),
    "alternate-exchange-cycle": (Severity.WARNING, alternate_cycles),
    "dead-letter-cycle": (Severity.WARNING, dead_letters_go_round),
    "contradicting-arguments": (Severity.WARNING, contradicting_arguments),
    "without-effect": (Severity.WARNING, without_effect),
    "topic-key": (Severity.WARNING, keys_of_topics),
    "exchange-drops": (Severity.NOTE, exchanges_that_drop),
    "policy-matches-nothing": (Severity.NOTE, policies_of_nothing),
}
