"""Every command of 0-10 that touches a resource, under every permission there is: what is not listed is refused.

A row of COMMANDS names a command and what it needs: groups of permissions on exchanges and queues in the order in which
they are asked for, of each of which one will do; so the first group of which all are missing is the one the client is
told of. Each row is tried three ways:

    with every set of permissions on everything      the sets that suffice, and no others
    with everything but one group on its own name    each need is a need
    with exactly what is listed, and nothing else    there are no other needs

What is refused has not happened, and says nothing of what is there: the same words, whether or not it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, product
from typing import Final

import pytest

from leveret.protocols.amqp010.broker.distributed import HANDLERS as DTX
from leveret.protocols.amqp010.broker.session import COMMANDS as KNOWN
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.types import Str16Latin
from tests.harness.bench import ClientBench

from .client import ClientSession, ids
from .permitted import (
    DEAD,
    NOT_ALLOWED,
    NOT_FOUND,
    REFUSED,
    XID,
    Group,
    Row,
    bench,
    declare_exchange,
    declare_queue,
    perform,
    state,
    subscribe,
    transfer,
    user,
)

CONFIGURE, WRITE, READ = PERMISSIONS = ("configure", "write", "read")
EVERY_SET: Final = tuple(chain.from_iterable(combinations(PERMISSIONS, count) for count in range(4)))


def exchange(permission: str, name: str) -> Group:
    return ((permission, "exchange", name),)


def queue(permission: str, name: str) -> Group:
    return ((permission, "queue", name),)


def any_of(kind: str, name: str) -> Group:
    return tuple((permission, kind, name) for permission in PERMISSIONS)


DEFAULT: Final = "amq.default"
NEW_QUEUE: Final = (queue(CONFIGURE, "new"), queue(READ, "new"))
NEW_EXCHANGE: Final = (exchange(CONFIGURE, "new"), exchange(READ, "new"))

COMMANDS: Final[dict[str, Row]] = {
    "exchange.declare": Row(declare_exchange("new"), (exchange(CONFIGURE, "new"),)),
    "exchange.declare again": Row(declare_exchange("x"), (exchange(CONFIGURE, "x"),)),
    "exchange.declare of a standard one": Row(
        declare_exchange("amq.direct"), (exchange(CONFIGURE, "amq.direct"),)
    ),
    "exchange.declare of another type": Row(
        declare_exchange("x", "fanout"), (exchange(CONFIGURE, "x"),), NOT_ALLOWED
    ),
    "exchange.declare with an alternate": Row(
        declare_exchange("new", alternate_exchange="other"), (*NEW_EXCHANGE, exchange(WRITE, "other"))
    ),
    "exchange.declare with an alternate, missing": Row(
        declare_exchange("new", alternate_exchange="missing"),
        (*NEW_EXCHANGE, exchange(WRITE, "missing")),
        NOT_FOUND,
    ),
    "exchange.declare with an alternate, again": Row(
        declare_exchange("guarded", alternate_exchange="other"), (exchange(CONFIGURE, "guarded"),)
    ),
    "exchange.declare with another alternate": Row(
        declare_exchange("guarded", alternate_exchange="x"), (exchange(CONFIGURE, "guarded"),), NOT_ALLOWED
    ),
    "exchange.declare with an alternate among the arguments": Row(
        declare_exchange("new", arguments={"alternate-exchange": "other"}),
        (*NEW_EXCHANGE, exchange(WRITE, "other")),
    ),
    "exchange.declare passive": Row(declare_exchange("x", passive=True), (any_of("exchange", "x"),)),
    "exchange.declare passive, of another type": Row(
        declare_exchange("x", "fanout", passive=True), (any_of("exchange", "x"),), NOT_ALLOWED
    ),
    "exchange.declare passive, missing": Row(
        declare_exchange("missing", passive=True), (any_of("exchange", "missing"),), NOT_FOUND
    ),
    "exchange.delete": Row(c.ExchangeDelete("x"), (exchange(CONFIGURE, "x"),)),
    "exchange.delete, missing": Row(
        c.ExchangeDelete("missing"), (exchange(CONFIGURE, "missing"),), NOT_FOUND
    ),
    "exchange.delete of an alternate": Row(
        c.ExchangeDelete("other"), (exchange(CONFIGURE, "other"),), NOT_ALLOWED
    ),
    "exchange.query": Row(c.ExchangeQuery("x"), (any_of("exchange", "x"),)),
    "exchange.query, missing": Row(c.ExchangeQuery("missing"), (any_of("exchange", "missing"),)),
    "exchange.query of the default one": Row(c.ExchangeQuery(""), (any_of("exchange", DEFAULT),)),
    "exchange.bind": Row(c.ExchangeBind("q", "x", "k"), (queue(WRITE, "q"), exchange(READ, "x"))),
    "exchange.bind, no queue": Row(
        c.ExchangeBind("missing", "x", "k"), (queue(WRITE, "missing"), exchange(READ, "x")), NOT_FOUND
    ),
    "exchange.bind, no exchange": Row(
        c.ExchangeBind("q", "missing", "k"), (queue(WRITE, "q"), exchange(READ, "missing")), NOT_FOUND
    ),
    "exchange.unbind": Row(
        c.ExchangeUnbind("mortal", "x", "k"), (queue(WRITE, "mortal"), exchange(READ, "x"))
    ),
    "exchange.unbind, nothing": Row(
        c.ExchangeUnbind("q", "x", "k"), (queue(WRITE, "q"), exchange(READ, "x"))
    ),
    "exchange.unbind, no queue": Row(
        c.ExchangeUnbind("missing", "x", "k"), (queue(WRITE, "missing"), exchange(READ, "x")), NOT_FOUND
    ),
    "exchange.bound": Row(c.ExchangeBound("x"), (any_of("exchange", "x"),)),
    "exchange.bound, missing": Row(c.ExchangeBound("missing"), (any_of("exchange", "missing"),)),
    "exchange.bound to a queue": Row(
        c.ExchangeBound("x", "mortal", "k"), (any_of("exchange", "x"), any_of("queue", "mortal"))
    ),
    "exchange.bound to a queue, missing": Row(
        c.ExchangeBound("x", "missing", "k"), (any_of("exchange", "x"), any_of("queue", "missing"))
    ),
    "exchange.bound of the default one": Row(
        c.ExchangeBound("", "q"), (any_of("exchange", DEFAULT), any_of("queue", "q"))
    ),
    "exchange.bound of the default one by a key": Row(
        c.ExchangeBound("", None, "q"), (any_of("exchange", DEFAULT), any_of("queue", "q"))
    ),
    "queue.declare": Row(declare_queue("new"), (queue(CONFIGURE, "new"),)),
    "queue.declare exclusive": Row(
        declare_queue("new", exclusive=True, auto_delete=True), (queue(CONFIGURE, "new"),)
    ),
    "queue.declare for a while": Row(declare_queue("new", exclusive=True), (queue(CONFIGURE, "new"),)),
    "queue.declare again": Row(declare_queue("q"), (queue(CONFIGURE, "q"),)),
    "queue.declare again, exclusive": Row(declare_queue("q", exclusive=True), (queue(CONFIGURE, "q"),)),
    "queue.declare with an alternate": Row(
        declare_queue("new", alternate_exchange="other"), (*NEW_QUEUE, exchange(WRITE, "other"))
    ),
    "queue.declare with an alternate, missing": Row(
        declare_queue("new", alternate_exchange="missing"),
        (*NEW_QUEUE, exchange(WRITE, "missing")),
        NOT_FOUND,
    ),
    "queue.declare with an alternate, again": Row(
        declare_queue("mortal", alternate_exchange="other"), (queue(CONFIGURE, "mortal"),)
    ),
    "queue.declare with another alternate": Row(
        declare_queue("mortal", alternate_exchange="x"), (queue(CONFIGURE, "mortal"),), NOT_ALLOWED
    ),
    "queue.declare with another alternate, missing": Row(
        declare_queue("mortal", alternate_exchange="missing"), (queue(CONFIGURE, "mortal"),), NOT_ALLOWED
    ),
    "queue.declare with an alternate among the arguments": Row(
        declare_queue("new", {"x-alternate-exchange": "other"}), (*NEW_QUEUE, exchange(WRITE, "other"))
    ),
    "queue.declare with dead letters": Row(
        declare_queue("new", {DEAD: "other"}), (*NEW_QUEUE, exchange(WRITE, "other"))
    ),
    "queue.declare with dead letters, in other characters": Row(
        declare_queue("new", {DEAD: Str16Latin("other")}), (*NEW_QUEUE, exchange(WRITE, "other"))
    ),
    "queue.declare with dead letters to the default exchange": Row(
        declare_queue("new", {DEAD: ""}), (*NEW_QUEUE, exchange(WRITE, DEFAULT))
    ),
    "queue.declare with an alternate and dead letters": Row(
        declare_queue("new", {DEAD: "x"}, alternate_exchange="other"),
        (*NEW_QUEUE, exchange(WRITE, "other"), exchange(WRITE, "x")),
    ),
    "queue.declare with what clients of 0-10 say": Row(
        declare_queue("new", {"qpid.max_count": 5, "qpid.policy_type": "ring", "qpid.priorities": 4}),
        (queue(CONFIGURE, "new"),),
    ),
    "queue.declare passive": Row(declare_queue("q", passive=True), (any_of("queue", "q"),)),
    "queue.declare passive, missing": Row(
        declare_queue("missing", passive=True), (any_of("queue", "missing"),), NOT_FOUND
    ),
    "queue.delete": Row(c.QueueDelete("q"), (queue(CONFIGURE, "q"),)),
    "queue.delete, missing": Row(c.QueueDelete("missing"), (queue(CONFIGURE, "missing"),), NOT_FOUND),
    "queue.purge": Row(c.QueuePurge("q"), (queue(READ, "q"),)),
    "queue.purge, missing": Row(c.QueuePurge("missing"), (queue(READ, "missing"),), NOT_FOUND),
    "queue.query": Row(c.QueueQuery("q"), (any_of("queue", "q"),)),
    "queue.query, missing": Row(c.QueueQuery("missing"), (any_of("queue", "missing"),)),
    "message.transfer": Row(transfer("x"), (exchange(WRITE, "x"),), key="k"),
    "message.transfer, missing": Row(transfer("missing"), (exchange(WRITE, "missing"),), NOT_FOUND, key="k"),
    "message.transfer to the default exchange": Row(transfer(""), (exchange(WRITE, DEFAULT),), key="q"),
    "message.transfer to where bindings and alternates lead": Row(
        transfer("guarded"), (exchange(WRITE, "guarded"),), key="k"
    ),
    "message.transfer to a topic exchange": Row(
        transfer("amq.topic"), (exchange(WRITE, "amq.topic"),), key="k"
    ),
    "message.subscribe": Row(subscribe("q"), (queue(READ, "q"),)),
    "message.subscribe, missing": Row(subscribe("missing"), (queue(READ, "missing"),), NOT_FOUND),
    "message.subscribe, to look": Row(subscribe("q", c.ACQUIRE_MODE_NOT_ACQUIRED), (queue(READ, "q"),)),
    "message.accept": Row(c.MessageAccept(ids(0))),
    "message.reject": Row(c.MessageReject(ids(0))),
    "message.release": Row(c.MessageRelease(ids(0))),
    "message.acquire": Row(c.MessageAcquire(ids(0))),
    "message.cancel": Row(c.MessageCancel("d"), otherwise=NOT_FOUND),
    "message.flow": Row(c.MessageFlow("d", 0, 1), otherwise=NOT_FOUND),
    "message.set-flow-mode": Row(c.MessageSetFlowMode("d", 0), otherwise=NOT_FOUND),
    "message.flush": Row(c.MessageFlush("d"), otherwise=NOT_FOUND),
    "message.stop": Row(c.MessageStop("d"), otherwise=NOT_FOUND),
    "tx.select": Row(c.TxSelect()),
    "tx.commit": Row(c.TxCommit(), otherwise=c.ERROR_CODE_ILLEGAL_STATE),
    "tx.rollback": Row(c.TxRollback(), otherwise=c.ERROR_CODE_ILLEGAL_STATE),
    "dtx.select": Row(c.DtxSelect()),
    "dtx.start": Row(c.DtxStart(XID), otherwise=c.ERROR_CODE_COMMAND_INVALID),
    "dtx.end": Row(c.DtxEnd(XID), otherwise=c.ERROR_CODE_COMMAND_INVALID),
    "dtx.prepare": Row(c.DtxPrepare(XID), otherwise=NOT_FOUND),
    "dtx.commit": Row(c.DtxCommit(XID), otherwise=NOT_FOUND),
    "dtx.rollback": Row(c.DtxRollback(XID), otherwise=NOT_FOUND),
    "dtx.forget": Row(c.DtxForget(XID), otherwise=NOT_FOUND),
    "dtx.recover": Row(c.DtxRecover()),
    "dtx.get-timeout": Row(c.DtxGetTimeout(XID), otherwise=NOT_FOUND),
    "dtx.set-timeout": Row(c.DtxSetTimeout(XID, 1), otherwise=NOT_FOUND),
}


def test_every_command_has_a_row() -> None:
    assert {type(row.command) for row in COMMANDS.values()} == {*KNOWN, *DTX, c.MessageTransfer}


def check(bench: ClientBench, session: ClientSession, row: Row, missing: Sequence[Group]) -> None:
    before = state(bench)
    code, words = perform(session, row)
    if missing:
        permission, kind, name = missing[0][0]
        where = f"{permission} access to {kind} '{name}' in vhost '/'"
        assert (code, words) == (REFUSED, f"{where} refused for user 'u'")
        assert state(bench) == before
    else:
        assert code == row.otherwise, words


def exactly(names: Iterable[str]) -> str:
    alternatives = "|".join(sorted(set(names)))
    return f"^({alternatives})$" if alternatives else ""


@pytest.mark.parametrize("granted", EVERY_SET, ids="+".join)
@pytest.mark.parametrize("row", COMMANDS.values(), ids=COMMANDS)
def test_what_each_set_of_permissions_allows(row: Row, granted: tuple[str, ...]) -> None:
    expressions = (".*" if permission in granted else "" for permission in PERMISSIONS)
    missing = [group for group in row.needs if all(need[0] not in granted for need in group)]
    both = bench()
    check(both, user(both, *expressions), row, missing)


NEEDS: Final = [
    pytest.param(row, group, id=f"{name}: {' '.join(group[0])}")
    for name, row in COMMANDS.items()
    for group in row.needs
]


@pytest.mark.parametrize(("row", "group"), NEEDS)
def test_each_need_is_a_need(row: Row, group: Group) -> None:
    lost = {permission: name for permission, _, name in group}
    expressions = (f"^(?!{lost[permission]}$)" if permission in lost else ".*" for permission in PERMISSIONS)
    both = bench()
    missing = [each for each in row.needs if all(lost.get(need[0]) == need[2] for need in each)]
    check(both, user(both, *expressions), row, missing)


@pytest.mark.parametrize("row", COMMANDS.values(), ids=COMMANDS)
def test_there_are_no_other_needs(row: Row) -> None:
    for needs in product(*row.needs):
        named = (
            exactly(name for granted, _, name in needs if granted == permission) for permission in PERMISSIONS
        )
        both = bench()
        check(both, user(both, *named), row, [])


@pytest.mark.parametrize("row", COMMANDS.values(), ids=COMMANDS)
def test_a_permission_that_is_taken_away_is_missed_at_once(row: Row) -> None:
    """Whatever has been remembered while it was there."""
    both = bench()
    session = user(both)
    for destination in ("x", "guarded", "amq.topic", ""):
        session.publish("k", exchange=destination)
    session.sync()
    both.broker.access.set_permissions("u", "/", "", "", "")
    check(both, session, row, row.needs)
