"""The commands for subscriptions: message.subscribe, cancel, set-flow-mode, flow, flush and stop.

| argument of subscribe | |
|---|---|
| `x-apache-selector` | only messages that match this condition |
| `x-priority` | its rank among the queue's subscriptions |
| `x-stream-offset` | where in a stream it begins |
| `x-stream-group` | the group of subscriptions to a stream, of which one at a time is active |
| `x-consumer-timeout` | the milliseconds in which a transfer has to be accepted; 0 is no limit |

Other arguments are ignored, as qpidd does, and the log tells (`argument_rows.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from leveret.arguments.warnings import consumer_warnings
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.protocols.amqp010.broker.argument_rows import CONSUMER_ROWS
from leveret.protocols.amqp010.broker.core_values import table
from leveret.protocols.amqp010.broker.subscription import Grant, Subscription
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.queues.reader_groups import GROUP
from leveret.queues.stream import OFFSET
from leveret.selectors.parser import Selector, compile_selector
from leveret.values import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.protocols.amqp010.codec.sequences import Id, SequenceSet
    from leveret.protocols.amqp010.codec.types import Value

SELECTOR: Final = "x-apache-selector"
PRIORITY: Final = "x-priority"
TIMEOUT: Final = "x-consumer-timeout"
SELECTOR_WORK: Final = 4  # copies of messages that take as long as compiling a character


def message_subscribe(session: ServedSession, id: Id, command: c.MessageSubscribe) -> None:
    destination = command.destination or ""
    if destination in session.subscriptions:
        raise SessionError(
            c.ERROR_CODE_NOT_ALLOWED, f"destination '{destination}' is subscribed to something already"
        )
    if not command.queue:
        raise SessionError(c.ERROR_CODE_ILLEGAL_ARGUMENT, "a subscription needs the name of a queue")
    session.broker.node_limits.require_consumer(len(session.subscriptions))
    queue = session.client.readable_queue(command.queue)
    given = command.arguments or {}
    subscription = Subscription(
        session, queue, command, _priority(given), _selector(given), _starting_point(given)
    )
    subscription.timeout_s = _timeout_s(given)
    if subscription.timeout_s is None and not queue.limits.consumer_timeout_asked:
        # Clients of 0-10 know no timeout, so the node's default is none of theirs.
        subscription.timeout_s = 0.0
    if subscription.selector is not None:
        session.broker.work += SELECTOR_WORK * len(subscription.selector.text)
    try:
        session.client.consume(subscription)
    except AccessRefused as failure:  # S099: no permission is missing, the queue has another consumer
        raise SessionError(c.ERROR_CODE_RESOURCE_LOCKED, str(failure)) from None
    if given:
        subscription.warnings = tuple(consumer_warnings(table(given), CONSUMER_ROWS))
        host = session.client.host.name
        session.broker.notices.notice(host, "subscription to queue", queue.name, subscription.warnings)
    session.subscriptions[destination] = subscription
    session.complete(id)


def _priority(arguments: Mapping[str, Value]) -> int:
    value = arguments.get(PRIORITY, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, f"{PRIORITY} is no whole number")
    return value


def _timeout_s(arguments: Mapping[str, Value]) -> float | None:
    """Return the subscription's own limit for answers in seconds; None is its queue's, 0 none."""
    value = arguments.get(TIMEOUT)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, f"{TIMEOUT} is no whole number from 0 on")
    return value / 1000


def _selector(arguments: Mapping[str, Value]) -> Selector | None:
    value = arguments.get(SELECTOR)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, f"{SELECTOR} is no text")
    try:
        return compile_selector(value)
    except PreconditionFailed as failure:
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, f"{SELECTOR}: {failure}") from None


def _starting_point(arguments: Mapping[str, Value]) -> Table:
    return table({name: arguments[name] for name in (OFFSET, GROUP) if name in arguments})


def message_cancel(session: ServedSession, id: Id, command: c.MessageCancel) -> None:
    """End a subscription. Transfers that were sent stay with the session."""
    subscription = _found(session, command.destination)
    del session.subscriptions[subscription.destination]
    subscription.finish_flush()
    subscription.end()
    session.complete(id)


def message_set_flow_mode(session: ServedSession, id: Id, command: c.MessageSetFlowMode) -> None:
    subscription = _found(session, command.destination)
    mode = command.flow_mode or c.FLOW_MODE_CREDIT
    if mode not in (c.FLOW_MODE_CREDIT, c.FLOW_MODE_WINDOW):
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, f"there is no flow mode {mode}", 2)
    subscription.finish_flush()
    subscription.set_mode(mode)
    session.complete(id)


def message_flow(session: ServedSession, id: Id, command: c.MessageFlow) -> None:
    subscription = _found(session, command.destination)
    unit = command.unit or c.CREDIT_UNIT_MESSAGE
    if unit not in (c.CREDIT_UNIT_MESSAGE, c.CREDIT_UNIT_BYTE):
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, f"there is no credit unit {unit}", 2)
    subscription.finish_flush()
    subscription.add_credit(unit, command.value or 0)
    session.complete(id)


def message_flush(session: ServedSession, id: Id, command: c.MessageFlush) -> None:
    _found(session, command.destination).flush(id)


def message_stop(session: ServedSession, id: Id, command: c.MessageStop) -> None:
    """Drop the credit: no transfer follows the completion of this command."""
    subscription = _found(session, command.destination)
    subscription.finish_flush()
    subscription.reset_credit()
    session.complete(id)


def _found(session: ServedSession, destination: str | None) -> Subscription:
    found = session.subscriptions.get(destination or "")
    if found is None:
        raise SessionError(c.ERROR_CODE_NOT_FOUND, f"no subscription to destination '{destination or ''}'", 1)
    return found


def completed(session: ServedSession, ids: SequenceSet) -> None:
    """Give credit back for the transfers of windows that the peer has completed."""
    taken = session.windowed.take(ids, session.last_sent)
    counts = Counter(taken.values())
    octets: Counter[Grant] = Counter()
    if any(grant.octets for grant in counts):
        for id, grant in taken.items():
            octets[grant] += grant.octets.pop(id, 0)
    for grant, messages in counts.items():
        if grant.subscription is not None:
            grant.subscription.credit_back(messages, octets[grant])


HANDLERS: Final[dict[type[c.Command], Callable[..., None]]] = {
    c.MessageSubscribe: message_subscribe,
    c.MessageCancel: message_cancel,
    c.MessageSetFlowMode: message_set_flow_mode,
    c.MessageFlow: message_flow,
    c.MessageFlush: message_flush,
    c.MessageStop: message_stop,
}
