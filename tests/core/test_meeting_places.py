"""Each guest has a test, or a reason to do nothing, for each event of the contract, and the page has them all."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from scripts.meeting_places import MEETINGS, PAGE, REST, events, guests, page
from tests.sources import ROOT

GUESTS = {name: heard for name, _, heard in guests()}


@cache
def names_in(path: str) -> frozenset[str]:
    return frozenset(
        node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)
    )


def test_the_table_has_every_guest_and_no_other() -> None:
    assert MEETINGS.keys() == GUESTS.keys()
    assert len(GUESTS) >= 15


@pytest.mark.parametrize("name", sorted(GUESTS))
def test_what_a_guest_hears_of_has_a_test_and_a_sentence_and_the_rest_a_reason(name: str) -> None:
    heard, places = GUESTS[name], MEETINGS[name]
    assert places.keys() - {*events(), REST} == set()
    for event in events():
        place = places.get(event, places.get(REST, ""))
        path, is_test, test = place.partition("::")
        assert place, f"{event} is not decided"
        assert bool(is_test) == (event in heard), event
        if is_test:
            assert test in names_in(path), place
            assert heard[event].endswith("."), event
        else:
            assert place.endswith("."), event


def test_the_page_is_what_the_guests_say() -> None:
    assert PAGE.read_text() == page(), "make docs"
