"""`leveret log follow`: the lines before, those that come, and a node that starts anew meanwhile."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator, Mapping

import pytest

from leveret.server import cli
from leveret.server.cli.api import Api
from leveret.server.cli.node_log import followed, line
from leveret.server.node.logs import JsonLines, TextLines
from leveret.server.node.recent_log import RecentLog
from leveret.values import Json
from tests.server.cli.node import Memory, Node

FOLLOW = ["log", "follow"]


class Logging(Node):
    """A node whose log is in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.start_anew()

    def start_anew(self) -> None:
        self.log = RecentLog(JsonLines().line)
        node, log = self.broker.operations, self.log

        def lines(after: int, level: int, category: str, text: str, count: int) -> Mapping[str, Json] | None:
            return log.lines(after, level, category, text, count)

        assert node is not None
        node.log_lines = lines  # type: ignore[method-assign]

    def say(self, message: str, level: str = "INFO", name: str = "leveret.node", **more: object) -> None:
        number = logging.getLevelNamesMapping()[level]
        record = {"name": name, "levelname": level, "levelno": number, "msg": message, "created": 1e9}
        self.log.handle(logging.makeLogRecord({**record, **more}))

    def follow(self, *flags: str) -> Iterator[str]:
        """The messages that are followed; nobody waits in between."""
        options: argparse.Namespace = cli.parser({}).parse_args([*FOLLOW, *flags])
        for row in followed(options, Api(Memory(self)), lambda seconds: None):
            yield str(row["message"])


@pytest.fixture
def node() -> Logging:
    return Logging()


def test_lines_before_and_those_that_come_are_printed(node: Logging) -> None:
    for number in range(5):
        node.say(f"before {number}")
    following = node.follow("--lines", "2")
    assert [next(following), next(following)] == ["before 3", "before 4"]
    node.say("meanwhile 1")
    node.say("meanwhile 2")
    assert [next(following), next(following)] == ["meanwhile 1", "meanwhile 2"]


def test_a_node_that_does_not_answer_and_starts_anew_is_followed_on(
    node: Logging, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.say("before")
    node.say("before, too")
    options = cli.parser({}).parse_args([*FOLLOW, "--lines", "1"])
    asleep: list[float] = []

    def sleep(seconds: float) -> None:
        asleep.append(seconds)
        if len(asleep) == 1:
            node.requests_left = 0
        if len(asleep) == 4:
            node.requests_left = 100
            node.start_anew()
            node.say("after")

    following = followed(options, Api(Memory(node)), sleep)
    assert [str(next(following)["message"]) for _ in range(2)] == ["before, too", "after"]
    err = capsys.readouterr().err
    assert err.count("no node answers") == 1
    assert "the node has started anew" in err


def test_a_node_that_never_answers_is_exit_code_3(node: Logging) -> None:
    node.requests_left = 0
    assert node.run(*FOLLOW) == cli.UNREACHABLE


def test_lines_are_chosen_by_level_category_and_text(
    node: Logging, capsys: pytest.CaptureFixture[str]
) -> None:
    node.say("quiet", "DEBUG")
    node.say("of orders", "WARNING", "leveret.http", user="shop")
    node.say("loud", "ERROR")
    for flags, messages in (
        (("--level", "warning"), ["of orders", "loud"]),
        (("--category", "http"), ["of orders"]),
        (("--text", "ORDERS"), ["of orders"]),
        ((), ["quiet", "of orders", "loud"]),
    ):
        assert node.run(*FOLLOW, "--once", "--json", *flags) == cli.DONE
        rows = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
        assert [row["message"] for row in rows] == messages


def test_a_line_looks_as_in_a_log_of_text() -> None:
    try:
        raise ValueError("ours")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    for more in ({}, {"connection": "1.2.3.4:5", "user": "shop", "vhost": "/"}, {"exc_info": info}):
        said = {"name": "leveret.http", "levelname": "WARNING", "msg": "a\x1bb", "created": 1e9, **more}
        record = logging.makeLogRecord(said)
        assert line(JsonLines().line(record)) == TextLines().format(record)
