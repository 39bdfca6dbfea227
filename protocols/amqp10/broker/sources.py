"""The terms of a receiver: its attach becomes `Terms`, and the source for our attach.

| requested by                                                     | is                                            |
|------------------------------------------------------------------|-----------------------------------------------|
| property `rabbitmq:priority` (or `priority`, as Artemis has it)  | its rank among the queue's consumers          |
| property `rabbitmq:consumer-timeout`, milliseconds, 0: none      | its time-out for outcomes                     |
| property `exclusive`, a boolean                                  | that it is the queue's only consumer          |
| filter `apache.org:selector-filter:string`, or key `jms-selector`| a condition on messages                       |
| filter `amqp:sql-filter`                                         | a condition, in another spelling              |
| filter `apache.org:no-local-filter:list`, on no stream           | only what other connections publish           |
| filters `amqp:properties-filter`,                                | conditions on single properties               |
| `amqp:application-properties-filter`                             |                                               |
| filter `rabbitmq:stream-offset-spec`, on a stream                | its first message                             |
| filters `rabbitmq:stream-filter` and                             | the filter values of its messages             |
| `rabbitmq:stream-match-unfiltered`, on a stream                  |                                               |
| distribution-mode `copy`                                         | to read without taking                        |
| outcomes, default-outcome                                        | its outcomes, and that of unanswered messages |

Filters and properties that our source does not repeat have no effect (part 3, section 3.5.3): a receiver that depends
on them may detach. A delivery that is settled with no outcome, or given up with its link, gets the default outcome: the
requested one, or released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from leveret.errors import PreconditionFailed
from leveret.limits import QueueType
from leveret.protocols.amqp10.broker.addresses import queue_address
from leveret.protocols.amqp10.broker.core_values import neutral
from leveret.protocols.amqp10.broker.dynamic_queues import DYNAMIC_NODE, TEMPORARY_QUEUE
from leveret.protocols.amqp10.broker.outcomes import Outcome, outcome_in
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Array, Described, Symbol, Timestamp, Value
from leveret.queues.queue import Queue
from leveret.queues.reader_groups import GROUP, group_name
from leveret.queues.stream import OFFSET
from leveret.queues.stream_filter import FILTER, UNFILTERED, stream_filter
from leveret.selectors.no_local import from_others
from leveret.selectors.parser import Selector, compile_selector
from leveret.selectors.property_filter import application_filter, properties_filter
from leveret.selectors.sql_filter import compile_sql
from leveret.values import Table
from leveret.values import Timestamp as Seconds
from leveret.values import Value as Neutral

OUTCOMES: Final[dict[str, type[Outcome]]] = {
    kind.NAME: kind for kind in (p.Accepted, p.Rejected, p.Released, p.Modified)
}
PRIORITY: Final = ("rabbitmq:priority", "priority")
TIMEOUT: Final = "rabbitmq:consumer-timeout"
EXCLUSIVE: Final = "exclusive"
SELECTORS: Final = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004, "jms-selector")
SQL_FILTERS: Final = ("amqp:sql-filter", 0x120, "sql-filter")  # the last without a descriptor
PROPERTIES_FILTERS: Final = ("amqp:properties-filter", 0x173)
APPLICATION_FILTERS: Final = ("amqp:application-properties-filter", 0x174)
NO_LOCAL: Final = ("apache.org:no-local-filter:list", 0x0000_468C_0000_0003, "no-local")
OFFSETS: Final = ("rabbitmq:stream-offset-spec",)
STREAM_FILTERS: Final = ("rabbitmq:stream-filter",)
GROUPS: Final = ("leveret:stream-group",)
UNFILTEREDS: Final = ("rabbitmq:stream-match-unfiltered",)
CONDITIONS_MAX: Final = 8  # filters of messages of one source
DEFAULT_SIZE_MAX: Final = 1024  # bytes of a default outcome
CAPABILITIES: Final = ("queue", TEMPORARY_QUEUE)  # of our sources, for receivers that ask for them


@attrs.frozen
class Terms:
    """The terms on which a receiver reads from its queue."""

    priority: int = 0
    exclusive: bool = False
    timeout_s: float | None = None  # 0: no limit; None: that of the queue
    selector: Selector | None = None
    arguments: Table = attrs.field(factory=dict)  # for the kind of queue
    browses: bool = False
    # The properties of the attach that have effect, and the filters that do.
    properties: Mapping[str, Value] = attrs.field(factory=dict)
    filters: Mapping[str, Value] = attrs.field(factory=dict)


def terms(attach: p.Attach, source: p.Source, queue: Queue, peer: object) -> Terms:
    """Return the requested terms, as far as this queue supports them. `peer`: the connection (`Client.peer`).

    Raises AmqpError amqp:invalid-field for invalid values.
    """
    given = attach.properties or {}
    known = {name: given[name] for name in (*PRIORITY, TIMEOUT, EXCLUSIVE) if name in given}
    condition, of_messages = _conditions(source)
    no_local = None if queue.type is QueueType.STREAM else _filter(source, NO_LOCAL)
    if no_local is not None:
        condition = from_others(peer).also(condition)
        of_messages.append(no_local)
    arguments, of_stream = _stream_arguments(source, queue) if queue.type is QueueType.STREAM else ({}, [])
    return Terms(
        priority=next((_whole(known, name) for name in PRIORITY if name in known), 0),
        exclusive=EXCLUSIVE in known and _truth(known, EXCLUSIVE),
        timeout_s=_timeout_s(known) if TIMEOUT in known else None,
        selector=condition,
        arguments=arguments,
        browses=_browses(source, queue),
        properties=known,
        filters={each.name: each.value for each in (*of_messages, *of_stream)},
    )


def _conditions(source: p.Source) -> tuple[Selector | None, list[Filter]]:
    """Return the condition on messages that a source asks for, all its filters together, and these.

    Raises AmqpError amqp:invalid-field.
    """
    condition: Selector | None = None
    found: list[Filter] = []
    for kinds, compiled in CONDITIONS:
        for wanted in _filters(source, kinds):
            if len(found) == CONDITIONS_MAX:
                raise _invalid(f"there are more than {CONDITIONS_MAX} filters of messages")
            condition = compiled(wanted.says).also(condition)
            found.append(wanted)
    return condition, found


def _stream_arguments(source: p.Source, queue: Queue) -> tuple[Table, list[Filter]]:
    """Return what a source asks of a stream as the core's arguments of a consumer, and the filters that it is from.

    Raises AmqpError amqp:invalid-field.
    """
    arguments: dict[str, Neutral] = {}
    found: list[Filter] = []
    for argument, kinds, read in STREAM_ARGUMENTS:
        if (wanted := _filter(source, kinds)) is not None:
            arguments[argument] = read(wanted.says)
            found.append(wanted)
    try:
        stream_filter(arguments, queue.described)
        group_name(arguments, queue.described)
    except PreconditionFailed as failure:
        raise _invalid(str(failure)) from None
    return arguments, found


def selector_of(source: p.Source) -> Selector | None:
    """Return the selector of a source. Raises AmqpError amqp:invalid-field."""
    found = _filter(source, SELECTORS)
    return None if found is None else _compiled(found.says)


def _browses(source: p.Source, queue: Queue) -> bool:
    """Return whether deliveries leave messages in the queue. Those of a stream always do, and count as no browsing."""
    mode = source.distribution_mode
    if mode not in (None, p.STD_DIST_MODE_MOVE, p.STD_DIST_MODE_COPY):
        raise AmqpError(p.NOT_IMPLEMENTED, f"distribution-mode '{mode}' is not supported")
    return mode == p.STD_DIST_MODE_COPY and queue.type is not QueueType.STREAM


def _whole(properties: dict[str, Value], name: str) -> int:
    value = properties[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(f"property '{name}' is no whole number")
    return value


def _timeout_s(properties: dict[str, Value]) -> float:
    if (timeout_ms := _whole(properties, TIMEOUT)) < 0:
        raise _invalid(f"property '{TIMEOUT}' is negative")
    return timeout_ms / 1000


def _truth(properties: dict[str, Value], name: str) -> bool:
    value = properties[name]
    if not isinstance(value, bool):
        raise _invalid(f"property '{name}' is no boolean")
    return value


@attrs.frozen
class Filter:
    """A filter of a source."""

    name: str
    value: Value  # the original value, described or not
    says: Value


def _filter(source: p.Source, kinds: tuple[str | int, ...]) -> Filter | None:
    """Return the first filter of these kinds. Some clients leave out its descriptor and rely on its name."""
    return next(_filters(source, kinds), None)


def _filters(source: p.Source, kinds: tuple[str | int, ...]) -> Iterator[Filter]:
    for name, value in (source.filter or {}).items():
        kind, says = (value.descriptor, value.value) if isinstance(value, Described) else (name, value)
        if isinstance(kind, str | int) and kind in kinds:
            yield Filter(name, value, says)


def _compiled(text: Value) -> Selector:
    if not isinstance(text, str):
        raise _invalid("a selector is a string")
    try:
        return compile_selector(text)
    except PreconditionFailed as failure:
        raise _invalid(f"selector: {failure}") from None


def _compiled_sql(text: Value) -> Selector:
    if not isinstance(text, str):
        raise _invalid("an SQL filter is a string")
    try:
        return compile_sql(text)
    except PreconditionFailed as failure:
        raise _invalid(f"SQL filter: {failure}") from None


def _on_properties(value: Value) -> Selector:
    try:
        return properties_filter(_fields(value, _in_properties))
    except PreconditionFailed as failure:
        raise _invalid(f"properties filter: {failure}") from None


def _on_application(value: Value) -> Selector:
    try:
        return application_filter(_fields(value, neutral))
    except PreconditionFailed as failure:
        raise _invalid(f"application properties filter: {failure}") from None


def _in_properties(value: Value) -> Neutral:
    """Return the value of a property as conditions see it: times are milliseconds."""
    return int(value) if isinstance(value, Timestamp) else neutral(value)


def _fields(given: Value, converted: Callable[[Value], Neutral]) -> dict[str, Neutral]:
    """Return the fields of a filter, as the core takes them."""
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise _invalid("a filter of properties is a map from names to values")
    try:
        return {str(name): converted(value) for name, value in given.items()}
    except ValueError as error:
        raise _invalid(f"a filter of properties has a value that cannot be compared: {error}") from None


CONDITIONS: Final[tuple[tuple[tuple[str | int, ...], Callable[[Value], Selector]], ...]] = (
    (SELECTORS, _compiled),
    (SQL_FILTERS, _compiled_sql),
    (PROPERTIES_FILTERS, _on_properties),
    (APPLICATION_FILTERS, _on_application),
)


def _start(value: Value) -> Neutral:
    """Return the start offset of a stream, as the core takes it."""
    if isinstance(value, Timestamp):
        return Seconds(value // 1000)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise _invalid("a stream offset is a number, a timestamp or a string")


def _filter_values(value: Value) -> Neutral:
    """Return the filter values that a receiver wants, as the core takes them and checks them."""
    listed = value.items if isinstance(value, Array) else value if isinstance(value, list) else (value,)
    return [str(each) if isinstance(each, str) else None for each in listed]


def _group(value: Value) -> Neutral:
    """Return the name of a group of receivers, as the core takes it and checks it."""
    if not isinstance(value, str):
        raise _invalid("a group of receivers has a name, which is a string")
    return str(value)


def _matches_unfiltered(value: Value) -> Neutral:
    if not isinstance(value, bool):
        raise _invalid("to match messages without a filter value is true or false")
    return value


STREAM_ARGUMENTS: Final[tuple[tuple[str, tuple[str, ...], Callable[[Value], Neutral]], ...]] = (
    (OFFSET, OFFSETS, _start),
    (FILTER, STREAM_FILTERS, _filter_values),
    (GROUP, GROUPS, _group),
    (UNFILTERED, UNFILTEREDS, _matches_unfiltered),
)


def outcomes_of(source: p.Source) -> Sequence[str]:
    """Return the outcomes that a link's receiver may choose from: all, if none is named. Raises AmqpError (X057)."""
    unknown = [str(name) for name in source.outcomes if name not in OUTCOMES]
    if source.default_outcome is not None and not isinstance(source.default_outcome, Outcome):
        unknown.append("a default outcome")
    if unknown:
        raise AmqpError(p.NOT_IMPLEMENTED, f"Outcomes not supported: [{', '.join(unknown)}]")
    if isinstance(source.default_outcome, Outcome):
        _check_default(source.default_outcome)
    return list(dict.fromkeys(source.outcomes)) or list(OUTCOMES)


def _check_default(outcome: Outcome) -> None:
    """Check the default outcome at the attach, because it is applied when the peer may be gone. Raises AmqpError."""
    try:
        outcome_in(outcome)
    except AmqpError as error:
        raise _invalid(error.description) from None
    if len(outcome.encode()) > DEFAULT_SIZE_MAX:
        raise _invalid(f"a default outcome has more than {DEFAULT_SIZE_MAX} octets")


def default_outcome_of(source: p.Source) -> Outcome:
    """Return the outcome of deliveries that the receiver settles without one."""
    word = source.default_outcome
    return word if isinstance(word, Outcome) else p.Released()


def actual(source: p.Source, terms: Terms, queue: Queue) -> p.Source:
    """Return the source for our attach, with everything that has effect."""
    copies = terms.browses or queue.type is QueueType.STREAM
    return p.Source(
        address=queue_address(queue.name) if source.dynamic else source.address,
        durable=source.durable,
        expiry_policy=source.expiry_policy,
        timeout=source.timeout,
        dynamic=source.dynamic,
        dynamic_node_properties=DYNAMIC_NODE if source.dynamic else None,
        distribution_mode=p.STD_DIST_MODE_COPY if copies else p.STD_DIST_MODE_MOVE,
        filter=terms.filters or None,
        default_outcome=default_outcome_of(source),
        outcomes=outcomes_of(source),
        capabilities=[name for name in source.capabilities if name in CAPABILITIES],
    )


def wants_no_local(source: p.Source) -> bool:
    """Return whether a source asks for what other connections publish only."""
    return _filter(source, NO_LOCAL) is not None


def of_subscription(terms: Terms, source: p.Source, is_own: bool) -> Terms:
    """Return the terms of a link to a subscription: filters are the subscription's, and it knows two of them."""
    known = _filter(source, SELECTORS), _filter(source, NO_LOCAL) if is_own else None
    filters = {each.name: each.value for each in known if each is not None}
    return attrs.evolve(terms, selector=None, browses=False, filters=filters)


def kept(source: p.Source) -> p.Source:
    """Return a copy of a source to keep for later links, without what has no effect."""
    selector = _filter(source, SELECTORS)
    return p.Source(
        address=source.address,
        durable=source.durable,
        expiry_policy=source.expiry_policy,
        timeout=source.timeout,
        distribution_mode=source.distribution_mode,
        filter=None if selector is None else {Symbol(SELECTORS[0]): selector.value},
        default_outcome=source.default_outcome,
        outcomes=outcomes_of(source),
        capabilities=source.capabilities,
    )


def _invalid(why: str) -> AmqpError:
    return AmqpError(p.INVALID_FIELD, f"Attach refused: {why}")
