"""A user who may not do everything, commands for him to try, and what came of it."""

from __future__ import annotations

from typing import Final

import attrs

from leveret.features.xa.branches import Branches
from leveret.protocols.amqp010.codec import commands as c
from tests.amqp091.peer import TWO_HOSTS
from tests.harness.bench import ClientBench

from .client import ClientSession, SessionEnded
from .peer import Peer

REFUSED, NOT_FOUND, LOCKED, NOT_ALLOWED = (
    c.ERROR_CODE_UNAUTHORIZED_ACCESS,
    c.ERROR_CODE_NOT_FOUND,
    c.ERROR_CODE_RESOURCE_LOCKED,
    c.ERROR_CODE_NOT_ALLOWED,
)

XID: Final = c.Xid(1, b"global", b"branch")
DEAD: Final = "x-dead-letter-exchange"

Need = tuple[str, str, str]  # permission, kind, name
Group = tuple[Need, ...]  # one of them will do


@attrs.frozen
class Row:
    command: c.Command
    needs: tuple[Group, ...] = ()
    otherwise: int | None = None  # the code it fails with although it is allowed
    key: str | None = None  # it is a transfer


def declare_queue(name: str, arguments: dict | None = None, **options: object) -> c.QueueDeclare:
    return c.QueueDeclare(queue=name, arguments=arguments, **options)


def declare_exchange(name: str, type_: str = "direct", **options: object) -> c.ExchangeDeclare:
    return c.ExchangeDeclare(exchange=name, type=type_, **options)


def transfer(destination: str) -> c.MessageTransfer:
    return c.MessageTransfer(destination, c.ACCEPT_MODE_NONE, c.ACQUIRE_MODE_PRE_ACQUIRED)


def subscribe(name: str, acquire_mode: int = c.ACQUIRE_MODE_PRE_ACQUIRED) -> c.MessageSubscribe:
    return c.MessageSubscribe(name, "d", c.ACCEPT_MODE_EXPLICIT, acquire_mode)


def bench() -> ClientBench:
    """Two virtual hosts; in one of them there is something."""
    bench = ClientBench(TWO_HOSTS)
    session = Peer(bench).open().attach("owner")
    for name in ("x", "other"):
        session.exchange(name, "direct")
    session.exchange("guarded", "direct", alternate_exchange="other")
    session.declare("q")
    session.declare("mortal", {DEAD: "other"}, alternate_exchange="other")
    session.bind("mortal", "x", "k")
    session.bind("mortal", "other", "k")
    session.publish("q", b"waits")
    session.sync()
    return bench


def user(bench: ClientBench, configure: str = ".*", write: str = ".*", read: str = ".*") -> ClientSession:
    """A session of a user of the first virtual host who may do everything in the other one."""
    access = bench.broker.access
    access.add_user("u", "u")
    access.set_permissions("u", "/", configure, write, read)
    access.set_permissions("u", "blue", ".*", ".*", ".*")
    return Peer(bench).open("u", "u").attach("u")


def state(bench: ClientBench) -> object:
    """All there is that a command may change."""
    queues = bench.host.queues.values()
    return (
        sorted(bench.host.exchanges),
        sorted(
            (each.name, each.ready, each.unsettled, len(each.consumers), each.owner is None)
            for each in queues
        ),
        sorted(
            (binding.source.name, each.name, binding.key)
            for each in queues
            for binding in bench.host.bindings_to(each)
        ),
        len(bench.host.guest(Branches)),
    )


def perform(session: ClientSession, row: Row) -> tuple[int | None, str]:
    """Code and words of the exception, or None and nothing."""
    try:
        if row.key is None:
            session.call(row.command)
        else:
            session.send(row.command, True, [c.DeliveryProperties(routing_key=row.key)], b"m")
            session.sync()
    except SessionEnded as ended:
        return ended.code, "" if ended.exception is None else ended.exception.description or ""
    return None, ""
