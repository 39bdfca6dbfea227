"""Explain by a dry run where a message would go from an exchange, and why. Nothing is delivered, counted or logged.

    exchange, key, headers ─> the walk that delivers ─> each exchange asked, each binding matched, why it is dropped

The walk reports to a `Trace`, so an explanation cannot differ from a delivery. The exchange type itself decides which
bindings matched: a fresh instance gets one binding at a time, and matches or does not. For types beyond the standard
ones, which may look at all bindings together, only the destinations are known.

An exchange type that draws by chance (`x-random`) draws again for the message that is really published.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from leveret.client import Client, require_not_internal
from leveret.errors import AccessRefused
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, LooksAt
from leveret.exchanges.routing import Trace, is_duplicate, walk
from leveret.exchanges.standard import STANDARD
from leveret.message import Encoding, Facts, Message, further_keys
from leveret.queues.queue import Queue
from leveret.security.users import User
from leveret.values import Json, Properties, Table, as_json, printed
from leveret.virtual_host import VirtualHost

NO_HEADERS: Final[Table] = {}
NO_PROPERTIES: Final = Properties()


@attrs.frozen
class Match:
    """A binding that matched."""

    kind: str  # of the destination: queue or exchange
    name: str
    key: str | None  # None: several bindings lead there, and it is not known which one matched
    arguments: Table
    followed: bool = True  # False: leads to an exchange that another binding has led to

    def to_json(self) -> dict[str, Json]:
        return {**attrs.asdict(self, recurse=False), "arguments": as_json(self.arguments)}


@attrs.frozen
class Step:
    """A step: one exchange that was asked for destinations."""

    exchange: str  # empty: the default exchange
    type: str
    via: str  # publish, binding or alternate
    source: str | None  # the exchange that led here
    matched: tuple[Match, ...]
    alternate: str | None  # the alternate that the exchange turned to because nothing matched
    outcome: str  # of the alternate: followed, missing, asked before; empty if it was not needed
    reason: str  # why no binding leads on from here; empty if one does
    unmet: tuple[Match, ...] = ()  # the bindings that would lead on, but for their selectors

    @property
    def dead_end(self) -> bool:
        return bool(self.reason) and self.outcome != "followed"

    def to_json(self) -> dict[str, Json]:
        return {
            **attrs.asdict(self, recurse=False),
            "matched": [match.to_json() for match in self.matched],
            "unmet": [match.to_json() for match in self.unmet],
        }


@attrs.frozen
class PublishPermission:
    """The permission of a user to publish the message."""

    user: str | None  # None: no user was given
    allowed: bool | None  # None: not checked
    reason: str | None = None  # of a refusal

    def to_json(self) -> dict[str, Json]:
        return attrs.asdict(self)


@attrs.frozen
class Explanation:
    """The explanation of where a message would go, with every step on the way.

    The steps are given even if the user may not publish the message; it is not `routed` then.
    """

    virtual_host: str
    exchange: str
    keys: tuple[str, ...]  # the routing key, then CC and BCC
    queues: tuple[str, ...]  # in the order of delivery
    paused: tuple[str, ...]  # those of them that deliver nothing for now
    handled: bool  # an exchange on the way takes the message itself
    steps: tuple[Step, ...]
    dropped: str | None  # the reason why it reaches no queue; None if it does
    permission: PublishPermission

    @property
    def routed(self) -> bool:
        return self.dropped is None

    def to_json(self) -> dict[str, Json]:
        """Return the explanation in the JSON form of the control endpoint."""
        return {
            "routed": self.routed,
            **attrs.asdict(self, recurse=False),
            "steps": [step.to_json() for step in self.steps],
            "permission": self.permission.to_json(),
        }


def explain(
    host: VirtualHost,
    exchange: str,
    key: str = "",
    headers: Table = NO_HEADERS,
    *,
    properties: Properties = NO_PROPERTIES,
    body: bytes = b"",
    user: User | None = None,
) -> Explanation:
    """Explain where a message published to `exchange` now would go.

    The headers CC and BCC, lists of strings, count as routing keys (S091). `user` is the publisher; with None the only
    check is that the exchange is not internal, as no user may publish to those.

    Raises NotFound (no such exchange), PreconditionFailed (CC or BCC is no list).
    """
    origin = host.exchange(exchange)
    message = dry_message(exchange, key, headers, properties, body)
    told = RecordedTrace(message)
    if is_duplicate(origin, message):
        told.repeated(origin, "publish")
        found: tuple[Queue, ...] = ()
    else:
        found = walk(origin, message, trace=told).queues
    steps = told.steps()
    permission = asked_permission(host, origin, message, user)
    queues = () if permission.reason else tuple(queue.name for queue in found)
    paused = tuple(queue.name for queue in found if queue.paused and queue.name in queues)
    handled = told.is_handled and not permission.reason
    dropped = None if queues or handled else permission.reason or reason_of_drop(steps)
    return Explanation(host.name, exchange, message.keys, queues, paused, handled, steps, dropped, permission)


def reason_of_drop(steps: Iterable[Step]) -> str:
    return "; ".join(f"{shown(step.exchange)}: {step.reason}" for step in steps if step.dead_end)


def asked_permission(
    host: VirtualHost, exchange: Exchange, message: Message, user: User | None
) -> PublishPermission:
    """Return whether `user` may publish the message, with the refusal that a connected client would get."""
    name = None if user is None else user.name
    try:
        require_not_internal(exchange)
        if user is not None:
            client = Client(host.broker, user)
            client.host = host
            client.publish_target(exchange.name, message.keys)
    except AccessRefused as refusal:
        return PublishPermission(name, False, str(refusal))
    return PublishPermission(name, None if user is None else True)


# The message.


class DryEncoding(Encoding):
    """An encoding of properties that never were bytes: one instance for each message."""

    name = "explain"

    def __init__(self, properties: Properties) -> None:
        self._properties = properties

    def headers(self, properties: bytes) -> Table:
        return self._properties.headers or NO_HEADERS

    def read(self, properties: bytes) -> Properties:
        return self._properties

    def write(self, properties: Properties) -> bytes:
        return b""


def dry_message(exchange: str, key: str, headers: Table, properties: Properties, body: bytes) -> Message:
    # as exchanges and consumers see them
    seen = {name: value for name, value in headers.items() if name != "BCC"}
    facts = Facts(
        durable=properties.durable,
        priority=properties.priority or 0,
        ttl_ms=properties.ttl_ms,
        user_id=properties.user_id,
        reply_to=properties.reply_to,
        cc=further_keys(headers, "CC"),
        bcc=further_keys(headers, "BCC"),
        has_headers=bool(headers),
    )
    encoding = DryEncoding(attrs.evolve(properties, headers=seen))
    return Message(encoding, exchange, key, b"", body, facts)


# The trace.


@attrs.define
class ExchangeStep:
    """The walk's reports about one exchange."""

    exchange: Exchange
    via: str
    answer: list[Destination] | None
    error: str
    leads_on: set[str] = attrs.Factory(set)  # exchanges that were asked because of this one
    outcome: str = ""  # of the alternate
    is_duplicate: bool = False  # the exchange drops it
    unmet: list[Destination] = attrs.Factory(list)  # whose selectors it does not meet


class RecordedTrace(Trace):
    """A trace that records the walk's reports, and makes steps of them."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._asked: list[ExchangeStep] = []

    def asked(self, exchange: Exchange, via: str, answer: list[Destination] | None, error: str) -> None:
        self._asked.append(ExchangeStep(exchange, via, answer, error))

    def repeated(self, exchange: Exchange, via: str) -> None:
        self._asked.append(ExchangeStep(exchange, via, [], "", is_duplicate=True))

    def unmet(self, exchange: Exchange, destinations: list[Destination]) -> None:
        self._asked[-1].unmet = destinations

    @property
    def is_handled(self) -> bool:
        """True if an exchange takes the message itself."""
        return any(step.answer is None for step in self._asked)

    def hop(self, source: Exchange, destination: Exchange, followed: bool) -> None:
        if followed:
            self._asked[-1].leads_on.add(destination.name)

    def alternate(self, exchange: Exchange, outcome: str) -> None:
        step = self._asked[-1]
        step.outcome = outcome
        if outcome == "followed" and exchange.alternate is not None:
            step.leads_on.add(exchange.alternate)

    def steps(self) -> tuple[Step, ...]:
        sources = {name: step.exchange.name for step in self._asked for name in step.leads_on}
        return tuple(self._step(step, sources.get(step.exchange.name)) for step in self._asked)

    def _step(self, step: ExchangeStep, source: str | None) -> Step:
        exchange = step.exchange
        bindings = matched_bindings(exchange, self._message, step.answer or ())
        return Step(
            exchange=exchange.name,
            type=exchange.type.name,
            via=step.via,
            source=source,
            matched=tuple(matches(bindings, step.leads_on)),
            alternate=exchange.alternate if step.outcome else None,
            outcome=step.outcome,
            reason=reason_to_stop(step, self._message),
            unmet=tuple(unmet_bindings(exchange, step.unmet)),
        )


def matches(bindings: Iterable[Match], leads_on: set[str]) -> Iterable[Match]:
    """Yield the matches, marking those to exchanges asked otherwise. Of several to one exchange the first leads on."""
    left = set(leads_on)
    for match in bindings:
        new = match.kind == "queue" or match.name in left
        left.discard(match.name)
        yield match if new else attrs.evolve(match, followed=False)


# Which bindings.


def matched_bindings(exchange: Exchange, message: Message, answer: Iterable[Destination]) -> Iterable[Match]:
    """Return the bindings that led to the destinations that an exchange answered."""
    wanted = set(answer)
    if exchange.name == "":
        return [Match(queue.kind, queue.name, queue.name, {}) for queue in dict.fromkeys(answer)]
    bindings = [binding for binding in exchange.bindings if binding.destination in wanted]
    if STANDARD.get(exchange.type.name) is type(exchange.type):
        return [match_of(binding) for binding in bindings if matches_alone(exchange, binding, message)]
    by_destination: dict[Destination, list[Binding]] = {each: [] for each in answer}
    for binding in bindings:
        by_destination[binding.destination].append(binding)
    return [
        match_of(found[0]) if len(found) == 1 else Match(destination.kind, destination.name, None, {})
        for destination, found in by_destination.items()
    ]


def unmet_bindings(exchange: Exchange, unmet: Iterable[Destination]) -> Iterable[Match]:
    """Return the bindings to these destinations; each binding with a selector has a destination of its own."""
    left = set(unmet)
    return [match_of(binding) for binding in exchange.bindings if binding.destination in left] if left else []


def matches_alone(exchange: Exchange, binding: Binding, message: Message) -> bool:
    """True if the exchange would route the message if it had this binding only."""
    probe = Exchange(exchange.virtual_host, exchange.name, type(exchange.type))
    probe.bindings_by_identity[binding.identity] = binding
    probe.type.bind(binding)
    return bool(probe.type.route(message))


def match_of(binding: Binding) -> Match:
    return Match(binding.destination.kind, binding.destination.name, binding.key, binding.arguments)


# Why it stops.


ALTERNATES: Final = {
    "": "",
    "followed": "; the alternate '{}' is asked",
    "missing": "; the alternate '{}' does not exist",
    "asked before": "; the alternate '{}' has been asked before",
}


def reason_to_stop(step: ExchangeStep, message: Message) -> str:
    """Return why no binding leads on from an exchange; empty if one does."""
    if step.is_duplicate:
        return f"it is a duplicate: the id '{id_of(step.exchange, message)}' was taken before"
    if step.answer is None:
        return "takes the message itself"
    if not step.answer:
        return reason_for_nothing(step, message) + ALTERNATES[step.outcome].format(step.exchange.alternate)
    if step.leads_on or not all(destination.is_exchange for destination in step.answer):
        return ""
    return "it is bound only to exchanges that have been asked before"


def id_of(exchange: Exchange, message: Message) -> str:
    """Return the id by which an exchange tells duplicates, as people read it."""
    known = exchange.deduplication
    return "" if known is None else printed(message.header(known.header))


def reason_for_nothing(step: ExchangeStep, message: Message) -> str:
    exchange = step.exchange
    keys = " or ".join(f"'{key}'" for key in message.keys)
    if step.error:
        return f"the type {exchange.type.name} failed: {step.error}"
    if exchange.name == "" and not step.unmet:
        return f"there is no queue {keys}"
    if not exchange.bindings_by_identity:
        return "nothing is bound"
    if step.unmet:
        return "the selector does not match" if len(step.unmet) == 1 else "the selectors do not match"
    return f"no binding matches {keys if exchange.type.looks_at is LooksAt.KEY else 'the message'}"


def shown(exchange: str) -> str:
    return f"exchange '{exchange}'" if exchange else "the default exchange"
