"""Everything that a protocol can ask for, under every permission there is: what is not listed is refused.

Each protocol has a table of what touches a resource: for 0-9-1 and 0-10 it is with their tests, for 1.0 in
amqp10_operations.py. Here it is compared with what the specification's own tables list, so that nothing can be added
without a row; and what is refused has not happened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, combinations
from typing import Final

import pytest

from leveret.protocols.amqp010.broker.session import COMMANDS as SERVED
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.broker.management.administration import ROUTES
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp010.test_permission_matrix import COMMANDS
from tests.amqp091 import test_permission_matrix as of_091
from tests.harness.bench import ClientBench
from tests.harness.permissions import PERMISSIONS, Need

from .amqp10_operations import (
    GRANTED,
    HELLO,
    OPERATIONS,
    REQUESTS,
    ROWS_FOR,
    Row,
    Session,
    asking,
    bench,
    from_,
    named,
    state,
    subscription,
    to,
    user,
)

EVERY_SET: Final = tuple(chain.from_iterable(combinations(PERMISSIONS, count) for count in range(4)))

# AMQP 0-9-1: every method has a row, or a reason not to need one.

TOUCHES_NOTHING: Final = {
    "connection": "gets in, and out: a virtual host needs a permission in it",
    "channel": "comes and goes with its connection",
    "access": "a ticket that means nothing",
    "basic.qos": "how many deliveries it wants",
    "basic.cancel": "a consumer of its own",
    "basic.ack": "deliveries that it has",
    "basic.nack": "deliveries that it has",
    "basic.reject": "deliveries that it has",
    "basic.recover": "deliveries that it has",
    "basic.recover-async": "deliveries that it has",
    "confirm.select": "how it is answered",
    "tx.select": "a channel of its own",
    "tx.commit": "what it was allowed when it was done",
    "tx.rollback": "what it was allowed when it was done",
}
ONLY_ANSWERED: Final = {"basic.return", "basic.deliver", "basic.get-empty"}  # besides what ends in -ok


def has_a_reason(name: str) -> bool:
    return name in TOUCHES_NOTHING or name.partition(".")[0] in TOUCHES_NOTHING


def named_091(method: type) -> str:
    """As the specification writes it: ExchangeDeclareOk is exchange.declare-ok."""
    first, *words = re.findall("[A-Z][a-z]+", method.__name__)
    return f"{first}.{'-'.join(words)}".lower()


def test_every_method_of_0_9_1_has_a_row_or_needs_none() -> None:
    known = {named_091(method) for method in m.METHODS.values()}
    with_row = {name.split()[0].rstrip(",") for name in of_091.METHODS}
    answers = {name for name in known if name.endswith("-ok")} | ONLY_ANSWERED
    assert with_row <= known
    assert {name for name in known - with_row - answers if not has_a_reason(name)} == set()
    assert not {name for name in with_row if has_a_reason(name)}


def state_of_091(bench: ClientBench) -> object:
    return {host: state_of_host(bench, host) for host in of_091.HOSTS}


def state_of_host(bench: ClientBench, name: str) -> object:
    host = bench.broker.virtual_host(name)
    queues = host.queues.values()
    return (
        sorted((each.name, len(each.bindings)) for each in host.exchanges.values()),
        sorted((each.name, each.ready, each.unsettled, len(each.consumers)) for each in queues),
    )


@pytest.mark.parametrize("host", of_091.HOSTS)
@pytest.mark.parametrize("row", of_091.METHODS.values(), ids=of_091.METHODS)
def test_what_0_9_1_refuses_has_not_happened(row: of_091.Row, host: str) -> None:
    """Without any permission, and with all but those of each need."""
    for lost in [".*", *dict.fromkeys(name for _, _, name in row.needs)]:
        bench = of_091.bench()
        kept = "" if lost == ".*" else f"^(?!{lost}$)"
        channel = of_091.user(bench, host, kept, kept, kept)
        before = state_of_091(bench)
        if row.needs:
            assert of_091.outcome(channel, row.request).startswith("403 ACCESS_REFUSED - ")
            assert state_of_091(bench) == before


# AMQP 0-10.

ANSWERS_OF_010: Final = {
    c.ExecutionSync,
    c.ExecutionResult,
    c.ExecutionException,
}  # of a session's own commands


def test_every_command_of_0_10_has_a_row_or_is_served_to_nobody() -> None:
    known = {each for each in vars(c).values() if isinstance(each, type) and issubclass(each, c.Command)}
    with_row = {type(row.command) for row in COMMANDS.values()}
    not_served = known - {c.Command} - with_row - ANSWERS_OF_010
    assert not_served.isdisjoint(SERVED)
    assert {each.NAME.partition(".")[0] for each in not_served} == {"file", "stream", "message"}
    assert [each.NAME for each in not_served if each.NAME.startswith("message.")] == ["message.resume"]


# AMQP 1.0: the whole matrix.


def test_every_management_request_has_a_row() -> None:
    assert set(REQUESTS) == {(method, pattern) for method, pattern, _, _ in ROUTES}


def test_every_performative_has_rows_or_a_reason_to_need_none() -> None:
    records = {each for each in vars(p).values() if "frame" in getattr(each, "PROVIDES", ())}
    assert set(GRANTED) | set(ROWS_FOR) == records
    assert all(ROWS_FOR.values())


def refused(need: Need) -> str:
    permission, kind, name = need
    where = f"{permission} access to {kind} '{name}' in vhost '/'"
    return f"amqp:unauthorized-access {where} refused for user 'u'"


def check(row: Row, session: Session, missing: Sequence[Need]) -> None:
    bench = session.peer.bench
    before = state(bench)
    outcome = row.act(session)
    if missing and (not row.any_will_do or len(missing) == len(row.needs)):
        assert re.fullmatch(refused(missing[0]), outcome), outcome
        assert state(bench) == before
    else:
        assert outcome.startswith(row.otherwise), outcome
        assert bool(outcome) == bool(row.otherwise), outcome


@pytest.mark.parametrize("granted", EVERY_SET, ids="+".join)
@pytest.mark.parametrize("row", OPERATIONS.values(), ids=OPERATIONS)
def test_what_each_set_of_permissions_allows(row: Row, granted: tuple[str, ...]) -> None:
    expressions = (".*" if permission in granted else "" for permission in PERMISSIONS)
    missing = [need for need in row.needs if need[0] not in granted]
    check(row, user(bench(), *expressions), missing)


NEEDS: Final = [
    pytest.param(row, need, id=f"{name}: {' '.join(need)}")
    for name, row in OPERATIONS.items()
    if not row.any_will_do
    for need in row.needs
]


@pytest.mark.parametrize(("row", "need"), NEEDS)
def test_each_need_is_a_need(row: Row, need: Need) -> None:
    permission, _, name = need
    expressions = (f"^(?!{name}$)" if each == permission else ".*" for each in PERMISSIONS)
    check(row, user(bench(), *expressions), [need])


@pytest.mark.parametrize("row", OPERATIONS.values(), ids=OPERATIONS)
def test_there_are_no_other_needs(row: Row) -> None:
    for needs in [[need] for need in row.needs] if row.any_will_do else [row.needs]:
        expressions = (
            exactly([name for granted, _, name in needs if granted == permission])
            for permission in PERMISSIONS
        )
        check(row, user(bench(), *expressions), [])


def exactly(names: Sequence[str]) -> str:
    return f"^({'|'.join(names)})$" if names else "^never$"


# Topics, over 1.0.

TOPICS: Final = {
    "target": (to("/exchanges/t/no"), "write"),
    "anonymous": (to(None, named("/exchanges/t/no"), HELLO), "write"),
    "subscription": (from_(subscription("/exchanges/t/no", "topic")), "read"),
    "subscription that lasts": (from_(subscription("/exchanges/t/no", durable=2)), "read"),
    "POST /bindings": (
        asking("POST", "/bindings", {"source": "t", "destination_queue": "q", "binding_key": "no"}),
        "read",
    ),
    "GET /bindings": (asking("GET", "/bindings?src=t&dstq=q&key=no", None, 200), "read"),
    "DELETE /bindings": (asking("DELETE", "/bindings/src=t;dstq=q;key=no;args="), "read"),
}


def guarded() -> Session:
    made = bench()
    made.host.declare_exchange("t", "topic")
    session = user(made)
    made.broker.access.set_topic_permissions("u", "/", "t", "^yes$", "^yes$")
    return session


@pytest.mark.parametrize(("act", "permission"), TOPICS.values(), ids=TOPICS)
def test_s088_a_topic_that_is_not_allowed_over_1_0(act, permission: str) -> None:
    session = guarded()
    before = state(session.peer.bench)
    told = f"{permission} access to topic 'no' in exchange 't' in vhost '/' refused for user 'u'"
    assert act(session) == f"amqp:unauthorized-access {told}"
    assert state(session.peer.bench) == before


@pytest.mark.parametrize(
    "act", [to("/exchanges/t/yes", HELLO), from_(subscription("/exchanges/t/yes", "topic"))]
)
def test_s088_a_topic_that_is_allowed_over_1_0(act) -> None:
    assert act(guarded()) == ""


@pytest.mark.parametrize("address", ["/exchanges/x/k", "/queues/q", None])
def test_a_permission_that_is_taken_away_is_missed_by_the_next_message(address: str | None) -> None:
    session = user(bench())
    sender = session.sender(address)
    sections = (named("/exchanges/x/k"), HELLO) if address is None else (HELLO,)
    sender.publish(*sections)
    session.peer.bench.broker.access.set_permissions("u", "/", ".*", "", ".*")
    before = state(session.peer.bench)
    assert "write access to exchange" in sender.rejection(*sections)
    assert state(session.peer.bench) == before
