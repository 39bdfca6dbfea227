"""The exchange class: declare, delete, query, bind, unbind, bound; and the names that may be given (X091, S243)."""

from __future__ import annotations

import pytest

from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.types import UInt8, Value
from tests.amqp010.client import ClientSession
from tests.amqp010.peer import refused, session_of
from tests.amqp010.permitted import NOT_ALLOWED, NOT_FOUND
from tests.harness.bench import ClientBench


@pytest.fixture
def session(bench: ClientBench) -> ClientSession:
    return session_of(bench)


def bound(session: ClientSession, **asked: object) -> str:
    """What `exchange.bound` says no to."""
    result = session.call(c.ExchangeBound(**asked))
    assert isinstance(result, c.ExchangeBoundResult)
    return " ".join(sorted(name for name, value in result.fields().items() if value))


# Declaring.


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers"])
def test_an_exchange_is_declared_and_queried(session: ClientSession, type_: str) -> None:
    session.exchange("e", type_, {"qpid.msg_sequence": 1}, durable=True)
    assert session.call(c.ExchangeQuery("e")) == c.ExchangeQueryResult(
        type_, True, False, {"qpid.msg_sequence": 1}
    )


def test_a_missing_exchange_is_an_answer_and_the_default_one_is_direct(session: ClientSession) -> None:
    for missing in ("nowhere", "amq.nowhere"):
        result = session.call(c.ExchangeQuery(missing))
        assert isinstance(result, c.ExchangeQueryResult)
        assert result.not_found
    for default in (None, ""):
        result = session.call(c.ExchangeQuery(default))
        assert isinstance(result, c.ExchangeQueryResult)
        assert (result.type, result.durable, result.not_found) == ("direct", True, False)


def test_declaring_again_changes_nothing_whatever_else_is_said(
    bench: ClientBench, session: ClientSession
) -> None:
    session.exchange("e", "topic", durable=True)
    exchange = bench.host.exchanges["e"]
    session.exchange("e", "topic", durable=False, auto_delete=True)
    session.exchange("amq.topic", "topic")
    assert bench.host.exchanges["e"] is exchange
    assert exchange.durable


REFUSED = {
    "no name": (c.ExchangeDeclare(type="direct"), c.ERROR_CODE_INVALID_ARGUMENT),
    "an empty name": (c.ExchangeDeclare("", "direct"), c.ERROR_CODE_INVALID_ARGUMENT),
    "a passive empty name": (c.ExchangeDeclare("", passive=True), c.ERROR_CODE_INVALID_ARGUMENT),
    "reserved": (c.ExchangeDeclare("amq.mine", "direct"), NOT_ALLOWED),
    "reserved by qpid": (c.ExchangeDeclare("qpid.mine", "direct"), NOT_ALLOWED),
    "of another type": (c.ExchangeDeclare("amq.direct", "fanout"), NOT_ALLOWED),
    "of another type, passive": (c.ExchangeDeclare("amq.direct", "fanout", passive=True), NOT_ALLOWED),
    "of an unknown type": (c.ExchangeDeclare("e", "x-strange"), NOT_FOUND),
    "of no type": (c.ExchangeDeclare("e"), NOT_FOUND),
    "missing, passive": (c.ExchangeDeclare("e", "direct", passive=True), NOT_FOUND),
    "with a missing alternate": (c.ExchangeDeclare("e", "direct", alternate_exchange="nowhere"), NOT_FOUND),
    "with another alternate": (
        c.ExchangeDeclare("amq.direct", "direct", alternate_exchange="amq.fanout"),
        NOT_ALLOWED,
    ),
    "with a name of 128 characters": (c.ExchangeDeclare("e" * 128, "direct"), c.ERROR_CODE_INVALID_ARGUMENT),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_declared(bench: ClientBench, session: ClientSession, what: str) -> None:
    command, code = REFUSED[what]
    before = {*bench.host.exchanges}
    assert refused(session, command) == code
    assert {*bench.host.exchanges} == before


def test_s243_a_type_that_is_not_standard_begins_with_x() -> None:
    class Strange(STANDARD["fanout"]):  # type: ignore[misc, name-defined]
        name = "strange"

    types: dict[str, type[ExchangeType]] = {**STANDARD, "strange": Strange, "x-strange": Strange}
    bench = ClientBench(exchange_types=types)
    session_of(bench, "good").exchange("e", "x-strange")
    assert refused(session_of(bench, "bad"), c.ExchangeDeclare("f", "strange")) == NOT_ALLOWED


@pytest.mark.parametrize(
    ("command", "strict"),
    [
        (c.ExchangeDeclare("letters_and_9", "direct"), True),
        (c.ExchangeDeclare("with.a.dot", "direct"), False),
        (c.ExchangeDeclare("café", "direct"), False),
        (c.QueueDeclare("_q.with-anything else ü"), True),
        (c.QueueDeclare("9"), True),
        (c.QueueDeclare("-q"), False),
    ],
)
def test_x091_names_of_the_draft_where_they_are_asked_for(command: c.Command, strict: bool) -> None:
    session_of(ClientBench()).call(command)
    session = session_of(ClientBench("[protocols.amqp010]\nstrict_names = true"))
    if strict:
        session.call(command)
    else:
        assert refused(session, command) == c.ERROR_CODE_INVALID_ARGUMENT


def test_what_finds_no_queue_goes_to_the_alternate_exchange(session: ClientSession) -> None:
    session.declare("rest")
    session.exchange("others", "fanout")
    session.bind("rest", "others")
    session.exchange("e", "direct", alternate_exchange="others")
    session.publish("nowhere", b"lost", exchange="e")
    session.sync()
    assert session.subscribe("rest").bodies() == [b"lost"]


# Deleting.


def test_an_exchange_is_deleted_with_its_bindings(bench: ClientBench, session: ClientSession) -> None:
    session.exchange("e", "direct")
    session.declare("q")
    session.bind("q", "e", "k")
    session.call(c.ExchangeDelete("e"))
    assert "e" not in bench.host.exchanges
    assert [*bench.host.bindings_to(bench.queue("q"))] == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (c.ExchangeDelete(), c.ERROR_CODE_INVALID_ARGUMENT),
        (c.ExchangeDelete("nowhere"), NOT_FOUND),
        (c.ExchangeDelete("amq.direct"), NOT_ALLOWED),
        (c.ExchangeDelete("amq.nowhere"), NOT_ALLOWED),
        (c.ExchangeDelete("used"), NOT_ALLOWED),
        (c.ExchangeDelete("of-queue"), NOT_ALLOWED),
        (c.ExchangeDelete("bound", if_unused=True), c.ERROR_CODE_PRECONDITION_FAILED),
    ],
)
def test_what_cannot_be_deleted(session: ClientSession, command: c.ExchangeDelete, code: int) -> None:
    for name in ("used", "of-queue", "bound"):
        session.exchange(name, "direct")
    session.exchange("e", "direct", alternate_exchange="used")
    session.declare("q", alternate_exchange="of-queue")
    session.bind("q", "bound", "k")
    assert refused(session, command) == code


# Binding.


def test_bindings_of_every_type_route(session: ClientSession) -> None:
    session.declare("q")
    session.bind("q", "amq.direct", "key")
    session.bind("q", "amq.topic", "a.*")
    session.bind("q", "amq.fanout")
    session.bind("q", "amq.match", "any", {"x-match": "any", "colour": "red", "size": None})
    session.bind("q", "amq.direct", "key")  # twice is once
    session.publish("key", b"direct", exchange="amq.direct")
    session.publish("a.b", b"topic", exchange="amq.topic")
    session.publish("whatever", b"fanout", exchange="amq.fanout")
    for headers in ({"colour": "red"}, {"size": 3}, {"colour": "blue"}):
        session.publish(
            "", b"headers", exchange="amq.match", properties=c.MessageProperties(application_headers=headers)
        )
    session.sync()
    assert session.subscribe("q").bodies() == [b"direct", b"topic", b"fanout", b"headers", b"headers"]


@pytest.mark.parametrize(
    ("wanted", "sent", "matches"),
    [
        (5, UInt8(5), True),
        (5, 5.0, True),
        ("text", b"text", True),
        (None, "anything", True),
        (1, True, False),
        (5, "5", False),
    ],
)
def test_headers_are_compared_as_for_everybody(
    session: ClientSession, wanted: Value, sent: Value, matches: bool
) -> None:
    """By value, whatever their width; void asks whether there is one."""
    session.declare("q")
    session.bind("q", "amq.match", "k", {"x-match": "all", "h": wanted})
    session.publish(
        "", b"it", exchange="amq.match", properties=c.MessageProperties(application_headers={"h": sent})
    )
    session.sync()
    assert session.subscribe("q").bodies() == [b"it"] * matches


@pytest.mark.parametrize("kind", [c.ExchangeBind, c.ExchangeUnbind])
@pytest.mark.parametrize(
    ("queue", "exchange", "code"),
    [
        (None, "amq.direct", c.ERROR_CODE_INVALID_ARGUMENT),
        ("", "amq.direct", c.ERROR_CODE_INVALID_ARGUMENT),
        ("q", None, c.ERROR_CODE_INVALID_ARGUMENT),
        ("q", "", c.ERROR_CODE_INVALID_ARGUMENT),
        ("nowhere", "amq.direct", NOT_FOUND),
        ("q", "nowhere", NOT_FOUND),
    ],
)
def test_both_ends_of_a_binding_have_names_and_are_there(
    session: ClientSession, kind: type, queue: str | None, exchange: str | None, code: int
) -> None:
    session.declare("q")
    assert refused(session, kind(queue, exchange, "k")) == code


def test_an_unknown_x_match_is_an_invalid_argument(session: ClientSession) -> None:
    session.declare("q")
    command = c.ExchangeBind("q", "amq.match", "k", {"x-match": "some"})
    assert refused(session, command) == c.ERROR_CODE_INVALID_ARGUMENT


@pytest.mark.parametrize("arguments", [None, {}, {"h": 1}, {"x-filter-jms-selector": "h = 1"}])
@pytest.mark.parametrize("exchange", ["amq.match", "amq.headers", "declared"])
def test_a_headers_binding_without_x_match_is_refused(
    bench: ClientBench, session: ClientSession, exchange: str, arguments: dict[str, Value] | None
) -> None:
    session.declare("q")
    session.exchange("declared", "headers")
    command = c.ExchangeBind("q", exchange, "k", arguments)
    assert refused(session, command) == c.ERROR_CODE_INTERNAL_ERROR
    assert not bench.host.bindings_to(bench.queue("q"))


@pytest.mark.parametrize("missing", ["queue", "permission"])
def test_what_hinders_a_headers_binding_at_all_is_told_first(bench: ClientBench, missing: str) -> None:
    session = session_of(bench, user=bench.user("eve"))
    if missing == "permission":
        session.declare("q")
        bench.user("eve", read="")
    code = NOT_FOUND if missing == "queue" else c.ERROR_CODE_UNAUTHORIZED_ACCESS
    assert refused(session, c.ExchangeBind("q", "amq.match", "k", {"h": 1})) == code


def test_a_headers_binding_of_another_protocol_needs_no_x_match(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("q")
    host = bench.host
    host.bind(host.exchange("amq.match"), bench.queue("q"), "k", {"h": 1})
    for number in (1, 2):
        headers = c.MessageProperties(application_headers={"h": number})
        session.publish("", b"%d" % number, exchange="amq.match", properties=headers)
    session.sync()
    assert session.subscribe("q").bodies() == [b"1"]


def test_a_binding_has_a_selector_as_in_qpid(session: ClientSession) -> None:
    session.declare("q")
    session.bind("q", "amq.topic", "a.#", {"x-filter-jms-selector": "h = 1"})
    for number in (1, 2):
        headers = c.MessageProperties(application_headers={"h": number})
        session.publish("a.b", b"%d" % number, exchange="amq.topic", properties=headers)
    session.sync()
    assert session.subscribe("q").bodies() == [b"1"]
    command = c.ExchangeBind("q", "amq.topic", "k", {"x-filter-jms-selector": "h ="})
    assert refused(session, command) == c.ERROR_CODE_INVALID_ARGUMENT


def test_unbinding_takes_all_bindings_with_the_key_and_does_not_mind_that_there_is_none(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("q")
    for colour in ("red", "blue"):
        session.bind("q", "amq.match", "k", {"x-match": "all", "colour": colour})
    session.bind("q", "amq.match", "other", {"x-match": "all", "colour": "red"})
    for _ in range(2):
        session.call(c.ExchangeUnbind("q", "amq.match", "k"))
        assert [each.key for each in bench.host.bindings_to(bench.queue("q"))] == ["other"]


# Bound?

RED = {"x-match": "all", "colour": "red"}
KEY, QUEUE, ARGS = "key_not_matched", "queue_not_matched", "args_not_matched"


@pytest.mark.parametrize(
    ("asked", "no"),
    [
        ({"exchange": "amq.direct", "queue": "used"}, ""),
        ({"exchange": "amq.direct", "binding_key": "k"}, ""),
        ({"exchange": "amq.direct", "queue": "used", "binding_key": "k"}, ""),
        ({"exchange": "amq.direct", "queue": "used", "binding_key": ""}, ""),
        ({"exchange": "amq.direct"}, ""),
        ({"exchange": "amq.direct", "queue": "idle"}, QUEUE),
        ({"exchange": "amq.direct", "binding_key": "l"}, KEY),
        ({"exchange": "amq.direct", "queue": "used", "binding_key": "l"}, KEY),
        ({"exchange": "amq.direct", "queue": "idle", "binding_key": "k"}, QUEUE),
        ({"exchange": "amq.direct", "queue": "idle", "binding_key": "l"}, f"{KEY} {QUEUE}"),
        ({"exchange": "amq.direct", "queue": "used", "binding_key": "of other"}, KEY),
        ({"exchange": "amq.fanout", "queue": "used", "binding_key": "whatever"}, ""),
        ({"exchange": "amq.fanout", "queue": "idle"}, QUEUE),
        ({"exchange": "amq.match", "queue": "used", "arguments": RED}, ""),
        ({"exchange": "amq.match", "queue": "used", "arguments": {**RED, "colour": "blue"}}, ARGS),
        ({"exchange": "amq.match", "queue": "used", "arguments": {"colour": "red"}}, ARGS),
        ({"exchange": "amq.direct", "queue": "used", "arguments": {"ignored": 1}}, ""),
        ({"exchange": "nowhere"}, "exchange_not_found"),
        ({"exchange": "nowhere", "queue": "nowhere"}, "exchange_not_found queue_not_found"),
        ({"exchange": "amq.direct", "queue": "nowhere"}, "queue_not_found"),
        ({"queue": "used"}, ""),
        ({"exchange": "", "queue": "used", "binding_key": "used"}, ""),
        ({"exchange": "", "binding_key": "used"}, ""),
        ({"exchange": "", "queue": "used", "binding_key": "k"}, KEY),
        ({"exchange": "", "binding_key": "k"}, KEY),
        ({"exchange": "used", "queue": "used"}, "exchange_not_found"),
    ],
)
def test_bound_says_what_is_not(session: ClientSession, asked: dict[str, object], no: str) -> None:
    for queue in ("used", "idle", "other"):
        session.declare(queue)
    session.bind("used", "amq.direct", "k")
    session.bind("other", "amq.direct", "of other")
    session.bind("used", "amq.fanout")
    session.bind("used", "amq.match", "m", RED)
    assert bound(session, **asked) == no


# Permissions.


def test_permissions_are_asked_for(bench: ClientBench) -> None:
    bench.user("reader", configure="^$", write="^$", read="^amq\\.")
    session = session_of(bench, "s", "reader")
    session.call(c.ExchangeQuery("amq.direct"))
    assert refused(session, c.ExchangeDeclare("e", "direct")) == c.ERROR_CODE_UNAUTHORIZED_ACCESS
    session = session_of(bench, "t", "reader")
    assert refused(session, c.ExchangeDeclare("amq.direct", "direct")) == c.ERROR_CODE_UNAUTHORIZED_ACCESS
    session = session_of(bench, "u", "reader")
    assert refused(session, c.QueueQuery("secret")) == c.ERROR_CODE_UNAUTHORIZED_ACCESS
