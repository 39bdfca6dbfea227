"""S242: topic, headers, fanout and direct mean over 0-10 what they mean over 0-9-1: one core routes for both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec.methods import QueueBind, QueueBindOk
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .client import ClientSession
from .peer import session_of

QUEUES = ("a", "b", "c", "d")


class Both:
    """The same queues bound over 0-10, and published to over both protocols."""

    def __init__(self, exchange: str) -> None:
        self.bench = ClientBench()
        self.exchange = exchange
        self.session: ClientSession = session_of(self.bench)
        self.channel = channel_of(self.bench)
        for queue in QUEUES:
            self.session.declare(queue)

    def bind(self, queue: str, key: str = "", arguments: dict | None = None) -> None:
        self.session.bind(queue, self.exchange, key, arguments)

    def reached(self, key: str, headers: dict | None = None) -> set[str]:
        """Which queues a message reaches, over either protocol."""
        properties = c.MessageProperties(application_headers=headers) if headers else None
        self.session.publish(key, b"", self.exchange, properties)
        self.session.sync()
        over_010 = self._taken()
        self.channel.publish(self.exchange, key, b"", BasicProperties(headers=headers))
        over_091 = self._taken()
        assert over_010 == over_091
        return over_010

    def _taken(self) -> set[str]:
        """No queue gets a message twice."""
        counts = {queue: self.bench.queue(queue).purge() for queue in QUEUES}
        assert set(counts.values()) <= {0, 1}
        return {queue for queue, count in counts.items() if count}


def test_s242_direct_compares_keys() -> None:
    both = Both("amq.direct")
    both.bind("a", "red")
    both.bind("b", "red")
    both.bind("b", "blue")
    assert both.reached("red") == {"a", "b"}
    assert both.reached("blue") == {"b"}
    assert both.reached("r*d") == both.reached("") == set()


def test_s242_fanout_reaches_all() -> None:
    both = Both("amq.fanout")
    both.bind("a", "red")
    both.bind("b")
    both.bind("b", "again")
    assert both.reached("anything") == {"a", "b"}


def test_s242_the_default_exchange_knows_queues_by_their_names() -> None:
    both = Both("")
    assert both.reached("a") == {"a"}
    assert both.reached("nowhere") == set()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("stock", {"c"}),
        ("stock.ibm", {"a", "b", "c"}),
        ("stock.ibm.nyse", {"b", "c"}),
        ("bond.ibm", {"c", "d"}),
        ("", {"c"}),
        ("stock.", {"a", "b", "c"}),
    ],
)
def test_s242_topic_matches_words(key: str, expected: set[str]) -> None:
    both = Both("amq.topic")
    for queue, pattern in (("a", "stock.*"), ("b", "stock.*.#"), ("c", "#"), ("d", "bond.ibm")):
        both.bind(queue, pattern)
    assert both.reached(key) == expected


WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=4).map(".".join)


@settings(max_examples=50, deadline=None)
@given(st.lists(WORDS, min_size=4, max_size=4), WORDS)
def test_s242_topics_are_the_same_over_both_whatever_the_pattern(patterns: list[str], key: str) -> None:
    both = Both("amq.topic")
    for queue, pattern in zip(QUEUES, patterns, strict=True):
        both.bind(queue, pattern)
    both.reached(key)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"color": "red", "size": 5}, {"a", "b", "c"}),
        ({"color": "red"}, {"b", "c"}),
        ({"size": 5}, {"b"}),
        ({"color": "blue"}, {"c"}),
        ({"size": "5"}, set()),
        ({}, set()),
    ],
)
@pytest.mark.parametrize("exchange", ["amq.match", "amq.headers"])
def test_s242_headers_match_all_or_any(exchange: str, headers: dict, expected: set[str]) -> None:
    both = Both(exchange)
    both.bind("a", "1", {"x-match": "all", "color": "red", "size": 5})
    both.bind("b", "2", {"x-match": "any", "color": "red", "size": 5})
    both.bind("c", "3", {"x-match": "any", "color": None})
    assert both.reached("ignored", headers) == expected


def test_s242_a_binding_of_either_protocol_serves_both() -> None:
    both = Both("amq.match")
    arguments = {"x-match": "all", "n": 7}
    answer = both.channel.call(QueueBind("d", "amq.match", "", False, arguments))
    assert isinstance(answer, QueueBindOk)
    assert both.reached("", {"n": 7}) == {"d"}
    assert both.reached("", {"n": 8}) == set()
