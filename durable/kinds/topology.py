"""The kinds of what messages go through: exchanges, queues and bindings.

Of queues, exclusive ones are not kept, as they are deleted with their connections. Bindings are kept if both of their
ends are (S059). Predeclared exchanges and default bindings exist without records.

An exchange whose type is missing, or refuses it now, routes nothing until the type accepts it again
(exchanges/missing.py). Its record does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.arguments.queue_declaration import limits_of, parse_queue_arguments, queue_type
from leveret.catalogue import BINDING, ENDING_QUEUE, EXCHANGE, QUEUE, Named
from leveret.durable.kinds.kind import Kind, is_numbered
from leveret.durable.store.records import Names, ObjectRecord, key_of
from leveret.durable.store.typed_json import Unreadable, written_table, written_text
from leveret.errors import MISTAKES, Failure
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, selector_as_far_as_known
from leveret.exchanges.missing import Missing, missing
from leveret.limits import QueueLimits
from leveret.observability import event_exchange
from leveret.queues.contract import QueueTerms
from leveret.queues.factory import new_queue
from leveret.queues.held_dead_letters import HeldDeadLetters
from leveret.queues.queue import PAUSED, Queue
from leveret.queues.work_queue import WorkQueue
from leveret.selectors.parser import compile_selector
from leveret.values import Json, Table
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.restoration import Restoration
    from leveret.durable.stored_catalogue import StoredCatalogue

log: Final = logging.getLogger("leveret.store")


def outlives_node(destination: Destination) -> bool:
    """Return whether an exchange or a queue is there again after a restart."""
    return destination.durable and not (isinstance(destination, Queue) and destination.exclusive)


# Exchanges.


def prepare_exchange(exchange: Exchange, stored: StoredCatalogue) -> None:
    """Give the messages that an exchange holds a number."""
    if exchange.durable and exchange.holding is not None and not exchange.holding.number:
        exchange.holding.number = stored.number()


def exchange_record(exchange: Exchange) -> Json:
    return {
        "type": written_text(exchange.type.name),
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "number": exchange.holding.number if exchange.holding is not None else 0,
        "arguments": written_table(exchange.arguments),
    }


def restore_exchange(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    number = record.number("number", least=0)
    host = restoration.host(names[0])
    exchange = typed(host, names[1], record)
    if isinstance(exchange.type, Missing):
        log.error(
            "exchange '%s' in vhost '%s' routes nothing, its alternate gets the messages: type '%s' cannot be used: %s",
            exchange.name,
            host.name,
            exchange.type.name,
            exchange.type.why,
        )
    if number:
        exchange.begin_to_hold().number = number
        restoration.has_number(number)
    host.add_exchange(exchange)


def typed(host: VirtualHost, name: str, record: ObjectRecord) -> Exchange:
    """Return an exchange with its type, or with `missing` if the type cannot be used."""
    type_, arguments = record.text("type"), record.table("arguments")
    auto_delete, internal = record.flag("auto_delete"), record.flag("internal")

    def of(type_class: type[ExchangeType]) -> Exchange:
        return Exchange(host, name, type_class, True, auto_delete, internal, arguments)

    type_class = host.broker.exchange_types.get(type_)
    if type_class is None:
        return of(missing(type_, "no plug-in offers it"))
    try:
        return of(type_class)
    except MISTAKES as error:  # raised by a plug-in
        return of(missing(type_, f"{type(error).__name__}: {error}"))


# Queues.


def prepare_queue(queue: Queue, stored: StoredCatalogue) -> None:
    """Give a queue and its dead letters numbers and the journal."""
    if outlives_node(queue):
        stored.give_number(queue)
        if queue.dead_letters is not None:
            stored.give_number(queue.dead_letters)


def queue_record(queue: Queue) -> Json:
    record: dict[str, Json] = {
        "number": queue.number,
        "auto_delete": queue.auto_delete,
        "selector": None if queue.selector is None else written_text(queue.selector.text),
        "arguments": written_table(queue.arguments),
        "notes": written_table(queue.notes),
    }
    if queue.dead_letters is not None and queue.dead_letters.number:
        record["dead_letters"] = queue.dead_letters.number
    return record


def restore_ending_queue(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    queue = restored_queue(restoration, names, record)
    restoration.host(names[0]).ending.restore(queue)


def restore_queue(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, number = restoration.host(names[0]), record.number("number", least=1)
    if any(each.number == number for each in host.ending):  # the node ended before this record was removed
        restoration.journal.remove(key_of(QUEUE, *names))
    else:
        host.add_queue(restored_queue(restoration, names, record))


def restored_queue(restoration: Restoration, names: Names, record: ObjectRecord) -> Queue:
    """Return the queue of a record. Raises ValueError, Failure."""
    host, name = restoration.host(names[0]), names[1]
    arguments, auto_delete = record.table("arguments"), record.flag("auto_delete")
    text = record.optional_text("selector")
    selector = None if text is None else compile_selector(text)
    limits = restored_limits(host, name, auto_delete, arguments)
    terms = QueueTerms(durable=True, auto_delete=auto_delete, arguments=arguments, selector=selector)
    queue = new_queue(host, name, limits, terms)
    restoration.number(queue, record)
    queue.notes = record.table("notes")
    queue.pause(PAUSED in queue.notes)
    if record.has("dead_letters") and isinstance(queue, WorkQueue):
        queue.dead_letters = HeldDeadLetters(queue)
        restoration.number(queue.dead_letters, record, "dead_letters")
    return queue


def restored_limits(host: VirtualHost, name: str, auto_delete: bool, arguments: Table) -> QueueLimits:
    """Return the limits of arguments; if these would be refused today, as far as they are known. Raises ValueError."""
    try:
        limits = parse_queue_arguments(name, host.name, True, False, auto_delete, arguments)
        host.broker.compat.check_queue_arguments(name, host.name, arguments)
        return limits
    except Failure as failure:
        log.warning("restored, though it could not be declared today: %s", failure)
    queue_type(arguments)
    return limits_of(arguments)


def begin_queues(broker: Broker) -> None:
    """Start the terms of unused queues, and go on ending those that were deleted."""
    for host in broker.hosts():
        for queue in host.queues.values():
            queue.used_at = broker.now
            if queue.limits.auto_delete_delay_ms:
                queue.left_alone()
        host.ending.go_on()


# Bindings.


def prepare_binding(binding: Binding, stored: StoredCatalogue) -> None:
    if binding.source.durable and outlives_node(binding.end):
        stored.last_binding += 1
        binding.number = stored.last_binding


def binding_record(binding: Binding) -> Json:
    return {
        "source": written_text(binding.source.name),
        "to": binding.end.kind,
        "destination": written_text(binding.end.name),
        "key": written_text(binding.key),
        "arguments": written_table(binding.arguments),
    }


def found_binding(restoration: Restoration, names: Names) -> int:
    """Return the number of a binding, by which bindings are ordered."""
    if not names[1].isdecimal():
        raise Unreadable("it has no number")
    return int(names[1])


def restore_binding(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host = restoration.host(names[0])
    source = host.exchanges.get(record.text("source"))
    if source is None and record.text("source") == event_exchange.EVENTS:
        source = event_exchange.add_to(host)  # the binding is kept, though events may be off at present
    ends: Mapping[str, Destination] = host.queues if record.text("to") == "queue" else host.exchanges
    destination = ends.get(record.text("destination"))
    if source is None or destination is None:
        raise Unreadable("one of its ends is not there")
    binding = Binding(source, destination, record.text("key"), record.table("arguments"))
    binding.number = restoration.catalogue.last_binding = int(names[1])
    if binding.identity not in source.bindings_by_identity:
        put_binding(host, binding)
    else:  # it was made again while this record could not be read
        restoration.journal.remove(key_of(BINDING, *names))


def put_binding(host: VirtualHost, binding: Binding) -> None:
    type_ = binding.source.type
    try:
        host.broker.compat.check_binding_key(type_.name, binding.key)
    except Failure as failure:
        text = "restored, though it could not be made today: %r in vhost '%s': %s"
        log.warning(text, binding, host.name, failure)
    binding.select(selector_as_far_as_known(type_, binding))
    try:
        host.add_binding(binding)
    except MISTAKES as error:  # raised by a plug-in
        raise Unreadable(f"exchange type '{type_.name}' does not take it: {error!r}") from None


EXCHANGES: Final = Kind(
    EXCHANGE, 2, exchange_record, restore_exchange, prepare=prepare_exchange, is_kept=outlives_node
)
ENDING_QUEUES: Final = Kind[Named[Queue]](
    ENDING_QUEUE,
    3,
    lambda ending: queue_record(ending.value),
    restore_ending_queue,
    is_kept=lambda ending: outlives_node(ending.value),
)
QUEUES: Final = Kind(
    QUEUE, 2, queue_record, restore_queue, prepare=prepare_queue, is_kept=is_numbered, begin=begin_queues
)
BINDINGS: Final = Kind(
    BINDING,
    2,
    binding_record,
    restore_binding,
    prepare=prepare_binding,
    is_kept=lambda binding: binding.number != 0,
    found=found_binding,
)
