"""A fixed script cut off at some of its system calls; `make points` takes every one of them."""

from __future__ import annotations

import pytest

from tests.harness.plain import plain_only
from tests.harness.seldom import elsewhere, planted

from .cuts import Fate
from .ledger import kinds
from .planted import program
from .points import Prepared, kill_after, kill_at, kill_start_at, record
from .tracing import why_not

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

EVERY = 83  # a prime: each kind of call has its turn


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="module")
def traced(prepared: Prepared) -> Prepared:
    """For those who need strace."""
    if reason := why_not():
        pytest.skip(reason)
    return prepared


@pytest.mark.parametrize("number", [1, 90, *(pytest.param(each, marks=elsewhere) for each in (260, 450))])
def test_nothing_promised_is_lost_when_a_node_is_killed_at_a_system_call(traced: Prepared, number: int):
    assert kill_at(traced, number) == []


@pytest.mark.parametrize("number", [3, *(pytest.param(each, marks=elsewhere) for each in (1, 6))])
def test_nothing_is_lost_when_a_node_is_killed_while_it_starts(traced: Prepared, number: int):
    assert kill_start_at(traced, number) == []


def test_nothing_promised_is_lost_when_the_power_is_cut_at_a_system_call(traced: Prepared):
    recording = record(traced)
    count = len(recording.calls)
    assert count > 500, "the script does something"
    numbers = {*range(0, count, EVERY), count}
    assert [complaint for found in recording.cuts(traced.place / "cut", numbers) for complaint in found] == []


@planted
@pytest.mark.parametrize(
    ("bug", "step", "expected"),
    [
        ("no_acks", "ack", "BACK"),
        ("no_flags", "ack", "FLAG"),
        ("no_marks", "give_back", "COUNT"),
        ("no_deaths", "reject", "DEATH"),
        ("lose_when_rewriting", "rewrite", "LOST"),
    ],
)
def test_killing_a_node_after_a_step_finds_a_planted_mistake(
    prepared: Prepared, bug: str, step: str, expected: str
):
    assert kill_after(prepared, step) == []
    assert expected in kinds(kill_after(prepared, step, program(bug)))


@planted
@pytest.mark.parametrize(
    ("bug", "step", "fate", "expected"),
    [
        ("no_sync", "publish_everywhere", Fate.LOST, "LOST"),
        pytest.param("transactions_in_two", "commit", Fate.KEPT, "HALF", marks=plain_only),
        ("ack_before_message", "reject", Fate.KEPT, "LOST"),
    ],
)
def test_cutting_the_power_finds_a_planted_mistake(
    traced: Prepared, bug: str, step: str, fate: Fate, expected: str
):
    recording = record(traced, program(bug), until=step)
    calls = recording.calls_of(step)
    numbers = range(calls.start, calls.stop + 1)
    found = recording.cuts(traced.place / "cut", numbers, [fate])
    assert any(expected in " ".join(complaints) for complaints in found)
