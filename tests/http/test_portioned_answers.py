"""Work for requests, a portion a turn: all requests together have one turn, and each its share of it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.protocols.http.connection import Later
from leveret.protocols.http.server.portioned_answers import PAUSE_S, TURN_S, PortionedAnswer
from leveret.values import Json

MANY = 20
PORTIONS = 3


class Stand:
    """A broker, and requests whose portions take as long as a turn."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.done: list[int] = []  # whose portions, in order

    def steps(self, number: int) -> Generator[float, None, Json]:
        for _ in range(PORTIONS):
            self.done.append(number)
            self.clock.advance(TURN_S)
            yield PAUSE_S
        return number

    def ask(self, number: int) -> Later:
        return PortionedAnswer(self.broker, self.steps(number)).begin()

    def turn(self) -> int:
        """How many portions are done before others have their turn."""
        before = len(self.done)
        self.clock.advance(PAUSE_S)
        self.broker.tick()
        self.broker.settle()
        return len(self.done) - before


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_request_that_is_alone_begins_at_once(stand: Stand) -> None:
    stand.ask(1)
    assert stand.done == [1]


def test_many_requests_take_no_longer_a_turn_than_one(stand: Stand) -> None:
    for number in range(MANY):
        stand.ask(number)
    assert stand.done == [0]
    assert {stand.turn() for _ in range(MANY * PORTIONS - 1)} == {1}


def test_each_has_a_portion_before_any_has_the_next(stand: Stand) -> None:
    for number in range(MANY):
        stand.ask(number)
    while stand.turn():
        pass
    assert stand.done == [*range(MANY)] * PORTIONS


def test_whoever_hangs_up_leaves_the_line(stand: Stand) -> None:
    first, second = stand.ask(1), stand.ask(2)
    second.dropped()
    while stand.turn():
        pass
    assert stand.done == [1] * PORTIONS
    first.dropped()
    stand.ask(3)  # alone again
    assert stand.done[-1] == 3
