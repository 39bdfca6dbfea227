"""The log's lines: the same in both forms, one line each, with whose input it was about."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, cast

from leveret.broker import Broker
from leveret.observability.connection_stats import ConnectionFacts
from leveret.server.node.admin import NodeAdmin
from leveret.server.node.logs import TRACEBACK, JsonLines, TextLines, Whose
from tests.harness.http import FakeNode
from tests.metrics.stand import Front, Link

if TYPE_CHECKING:
    from leveret.server.node.node import Node

FACTS = ConnectionFacts(protocol="AMQP 0-9-1", user="shop", virtual_host="/")
NAME = "127.0.0.1:7 -> 127.0.0.1:5672"


def record(message: str = "login refused", **more: object) -> logging.LogRecord:
    said = {"name": "leveret.amqp091", "levelname": "WARNING", "msg": message, "created": 1e9 + 0.0625}
    return logging.makeLogRecord({**said, **more})


def test_both_forms_say_the_same() -> None:
    said = record(connection=NAME, user="shop", vhost="/")
    assert json.loads(JsonLines().format(said)) == {
        "time": "2001-09-09T01:46:40.062Z",
        "level": "warning",
        "logger": "leveret.amqp091",
        "message": "login refused",
        "connection": NAME,
        "user": "shop",
        "vhost": "/",
    }
    assert TextLines().format(said) == (
        "2001-09-09T01:46:40.062Z WARNING leveret.amqp091: login refused "
        f'connection="{NAME}" user="shop" vhost="/"'
    )


def test_times_have_three_digits_behind_the_second_also_when_they_are_0() -> None:
    assert TextLines().format(record(created=1e9)).startswith("2001-09-09T01:46:40.000Z ")


def test_text_does_not_repeat_what_the_message_names() -> None:
    line = TextLines().format(record(f"{NAME}: closed", connection=NAME, user="shop"))
    assert line.endswith(f': {NAME}: closed user="shop"')


def test_a_line_is_one_line_whoever_has_made_it() -> None:
    said = record("a\nb\u2028", connection="x\ny")
    for line in (TextLines().format(said), JsonLines().format(said)):
        assert line.isprintable()


def test_an_exception_of_ours_is_in_both() -> None:
    try:
        raise ValueError("ours")
    except ValueError:
        said = record(exc_info=sys.exc_info())
    assert "ValueError: ours" in TextLines().format(said)
    assert "ValueError: ours" in json.loads(JsonLines().format(said))["exception"]


def test_a_traceback_that_is_text_has_the_shape_of_one_that_is_raised() -> None:
    try:
        raise ValueError("ours")
    except ValueError:
        raised = record("plugin refused", exc_info=sys.exc_info())
    trace = JsonLines().line(raised)["exception"]
    told = record("plugin refused", **{TRACEBACK: trace})
    assert TextLines().format(told) == TextLines().format(raised)
    assert TextLines().format(told).splitlines()[1:] == trace.splitlines()
    assert JsonLines().format(told) == JsonLines().format(raised)


class Due(NodeAdmin):
    """As much of a node as tells whose input is worked off."""

    def __init__(self, broker: Broker, node: FakeNode) -> None:
        self._broker, self._node = broker, cast("Node", node)


def test_a_line_of_a_timer_names_no_client() -> None:
    node, broker = FakeNode(), Broker()
    node.fed = Link(7, Front(FACTS))
    whose, said = Whose(Due(broker, node)), []

    def log_it(now: float) -> None:
        said.append(record())
        whose.filter(said[-1])

    log_it(0)
    broker.timers.at(0, log_it)
    broker.settle()
    log_it(0)
    assert [getattr(each, "connection", None) for each in said] == [NAME, None, NAME]


def test_a_record_is_of_whose_input_is_worked_off() -> None:
    node = FakeNode()
    whose = Whose(node)
    before, during, other = record(), record(), record(connection="his own")
    assert whose.filter(before)
    node.fed = Link(7, Front(FACTS))
    assert whose.filter(during)
    assert whose.filter(other)
    assert [getattr(during, name) for name in ("connection", "user", "vhost")] == [NAME, "shop", "/"]
    assert (hasattr(before, "connection"), hasattr(other, "user")) == (False, False)


def test_a_record_of_somebody_who_has_not_logged_in_has_his_connection_only() -> None:
    node = FakeNode()
    node.fed = Link(7, Front(None))
    said = record()
    Whose(node).filter(said)
    assert (said.__dict__["connection"], "user" in said.__dict__) == (NAME, False)


def test_a_record_of_another_thread_is_nobodys() -> None:
    node = FakeNode()
    node.fed = Link(7, Front(FACTS))
    said = record(thread=0)
    Whose(node).filter(said)
    assert not hasattr(said, "connection")
