"""Definitions read an item at a time: the same as at once, whatever is in them, and never much between two looks."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.config.config import ConfigError
from leveret.config.types import Problem
from leveret.server.definitions import incremental_reader
from leveret.server.definitions.reader import Definitions, read_content

T = TypeVar("T")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
SPACES = st.sampled_from(["", " ", "\n\t", "\r\n"])


def ended(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What comes of it, and after how many steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def outcome(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return ValueError


def gradual(text: str) -> object:
    try:
        return ended(incremental_reader.parsed(text))[0]
    except ValueError:
        return ValueError


@given(VALUES, SPACES, st.sampled_from([None, 1]))
def test_json_is_what_the_library_reads(value: object, space: str, indent: int | None) -> None:
    assert gradual(space + json.dumps(value, indent=indent) + space) == value


@given(st.dictionaries(st.text(max_size=2), VALUES, max_size=3), st.data())
def test_what_the_library_refuses_is_refused(value: object, data: st.DataObject) -> None:
    """A text from which something was taken, or into which something was put."""
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    to = data.draw(st.integers(at, min(len(text), at + 2)))
    broken = (
        text[:at] + data.draw(st.sampled_from(["", ",", ":", "]", "}", "[", '"', " ", "1", "x"])) + text[to:]
    )
    assert gradual(broken) == outcome(broken)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{}x",
        "{} {}",
        '{"a"',
        '{"a":',
        '{"a":[',
        '{"a":[1',
        '{"a":[1,]}',
        '{"a":1,}',
        "{1:2}",
        "[1",
    ],
)
def test_what_is_cut_off_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whichever kind
        ended(incremental_reader.parsed(text))


def test_of_two_with_one_name_the_last_holds() -> None:
    assert gradual('{"a": [1], "a": [2, 3]}') == {"a": [2, 3]}


def test_others_have_a_turn_after_each_item() -> None:
    assert ended(incremental_reader.parsed('{"queues": [1, 2, 3], "users": [4], "x": 5}'))[1] == 5
    items = [{"name": str(number), "vhost": "/"} for number in range(7)]
    read, steps = ended(incremental_reader.records({"queues": items}))
    assert (len(read.queues), steps) == (7, 7)


GOOD = {
    "rabbit_version": "3.10.8",
    "vhosts": [{"name": "/"}],
    "users": [{"name": "u", "password_hash": "", "tags": "administrator"}],
    "queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": 3}}, {"name": "r", "vhost": "/"}],
    "policies": None,
}
PARTS = st.sampled_from(
    [None, 1, "x", [], {}, {"name": "q", "vhost": "/"}, {"name": 1}, {"vhost": "/", "arguments": []}, [[]]]
)
CONTENTS = st.dictionaries(
    st.sampled_from(["queues", "users", "vhosts", "bindings", "policies", "others", "others2"]),
    PARTS | st.lists(PARTS, max_size=4),
)


@given(CONTENTS | PARTS)
@example(GOOD)
def test_records_and_problems_are_those_of_reading_at_once(content: object) -> None:
    def at_once(content: object) -> Definitions | list[Problem]:
        try:
            return read_content(content)
        except ConfigError as error:
            return list(error.problems)

    def one_by_one(content: object) -> Definitions | list[Problem]:
        try:
            return ended(incremental_reader.records(content))[0]
        except ConfigError as error:
            return list(error.problems)

    first, second = at_once(content), one_by_one(content)
    if isinstance(first, Definitions) and isinstance(second, Definitions):
        assert {**known(first)} == {**known(second)}
    else:
        assert first == second


def known(read: Definitions) -> dict[str, object]:
    """All but the keys that nobody reads."""
    return {name: getattr(read, name) for name in incremental_reader.ITEMS}
