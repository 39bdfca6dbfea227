"""What the clients in the field say, and what they have to read: their conversations as data.

A conversation is a list of turns. In a turn one connection says some things on one channel, in one burst; then each of
what the turn `sees` must have come, on whichever connection it names: those of one kind in that order, different kinds
in any, for controls and commands travel on different tracks. What clients pass over may come besides (`PASSED_OVER`).

The first three are programs of the C++ distribution (send, receive, a performance test of four connections), the other
two the old Python client with its two interfaces. None of it is made up; ids and process numbers are shortened.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.sequences import SequenceSet

from .client import FOREVER, ids


@attrs.frozen
class Said:
    """A control, or a command with its sync bit and what follows it."""

    what: Control | Command
    sync: bool = False
    structs: tuple[object, ...] | None = None
    body: bytes | None = None


@attrs.frozen
class Message:
    """A transfer that has to come."""

    destination: str
    body: bytes
    key: str
    headers: dict | None = None
    accept_mode: int = c.ACCEPT_MODE_EXPLICIT


@attrs.frozen
class Done:
    """These commands of ours must be known to be complete."""

    first: int
    last: int


Expected: TypeAlias = Control | Command | Message | Done


@attrs.frozen
class Turn:
    connection: int
    channel: int
    says: tuple[Said, ...]
    sees: tuple[tuple[int, Expected], ...]  # each with its connection


PASSED_OVER: Final = (c.SessionCompleted, c.SessionFlush, c.SessionKnownCompleted, c.ConnectionHeartbeat)


def turn(connection: int, channel: int, *says: Said | Control | Command, sees: tuple = ()) -> Turn:
    """What is seen is seen on the same connection where no other is named."""
    said = tuple(each if isinstance(each, Said) else Said(each) for each in says)
    seen = tuple(each if isinstance(each, tuple) else (connection, each) for each in sees)
    return Turn(connection, channel, said, seen)


def synced(command: Command, *structs: object, body: bytes | None = None) -> Said:
    return Said(command, True, structs or None, body)


def sent(
    key: str, body: bytes | None, properties: c.MessageProperties | None, accept_mode: int | None = 1
) -> Said:
    structs = (properties,) if properties is not None else ()
    structs = (*structs, c.DeliveryProperties(routing_key=key))
    return Said(c.MessageTransfer("", accept_mode, accept_mode and 0), False, structs, body)


def _hello(n: int, start_ok: Control, *more: Control) -> list[Turn]:
    """From start-ok to open-ok."""
    return [
        turn(n, 0, start_ok, sees=(c.ConnectionTune(),)),
        turn(n, 0, *more, sees=(c.ConnectionOpenOk(),)),
    ]


def _cpp_hello(n: int, program: str, name: bytes) -> list[Turn]:
    properties = {
        "qpid.client_pid": 24616,
        "qpid.client_ppid": 24609,
        "qpid.client_process": program,
        "qpid.session_flow": 1,
    }
    start_ok = c.ConnectionStartOk(properties, "ANONYMOUS", b"anonymous@host", "en_US")
    tune_ok, opening = c.ConnectionTuneOk(32767, 65535, 0), c.ConnectionOpen("", [], True)
    return [
        *_hello(n, start_ok, tune_ok, opening),
        turn(n, 1, c.SessionAttach(name), sees=(c.SessionAttached(name), c.SessionCommandPoint(0, 0))),
    ]


def _settled_in(n: int, *more: Said | Command, done: int) -> Turn:
    """What the C++ client does first in a session, and at once what it came for."""
    return turn(
        n,
        1,
        c.SessionRequestTimeout(0),
        c.SessionCommandPoint(0, 0),
        *more,
        synced(c.ExecutionSync()),
        sees=(c.SessionTimeout(0), Done(0, done)),
    )


def _goodbye(n: int, name: bytes, channel: int = 1) -> list[Turn]:
    detached = c.SessionDetached(name, c.DETACH_CODE_NORMAL)
    return [
        turn(n, channel, c.SessionDetach(name), sees=(detached,)),
        turn(n, 0, c.ConnectionClose(200, "OK"), sees=(c.ConnectionCloseOk(),)),
    ]


def _cpp_properties(headers: dict) -> c.MessageProperties:
    """With a content length of 0 and a user id that is there and empty, as it is sent."""
    return c.MessageProperties(
        content_length=0, content_type="text/plain", user_id=b"", application_headers=headers
    )


def _resolved(n: int, queue: str, id: int, **absent: bool) -> Turn:
    """It asks what an address is: an exchange, a queue, or nothing."""
    bound = c.ExchangeBound(queue, queue, "", {})
    result = c.ExecutionResult(id, c.ExchangeBoundResult(**absent))
    return turn(n, 1, synced(bound), sees=(result, Done(0, id)))


SENDER: Final = b"d4fb5fa7-6d9e-4780-9bb3-5150fb66c096"
RECEIVER: Final = b"c2eddd7f-4e13-4668-be58-309e358df9f5"
FIRST, SECOND = {"sn": 1, "ts": 1795247727945576399}, {"sn": 2, "ts": 1795247727945698981}
CREDIT: Final = (
    c.MessageSetFlowMode("tap-q", c.FLOW_MODE_WINDOW),
    c.MessageFlow("tap-q", c.CREDIT_UNIT_MESSAGE, 2),
    c.MessageFlow("tap-q", c.CREDIT_UNIT_BYTE, FOREVER),
)

CPP_SEND: Final = [
    *_cpp_hello(1, "qpid-send", SENDER),
    _settled_in(1, done=0),
    _resolved(1, "tap-q", 1, exchange_not_found=True, queue_not_found=True),
    turn(1, 1, c.QueueDeclare("tap-q", "", arguments={}), synced(c.ExecutionSync()), sees=(Done(0, 3),)),
    turn(
        1,
        1,
        sent("tap-q", None, _cpp_properties(FIRST)),
        sent("tap-q", None, _cpp_properties(SECOND)),
        synced(c.ExecutionSync()),
        sees=(Done(0, 6),),
    ),
    *_goodbye(1, SENDER),
]

CPP_RECEIVE: Final = [
    *_cpp_hello(2, "qpid-receive", RECEIVER),
    _settled_in(2, done=0),
    _resolved(2, "tap-q", 1, exchange_not_found=True),
    turn(2, 1, synced(c.QueueDeclare("tap-q", "", passive=True, arguments={})), sees=(Done(0, 2),)),
    turn(
        2,
        1,
        c.MessageSubscribe("tap-q", "tap-q", 0, 0, False, "", 0, {}),
        c.MessageStop("tap-q"),
        *CREDIT,
        synced(c.MessageFlush("tap-q")),
        sees=(Message("tap-q", b"", "tap-q", FIRST), Message("tap-q", b"", "tap-q", SECOND), Done(0, 8)),
    ),
    turn(
        2,
        1,
        *CREDIT,
        c.SessionCompleted(ids(0)),
        c.SessionCompleted(ids((0, 1))),
        c.MessageAccept(ids(0)),
        c.SessionFlush(completed=True),
        sees=(Done(0, 12),),
    ),
    turn(
        2,
        1,
        c.SessionCompleted(ids((0, 2))),
        c.MessageAccept(ids(1)),
        c.SessionFlush(completed=True),
        c.MessageAccept(SequenceSet()),
        c.SessionFlush(completed=True),
        synced(c.MessageStop("tap-q")),
        sees=(Done(0, 15),),
    ),
    turn(
        2,
        1,
        c.SessionKnownCompleted(ids((0, 12))),
        c.SessionKnownCompleted(ids((0, 13))),
        c.SessionKnownCompleted(ids((0, 14))),
        c.MessageRelease(SequenceSet()),
        c.MessageCancel("tap-q"),
        synced(c.QueueQuery("tap-q")),
        sees=(
            c.ExecutionResult(18, c.QueueQueryResult("tap-q", message_count=0, subscriber_count=0)),
            Done(15, 18),
        ),
    ),
    turn(2, 1, synced(c.QueueDelete("tap-q")), sees=(Done(15, 19),)),
    turn(2, 1, synced(c.ExecutionSync()), c.MessageRelease(SequenceSet()), sees=(Done(15, 20),)),
    *_goodbye(2, RECEIVER),
]

SETUP: Final = b"263e4973-377f-4451-8c5a-fe5f3658a905"
PUBLISHER: Final = b"d4a17c9b-48ae-4dba-96a2-1564bf9e7541"
SUBSCRIBER: Final = b"968d9a0e-8bcb-43a4-a919-ea65428ca4db"
CONTROLLER: Final = b"1d034e9b-4499-4c2a-ba1b-522d6754eddf"


def _emptied(queue: str, id: int, arguments: dict | None = None) -> Turn:
    """Declare, purge, sync: three commands, of which `id` is the last."""
    declare = c.QueueDeclare(queue, "", arguments=arguments or {})
    return turn(3, 1, declare, c.QueuePurge(queue), synced(c.ExecutionSync()), sees=(Done(0, id),))


def _subscribed(queue: str, messages: int, accept_mode: int = 0) -> tuple[Command, ...]:
    return (
        c.MessageSubscribe(queue, queue, accept_mode, 0, False, "", 0, {}),
        c.MessageSetFlowMode(queue, c.FLOW_MODE_CREDIT),
        c.MessageFlow(queue, c.CREDIT_UNIT_MESSAGE, messages),
        c.MessageFlow(queue, c.CREDIT_UNIT_BYTE, FOREVER),
    )


def _said(queue: str, body: bytes) -> Said:
    return sent(queue, body, c.MessageProperties(content_length=len(body)))


def _body(n: int) -> bytes:
    return n.to_bytes(8, "little") + b"XXXXXXXXXXXX"


CPP_PERFTEST: Final = [
    *_cpp_hello(3, "qpid-perftest", SETUP),
    _settled_in(3, c.QueueDeclare("pub_start", "", arguments={}), c.QueuePurge("pub_start"), done=2),
    _emptied("pub_done", 5),
    _emptied("sub_ready", 8),
    _emptied("sub_done", 11),
    _emptied("perftest0", 14, {"qpid.max_count": 0, "qpid.max_size": 0}),
    *_goodbye(3, SETUP),
    *_cpp_hello(4, "qpid-perftest", PUBLISHER),
    _settled_in(4, *_subscribed("pub_start", 0), done=4),
    *_cpp_hello(5, "qpid-perftest", SUBSCRIBER),
    _settled_in(5, *_subscribed("perftest0", 3, accept_mode=1), done=4),
    turn(5, 1, _said("sub_ready", b"ready")),
    *_cpp_hello(6, "qpid-perftest", CONTROLLER),
    turn(
        6,
        1,
        c.SessionRequestTimeout(0),
        c.SessionCommandPoint(0, 0),
        *_subscribed("sub_ready", 1),
        synced(c.ExecutionSync()),
        sees=(c.SessionTimeout(0), Done(0, 4), Message("sub_ready", b"ready", "sub_ready")),
    ),
    turn(
        6,
        1,
        c.SessionCompleted(SequenceSet(), timely_reply=True),
        c.MessageAccept(ids(0)),
        c.SessionCompleted(ids(0)),
        *_subscribed("pub_done", 0),
        synced(c.ExecutionSync()),
        sees=(Done(0, 10),),
    ),
    turn(4, 1, c.MessageFlow("pub_start", c.CREDIT_UNIT_MESSAGE, 1)),
    turn(6, 1, *_subscribed("sub_done", 0), synced(c.ExecutionSync()), sees=(Done(0, 15),)),
    turn(
        6,
        1,
        _said("pub_start", b"start"),
        c.MessageFlow("pub_done", c.CREDIT_UNIT_MESSAGE, 1),
        sees=((4, Message("pub_start", b"start", "pub_start")),),
    ),
    turn(
        4,
        1,
        c.SessionCompleted(SequenceSet(), timely_reply=True),
        c.MessageAccept(ids(0)),
        c.SessionCompleted(ids(0)),
        *(_said("perftest0", _body(n)) for n in range(3)),
        synced(c.ExecutionSync()),
        sees=(
            Done(0, 10),
            *((5, Message("perftest0", _body(n), "perftest0", accept_mode=1)) for n in range(3)),
        ),
    ),
    turn(
        5,
        1,
        c.SessionCompleted(SequenceSet(), timely_reply=True),
        _said("sub_done", b"56.254673005368218"),
        c.SessionDetach(SUBSCRIBER),
        sees=(c.SessionDetached(SUBSCRIBER, c.DETACH_CODE_NORMAL),),
    ),
    turn(
        4,
        1,
        _said("pub_done", b"70.990808299450208"),
        c.SessionDetach(PUBLISHER),
        sees=(
            c.SessionDetached(PUBLISHER, c.DETACH_CODE_NORMAL),
            (6, Message("pub_done", b"70.990808299450208", "pub_done")),
        ),
    ),
    turn(
        6,
        1,
        c.MessageAccept(ids(1)),
        c.SessionCompleted(ids((0, 1))),
        c.MessageFlow("sub_done", c.CREDIT_UNIT_MESSAGE, 1),
        sees=(Message("sub_done", b"56.254673005368218", "sub_done"),),
    ),
    turn(6, 1, c.MessageAccept(ids(2)), c.SessionCompleted(ids((0, 2)))),
    *_goodbye(6, CONTROLLER),
    turn(4, 0, c.ConnectionClose(200, "OK"), sees=(c.ConnectionCloseOk(),)),
    turn(5, 0, c.ConnectionClose(200, "OK"), sees=(c.ConnectionCloseOk(),)),
]

PYTHON_PROPERTIES: Final = {
    "product": "qpid python client",
    "qpid.client_version": "unidentified",
    "platform": "posix",
    "qpid.client_process": "smoke.py",
    "qpid.client_pid": 24656,
    "qpid.client_ppid": 24655,
}
NAMES: Final = (b"6de2cc65-9bbd-462b-beff-60ab2edd9494:0", b"6de2cc65-9bbd-462b-beff-60ab2edd9494:1")


def _asked_for(name: str, id: int, found: c.QueueQueryResult) -> tuple:
    """Which is how the Python client resolves an address: no exchange, and what the queue says."""
    return (
        c.ExecutionResult(id, c.ExchangeQueryResult(not_found=True)),
        c.ExecutionResult(id + 1, found),
        Done(0, id + 1),
    )


def _asks_for(name: str) -> tuple[Said, Said]:
    return synced(c.ExchangeQuery(name)), synced(c.QueueQuery(name))


HELLO_BODY: Final = c.MessageProperties(
    content_type="text/plain", application_headers={"k": 1, "qpid.subject": "x"}
)

PYTHON_MESSAGING: Final = [
    *_hello(
        7,
        c.ConnectionStartOk(PYTHON_PROPERTIES, "ANONYMOUS", b"None@host"),
        c.ConnectionTuneOk(65534),
        c.ConnectionOpen(),
    ),
    turn(
        7,
        0,
        c.SessionAttach(NAMES[0]),
        c.SessionCommandPoint(0, 0),
        *_asks_for("smoke-q"),
        sees=(
            c.SessionAttached(NAMES[0]),
            c.SessionCommandPoint(0, 0),
            *_asked_for("smoke-q", 0, c.QueueQueryResult()),
        ),
    ),
    turn(7, 0, synced(c.QueueDeclare("smoke-q")), sees=(Done(0, 2),)),
    turn(
        7,
        0,
        synced(
            c.MessageTransfer(""),
            c.DeliveryProperties(delivery_mode=1, routing_key="smoke-q"),
            HELLO_BODY,
            body=b"hello",
        ),
        sees=(Done(0, 3),),
    ),
    turn(
        7,
        0,
        c.MessageSubscribe("smoke-q", "0", 0, 0),
        synced(c.MessageSetFlowMode("0", c.FLOW_MODE_CREDIT)),
        sees=(Done(0, 5),),
    ),
    turn(
        7,
        0,
        c.MessageFlow("0", c.CREDIT_UNIT_BYTE, FOREVER),
        c.MessageFlow("0", c.CREDIT_UNIT_MESSAGE, 1),
        sees=(Message("0", b"hello", "smoke-q", {"k": 1, "qpid.subject": "x"}),),
    ),
    turn(7, 0, synced(c.ExecutionSync()), sees=(Done(0, 8),)),
    turn(7, 0, c.SessionCompleted(ids((0, 2))), synced(c.MessageAccept(ids(2))), sees=(Done(0, 9),)),
    turn(7, 0, *_asks_for("no-such-q"), sees=_asked_for("no-such-q", 10, c.QueueQueryResult())),
    turn(
        7,
        1,
        c.SessionAttach(NAMES[1]),
        c.SessionCommandPoint(0, 0),
        c.TxSelect(),
        sees=(c.SessionAttached(NAMES[1]), c.SessionCommandPoint(0, 0)),
    ),
    turn(7, 1, synced(c.ExecutionSync()), sees=(Done(0, 1),)),
    turn(
        7,
        1,
        synced(
            c.MessageTransfer(""),
            c.DeliveryProperties(routing_key="smoke-q"),
            c.MessageProperties(application_headers={}),
            body=b"tx",
        ),
        sees=(Done(0, 2),),
    ),
    turn(7, 1, synced(c.TxCommit()), sees=(Done(0, 3),)),
    turn(7, 0, c.MessageFlow("0", c.CREDIT_UNIT_MESSAGE, 1), sees=(Message("0", b"tx", "smoke-q"),)),
    turn(7, 0, synced(c.ExecutionSync()), sees=(Done(0, 13),)),
    turn(7, 0, c.SessionCompleted(ids((0, 5))), synced(c.MessageAccept(ids(5))), sees=(Done(0, 14),)),
    turn(
        7,
        0,
        *_asks_for("smoke-q"),
        sees=_asked_for("smoke-q", 15, c.QueueQueryResult("smoke-q", message_count=0, subscriber_count=1)),
    ),
    turn(7, 0, synced(c.QueueDelete("smoke-q")), sees=(Done(0, 17),)),
    turn(7, 0, synced(c.MessageCancel("0")), sees=(Done(0, 18),)),
    turn(7, 0, c.SessionDetach(NAMES[0]), sees=(c.SessionDetached(NAMES[0], 0),)),
    turn(7, 1, c.SessionDetach(NAMES[1]), sees=(c.SessionDetached(NAMES[1], 0),)),
    turn(7, 0, c.ConnectionClose(200), sees=(c.ConnectionCloseOk(),)),
]

LOW: Final = b"low-7f381030-ea1f-4bec-abc0-dc40117737e5"

PYTHON_LOW_LEVEL: Final = [
    *_hello(
        8,
        c.ConnectionStartOk(PYTHON_PROPERTIES, "PLAIN", b"\0guest\0guest"),
        c.ConnectionTuneOk(),
        c.ConnectionOpen(),
    ),
    turn(8, 1, c.SessionAttach(LOW), sees=(c.SessionAttached(LOW), c.SessionCommandPoint(0, 0))),
    turn(
        8,
        1,
        c.SessionCommandPoint(0, 0),
        synced(c.QueueDeclare("low-q", exclusive=True, auto_delete=True)),
        sees=(Done(0, 0),),
    ),
    turn(
        8,
        1,
        synced(c.MessageTransfer(), c.DeliveryProperties(routing_key="low-q"), body=b"body"),
        sees=(Done(0, 1),),
    ),
    turn(8, 1, synced(c.MessageSubscribe("low-q", "d")), sees=(Done(0, 2),)),
    turn(8, 1, synced(c.MessageSetFlowMode("d", c.FLOW_MODE_CREDIT)), sees=(Done(0, 3),)),
    turn(8, 1, synced(c.MessageFlow("d", c.CREDIT_UNIT_MESSAGE, FOREVER)), sees=(Done(0, 4),)),
    turn(
        8,
        1,
        synced(c.MessageFlow("d", c.CREDIT_UNIT_BYTE, FOREVER)),
        sees=(Done(0, 5), Message("d", b"body", "low-q")),
    ),
    turn(8, 1, c.SessionCompleted(SequenceSet()), synced(c.MessageAccept(ids(0))), sees=(Done(0, 6),)),
    *_goodbye(8, LOW),
]

CONVERSATIONS: Final = {
    "the C++ client sends, another receives": CPP_SEND + CPP_RECEIVE,
    "the C++ performance test": CPP_PERFTEST,
    "the Python messaging client": PYTHON_MESSAGING,
    "the low-level Python client": PYTHON_LOW_LEVEL,
}
