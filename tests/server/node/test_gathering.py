"""How to wait before reading: clients as functions of the length of a round, time passed in."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.server.node.gathering import (
    BUSY,
    GATHERING,
    GLANCE,
    LARGE,
    REST_MAX,
    REST_MIN,
    SAMPLE,
    SPIN_S,
    VAIN,
    Gathering,
    Phase,
)

ROUND_S = 0.00003
PAUSED_S = 0.00014
ASLEEP_S = 0.00006  # until the next input is noticed, with the time that waking up takes
AWAKE_S = 0.00003
MESSAGE = 200
# A client tells, from the length of the round, how many bytes it has written in it and how long the round took then.
Client = Callable[[float], tuple[int, float]]


def streams(length_s: float) -> tuple[int, float]:
    """Writes a message each 30 us."""
    return round(length_s / ROUND_S) * MESSAGE, length_s


def waits_for_its_answer(length_s: float) -> tuple[int, float]:
    return MESSAGE, length_s


def has_a_window_of_two(length_s: float) -> tuple[int, float]:
    """Two messages, and then it waits for the answer: with a pause it has more in a round, and less in a second."""
    return min(round(length_s / ROUND_S), 2) * MESSAGE, length_s


def writes_much(length_s: float) -> tuple[int, float]:
    return LARGE * round(length_s / ROUND_S), length_s


def writes_at_its_own_pace(length_s: float) -> tuple[int, float]:
    """A message each 60 us, however soon it is noticed."""
    return MESSAGE, max(length_s, ASLEEP_S)


class Loop:
    """Rounds with a client."""

    def __init__(self, busy: float = 0.9, wakes: bool = False, plain_s: float = ROUND_S) -> None:
        self.gathering = Gathering(wakes)
        self.busy = busy  # the part of the time that rounds take
        self.plain_s = plain_s  # the time of a round in which the node does not pause, and sleeps
        self.now = 100.0
        self.paused = self.awake = 0

    def go(self, client: Client, rounds: int) -> Loop:
        for _ in range(rounds):
            pauses = self.gathering.pauses
            self.paused += pauses
            self.awake += self.gathering.is_awake
            length_s = AWAKE_S if self.gathering.is_awake else self.plain_s
            octets, took_s = client(PAUSED_S if pauses else length_s)
            self.now += took_s
            self.gathering.heard(octets, self.now, took_s * self.busy)
        return self


def test_it_gathers_where_that_brings_more():
    loop = Loop().go(streams, REST_MIN + 2 * SAMPLE)
    assert loop.gathering.phase is Phase.GATHERING
    assert loop.paused == SAMPLE
    loop.go(streams, 20 * GATHERING)
    assert loop.paused / (20 * GATHERING) > 0.95


@pytest.mark.parametrize("client", [waits_for_its_answer, has_a_window_of_two, writes_much])
def test_it_rests_where_that_brings_nothing_and_longer_each_time(client: Client):
    loop = Loop().go(client, 10 * REST_MAX)
    assert loop.gathering.phase is not Phase.GATHERING
    assert loop.paused <= 15 * SAMPLE
    before = loop.paused
    loop.go(client, 10 * REST_MAX)
    assert loop.paused - before <= 10 * SAMPLE


def test_a_client_that_waits_for_its_answer_waits_a_few_times_longer():
    loop = Loop().go(waits_for_its_answer, REST_MIN + SAMPLE + GLANCE)
    assert (loop.gathering.phase, loop.paused) == (Phase.RESTING, GLANCE)
    loop.go(waits_for_its_answer, 2 * REST_MIN + SAMPLE + GLANCE)
    assert (loop.gathering.phase, loop.paused) == (Phase.RESTING, 2 * GLANCE)


def test_a_node_that_has_time_does_not_pause():
    assert Loop(busy=0.4).go(streams, 20 * REST_MAX).paused == 0


def test_large_reads_are_not_waited_for():
    assert Loop().go(writes_much, 20 * REST_MAX).paused == 0


@pytest.mark.parametrize("busy", [0.4, 0.9])
def test_it_stays_awake_for_a_client_that_waits_for_its_answer(busy: float):
    loop = Loop(busy, wakes=True, plain_s=ASLEEP_S).go(waits_for_its_answer, REST_MIN + 3 * SAMPLE)
    assert loop.gathering.phase is Phase.AWAKE
    assert loop.paused == (GLANCE if busy > BUSY else 0)
    loop.go(waits_for_its_answer, 20 * GATHERING)
    assert loop.awake / (20 * GATHERING) > 0.95


def test_it_sleeps_where_clients_are_no_quicker_for_it_and_tries_that_ever_more_seldom():
    loop = Loop(busy=0.4, wakes=True).go(writes_at_its_own_pace, 10 * REST_MAX)
    assert loop.gathering.phase is not Phase.AWAKE
    assert 0 < loop.awake <= 15 * SAMPLE


def test_it_stays_awake_for_one_that_takes_long_to_wake_up():
    """A machine may take ten times as long for that, and so the client as well as the node."""
    loop = Loop(busy=0.4, wakes=True, plain_s=SPIN_S * 0.9).go(waits_for_its_answer, REST_MIN + 3 * SAMPLE)
    assert loop.gathering.phase is Phase.AWAKE


@pytest.mark.parametrize(("gain", "phase"), [(1.2, Phase.RESTING), (1.4, Phase.AWAKE)])
def test_it_takes_more_to_stay_awake_for_few_rounds(gain: float, phase: Phase):
    def waits(length_s: float) -> tuple[int, float]:
        return MESSAGE, 0.001 / gain if length_s == AWAKE_S else 0.001

    loop = Loop(busy=0.4, wakes=True, plain_s=0.001).go(waits, REST_MIN + 2 * SAMPLE)
    assert loop.gathering.phase is phase


def test_it_hardly_stays_awake_for_what_comes_by_chance():
    """As many messages as before come in a second, but not in each sample."""
    chance = random.Random(5)

    def at_random(length_s: float) -> tuple[int, float]:
        return MESSAGE, chance.expovariate(1 / 0.0008)

    loop = Loop(busy=0.1, wakes=True).go(at_random, 1_000_000)
    assert 0 < loop.awake < 100_000


def test_it_is_over_when_nothing_came_a_few_times_in_a_row():
    loop = Loop(busy=0.4, wakes=True, plain_s=ASLEEP_S).go(waits_for_its_answer, REST_MIN + 3 * SAMPLE)
    for _ in range(VAIN - 1):
        loop.go(lambda length_s: (0, length_s), 1).go(waits_for_its_answer, 1)
    loop.go(lambda length_s: (0, length_s), VAIN - 1)
    assert loop.gathering.phase is Phase.AWAKE
    loop.go(lambda length_s: (0, length_s), 1)
    assert loop.gathering.phase is Phase.LOOKING


def test_it_is_over_when_clients_take_their_time_though_each_message_comes_while_it_is_awake():
    loop = Loop(busy=0.4, wakes=True, plain_s=0.0003).go(waits_for_its_answer, REST_MIN + 3 * SAMPLE)
    assert loop.gathering.phase is Phase.AWAKE
    before = loop.awake
    loop.go(lambda length_s: (MESSAGE, SPIN_S * 0.7), 20 * GATHERING)
    assert loop.awake - before <= 12 * SAMPLE, "a sample, and one each time that it is tried"


def test_it_sleeps_where_rounds_are_further_apart_than_it_could_stay_awake():
    loop = Loop(busy=0.1, wakes=True, plain_s=2 * SPIN_S).go(waits_for_its_answer, 4 * REST_MAX)
    assert loop.awake == 0


def test_it_sleeps_where_clients_have_no_other_processor():
    assert Loop(busy=0.4, plain_s=ASLEEP_S).go(waits_for_its_answer, 4 * REST_MAX).awake == 0


def test_it_stops_when_the_clients_change():
    loop = Loop().go(streams, REST_MIN + 2 * SAMPLE)
    loop.go(waits_for_its_answer, GATHERING + SAMPLE + GLANCE)
    assert loop.gathering.phase is Phase.RESTING
    loop.go(streams, REST_MAX + 2 * SAMPLE)
    assert loop.gathering.phase is Phase.GATHERING


def test_rounds_that_bring_nothing_are_no_reason_to_pause():
    assert Loop().go(lambda length_s: (0, length_s), 20 * REST_MAX).paused == 0


@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.floats(0, 1)), max_size=300), st.integers(0, 2 * REST_MIN)
)
def test_whatever_comes_it_pauses_for_a_bounded_number_of_rounds(reads: list[tuple[int, float]], first: int):
    loop = Loop().go(waits_for_its_answer, first)
    for octets, took_s in reads:
        loop.go(lambda _, octets=octets, took_s=took_s: (octets, took_s), 1)  # type: ignore[misc]
    paused = 0
    while loop.gathering.pauses:
        loop.go(lambda length_s: (0, length_s), 1)
        paused += 1
    assert paused <= SAMPLE + GATHERING, "the rest of a try, and what it has led to"
