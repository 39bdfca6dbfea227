"""The commands of the exchange and queue classes of 0-10, executed for a session.

Declaring an exchange or queue that exists leaves it as it is; only another type or alternate exchange is an error. An
exclusive queue belongs to the session, which owns it while it lasts: with auto-delete the queue is deleted with the
session, without it the queue stays and is then open to all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.errors import PreconditionFailed, no_exchange
from leveret.exchanges.exchange_type import Binding, LooksAt
from leveret.protocols.amqp010.broker.arguments import (
    ALTERNATE_EXCHANGE,
    core_arguments,
    shown,
    shown_of_exchange,
)
from leveret.protocols.amqp010.broker.core_values import table
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.values import frozen

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.protocols.amqp010.codec.sequences import Id
    from leveret.queues.queue import Queue
    from leveret.values import Table

RESERVED: Final = ("amq.", "qpid.")
HEADERS: Final = "headers"
STANDARD_TYPES: Final = frozenset({"direct", "topic", "fanout", HEADERS, "system"})  # of the draft (S243)
EXCHANGE_NAME_MAX: Final = 127  # characters (X091)
STRICT_EXCHANGE: Final = re.compile(r"[A-Za-z0-9_]+")
STRICT_QUEUE_FIRST: Final = re.compile(r"[A-Za-z0-9_]")
COUNT_MAX: Final = 0xFFFF_FFFF


# Exchanges.


def exchange_declare(session: ServedSession, id: Id, command: c.ExchangeDeclare) -> None:
    name = _required(command.exchange, "exchange", c.ERROR_CODE_INVALID_ARGUMENT, 1)
    alternate = command.alternate_exchange or None
    if command.passive:
        _require_same(session.client.find_exchange(name), command.type or "", alternate, passive=True)
        session.complete(id)
        return
    session.client.require_declarable("exchange", name)  # else the errors below would reveal what exists
    current = session.host.exchanges.get(name)
    if current is None:
        _make_exchange(session, name, command, alternate)
    else:
        _require_same(current, command.type or "", alternate, passive=False)
    session.complete(id)


def _make_exchange(
    session: ServedSession, name: str, command: c.ExchangeDeclare, alternate: str | None
) -> None:
    client = session.client
    _require_exchange_name(session, name)
    type_ = command.type or ""
    _require_type(session, type_)
    arguments = table(command.arguments or {})
    if alternate is not None:
        client.require_declarable("exchange", name, alternate)
        _require_exchange(session, alternate, 3)
        arguments[ALTERNATE_EXCHANGE] = alternate
    client.declare_exchange(name, type_, command.durable, command.auto_delete, False, arguments)


def _require_exchange_name(session: ServedSession, name: str) -> None:
    """Check the length of a name (X091), and its characters as the draft has them where strict_names is set."""
    if name.startswith(RESERVED):
        raise _not_allowed(f"exchange names beginning with {' or '.join(RESERVED)} are reserved: '{name}'", 1)
    if len(name) > EXCHANGE_NAME_MAX:
        raise _invalid(f"an exchange name has at most {EXCHANGE_NAME_MAX} characters", 1)
    if _is_strict(session) and STRICT_EXCHANGE.fullmatch(name) is None:
        raise _invalid(f"an exchange name has letters, digits and underscores only: '{name}'", 1)


def _require_type(session: ServedSession, type_: str) -> None:
    """Check the type (S243): names of non-standard types begin with x-."""
    if type_ not in session.broker.exchange_types:
        raise SessionError(c.ERROR_CODE_NOT_FOUND, f"unknown exchange type '{type_}'", 2)
    if type_ not in STANDARD_TYPES and not type_.startswith("x-"):
        raise _not_allowed(f"an exchange type that is not standard begins with x-: '{type_}'", 2)


def _require_same(current: Exchange, type_: str, alternate: str | None, passive: bool) -> None:
    if type_ != current.type.name and (type_ or not passive):
        is_, wanted = current.type.name, type_
        raise _not_allowed(f"exchange '{current.name}' is of type {is_}, not {wanted or 'none'}", 2)
    if alternate is not None and alternate != current.arguments.get(ALTERNATE_EXCHANGE):
        raise _not_allowed(f"exchange '{current.name}' has another alternate exchange than '{alternate}'", 3)


def exchange_delete(session: ServedSession, id: Id, command: c.ExchangeDelete) -> None:
    name = _required(command.exchange, "exchange", c.ERROR_CODE_INVALID_ARGUMENT, 1)
    if name.startswith(RESERVED):
        raise _not_allowed(f"exchange '{name}' cannot be deleted", 1)
    session.client.require_declarable("exchange", name)
    _require_exchange(session, name, 1)
    if _is_alternate(session, name):
        raise _not_allowed(f"exchange '{name}' is in use as an alternate exchange", 1)
    session.client.delete_exchange(name, command.if_unused)
    session.complete(id)


def _is_alternate(session: ServedSession, name: str) -> bool:
    host = session.host
    session.has_looked_at(len(host.exchanges) + len(host.queues))
    return any(each.alternate == name for each in host.exchanges.values()) or any(
        each.limits.alternate_exchange == name for each in host.queues.values()
    )


def exchange_query(session: ServedSession, id: Id, command: c.ExchangeQuery) -> None:
    """Describe an exchange. A missing exchange is an answer, not an error."""
    exchange = session.client.known_exchange(command.name or "")
    if exchange is None:
        session.result(id, c.ExchangeQueryResult(not_found=True))
    else:
        arguments = shown_of_exchange(exchange.arguments)
        session.result(id, c.ExchangeQueryResult(exchange.type.name, exchange.durable, arguments=arguments))
    session.complete(id)


# Bindings.


def exchange_bind(session: ServedSession, id: Id, command: c.ExchangeBind) -> None:
    queue = _required(command.queue, "queue", c.ERROR_CODE_INVALID_ARGUMENT, 1)
    exchange = _required(command.exchange, "exchange", c.ERROR_CODE_INVALID_ARGUMENT, 2)
    key, arguments = command.binding_key or "", table(command.arguments or {})
    source = session.host.exchanges.get(exchange)
    if source is not None and source.type.name == HEADERS and "x-match" not in arguments:
        # Raises what keeps the client from binding at all.
        session.client.bindings(exchange, queue, False, key)
        # The code is that of both brokers of Apache Qpid, which their clients' tests ask for.
        why = f"a binding to '{exchange}', an exchange of type headers, needs the argument x-match"
        raise SessionError(c.ERROR_CODE_INTERNAL_ERROR, why, 4)
    try:
        session.client.bind(exchange, queue, False, key, arguments)
    except PreconditionFailed as fault:  # the exchange type rejects the arguments
        raise _invalid(str(fault), 4) from None
    session.complete(id)


def exchange_unbind(session: ServedSession, id: Id, command: c.ExchangeUnbind) -> None:
    """Remove all bindings with that key, whatever their arguments; there may be none."""
    queue = _required(command.queue, "queue", c.ERROR_CODE_INVALID_ARGUMENT, 1)
    exchange = _required(command.exchange, "exchange", c.ERROR_CODE_INVALID_ARGUMENT, 2)
    client, key = session.client, command.binding_key or ""
    if (target := session.host.queues.get(queue)) is not None:
        session.has_looked_at(len(session.host.bindings_to(target)))
    for binding in client.bindings(exchange, queue, False, key):
        client.unbind(exchange, queue, False, key, binding.arguments)
    session.complete(id)


def exchange_bound(session: ServedSession, id: Id, command: c.ExchangeBound) -> None:
    """Answer five bits, each set if the thing asked for is missing. Empty or absent fields are not asked for."""
    exchange = session.client.known_exchange(command.exchange or "")
    queue = session.client.known_queue(command.queue) if command.queue else None
    if not command.exchange and command.binding_key:  # the default exchange's keys are names of queues
        session.client.known_queue(command.binding_key)
    no_queue = bool(command.queue) and queue is None
    if exchange is None or no_queue:
        result = c.ExchangeBoundResult(exchange is None, no_queue)
    else:
        arguments = table(command.arguments or {})
        session.has_looked_at(len(_bindings(exchange, queue)))
        result = _match(exchange, queue, command.binding_key or "", arguments)
    session.result(id, result)
    session.complete(id)


def _match(exchange: Exchange, queue: Queue | None, key: str, arguments: Table) -> c.ExchangeBoundResult:
    """Find what does not match. Unless a binding has everything, each part is looked up alone, the key also with the
    queue."""
    if _is_bound(exchange, queue, key, arguments):
        return c.ExchangeBoundResult()
    no_queue = queue is not None and not _is_bound(exchange, queue, "", {})
    no_key = bool(key) and not _is_bound(exchange, None if no_queue else queue, key, {})
    no_arguments = bool(arguments) and (
        not _is_bound(exchange, None if no_queue else queue, "", arguments) or not (no_queue or no_key)
    )
    return c.ExchangeBoundResult(
        queue_not_matched=no_queue, key_not_matched=no_key, args_not_matched=no_arguments
    )


def _is_bound(exchange: Exchange, queue: Queue | None, key: str, arguments: Table) -> bool:
    """Return whether there is such a binding. The key or arguments are ignored for types that do not look at them."""
    if exchange.name == "":
        name = queue.name if queue is not None else key
        return (not key or key == name) and (not name or name in exchange.virtual_host.queues)
    looks_at = exchange.type.looks_at
    if looks_at is LooksAt.NOTHING:
        key, arguments = "", {}
    elif looks_at is LooksAt.KEY:
        arguments = {}
    wanted = frozen(arguments)
    hash(wanted)  # computed once: else each comparison would compare all arguments
    return any(
        (not key or binding.key == key) and (not arguments or binding.frozen_arguments == wanted)
        for binding in _bindings(exchange, queue)
        if binding.source is exchange
    )


def _bindings(exchange: Exchange, queue: Queue | None) -> Collection[Binding]:
    """Return the bindings of this exchange, or those of all exchanges to this queue."""
    return exchange.bindings if queue is None else exchange.virtual_host.bindings_to(queue)


# Queues.


def queue_declare(session: ServedSession, id: Id, command: c.QueueDeclare) -> None:
    name = _required(command.queue, "queue", c.ERROR_CODE_ILLEGAL_ARGUMENT, 1)
    if command.passive:
        _find_queue(session, name, command.exclusive)
        session.complete(id)
        return
    alternate = command.alternate_exchange or None
    current = session.host.queues.get(name)
    if current is None:
        _make_queue(session, name, command, alternate)
    else:
        _redeclare(session, current, command, alternate)
    session.complete(id)


def _find_queue(session: ServedSession, name: str, exclusive: bool) -> None:
    """Find a queue, even another session's: clients look for the queue that they are to reply to."""
    queue = session.client.known_queue(name) or session.client.find_queue(name)
    if exclusive and queue.owner is not session.client:
        raise SessionError(c.ERROR_CODE_RESOURCE_LOCKED, f"{queue.described} is not this session's", 5)
    queue.used_at = session.broker.now


def _make_queue(session: ServedSession, name: str, command: c.QueueDeclare, alternate: str | None) -> None:
    """Declare a queue. An exclusive one is the core's exclusive queue if it is auto-delete, else the session just owns
    it."""
    if name.startswith("amq."):
        raise _not_allowed(f"queue names beginning with amq. are reserved: '{name}'", 1)
    if _is_strict(session) and STRICT_QUEUE_FIRST.match(name) is None:  # X091
        raise _invalid(f"a queue name begins with a letter, a digit or an underscore: '{name}'", 1)
    client, arguments = session.client, core_arguments(command.arguments, alternate, 7)
    if alternate is not None:
        client.require_declarable("queue", name, alternate)
        _require_exchange(session, alternate, 2)
    goes_with_session = command.exclusive and command.auto_delete
    auto_delete = command.auto_delete and not command.exclusive
    queue = client.declare_queue(name, command.durable, goes_with_session, auto_delete, arguments)
    if command.exclusive and not goes_with_session:
        client.own(queue)


def _redeclare(
    session: ServedSession, current: Queue, command: c.QueueDeclare, alternate: str | None
) -> None:
    kept = current.durable, current.exclusive, current.auto_delete, current.arguments
    session.client.declare_queue(current.name, *kept)  # checks permissions; nothing changes
    if alternate is not None and alternate != current.limits.alternate_exchange:
        raise _not_allowed(f"{current.described} has another alternate exchange than '{alternate}'", 2)
    if command.exclusive:
        session.client.own(current)


def queue_delete(session: ServedSession, id: Id, command: c.QueueDelete) -> None:
    name = _required(command.queue, "queue", c.ERROR_CODE_INVALID_ARGUMENT, 1)
    session.client.require_declarable("queue", name)
    session.client.own_queue(name)  # it exists, and is not another session's
    session.client.delete_queue(name, command.if_unused, command.if_empty)
    session.complete(id)


def queue_purge(session: ServedSession, id: Id, command: c.QueuePurge) -> None:
    session.client.purge(_required(command.queue, "queue", c.ERROR_CODE_ILLEGAL_ARGUMENT, 1))
    session.complete(id)


def queue_query(session: ServedSession, id: Id, command: c.QueueQuery) -> None:
    """Describe a queue. A missing queue is an answer, not an error: every field is absent."""
    queue = session.client.known_queue(command.queue) if command.queue else None
    session.result(id, c.QueueQueryResult() if queue is None else _described(queue))
    session.complete(id)


def _described(queue: Queue) -> c.QueueQueryResult:
    return c.QueueQueryResult(
        queue.name,
        queue.limits.alternate_exchange or "",
        queue.durable,
        queue.owner is not None,
        queue.auto_delete or queue.exclusive,
        shown(queue.arguments),
        min(queue.ready, COUNT_MAX),
        min(len(queue.consumers), COUNT_MAX),
    )


# Checks and errors.


def _required(name: str | None, what: str, code: int, field_index: int) -> str:
    if not name:
        raise SessionError(code, f"{what} name required", field_index)
    return name


def _require_exchange(session: ServedSession, name: str, field_index: int) -> None:
    if name not in session.host.exchanges:
        missing = no_exchange(name, session.host.name)
        raise SessionError(c.ERROR_CODE_NOT_FOUND, str(missing), field_index)


def _is_strict(session: ServedSession) -> bool:
    return session.config.protocols.amqp010.strict_names


def _not_allowed(text: str, field_index: int) -> SessionError:
    return SessionError(c.ERROR_CODE_NOT_ALLOWED, text, field_index)


def _invalid(text: str, field_index: int) -> SessionError:
    return SessionError(c.ERROR_CODE_INVALID_ARGUMENT, text, field_index)


Handler: TypeAlias = Callable[..., None]

HANDLERS: Final[dict[type[c.Command], Handler]] = {
    c.ExchangeDeclare: exchange_declare,
    c.ExchangeDelete: exchange_delete,
    c.ExchangeQuery: exchange_query,
    c.ExchangeBind: exchange_bind,
    c.ExchangeUnbind: exchange_unbind,
    c.ExchangeBound: exchange_bound,
    c.QueueDeclare: queue_declare,
    c.QueueDelete: queue_delete,
    c.QueuePurge: queue_purge,
    c.QueueQuery: queue_query,
}
