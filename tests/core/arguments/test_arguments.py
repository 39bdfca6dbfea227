"""The tables of arguments and policy keys hold together: each row fits the limits, the checks and the policies."""

from __future__ import annotations

from typing import Final

import attrs
import pytest

from leveret.arguments.exchange_arguments import EXCHANGE_ARGUMENTS
from leveret.arguments.policy_keys import OPERATOR_KEYS, POLICY_KEYS, PolicyKey
from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS, QueueArgument
from leveret.arguments.queue_declaration import inequivalent_argument, limits_of, parse_queue_arguments
from leveret.arguments.row import Effect, Row, by_name
from leveret.limits import QueueLimits, QueueType
from leveret.policy import effective_limits
from leveret.values import Table

ROWS: Final = list(QUEUE_ARGUMENTS.values())
KEYS: Final = list(POLICY_KEYS.values())
OF_THE_NODE: Final = {"counts_republished", "keeps_persistent"}  # by the profile, never by an argument
LIMITS: Final = [
    each
    for each in attrs.fields(QueueLimits)
    if not each.name.endswith("_asked") and each.name not in OF_THE_NODE
]
COMPANIONS: Final[dict[str, Table]] = {  # arguments that an example needs beside it
    "x-dead-letter-routing-key": {"x-dead-letter-exchange": "dead"},
    "x-dead-letter-strategy": {"x-dead-letter-exchange": "dead", "x-overflow": "reject-publish"},
    "x-fair-share": {"x-max-priority": 9},
}


def ids(row: Row) -> str:
    return row.name


def around(row: QueueArgument) -> Table:
    """Return the arguments of a queue of a type that knows an argument, without that."""
    kind = next(kind for kind in QueueType if kind in row.types)
    return {"x-queue-type": kind.value, **COMPANIONS.get(row.name, {})}


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_an_example_is_taken_and_changes_the_field_that_its_row_names(row: QueueArgument) -> None:
    without = around(row)
    arguments = {**without, row.name: row.example}
    before = limits_of(without)
    after = parse_queue_arguments("q", "/", True, False, False, arguments)
    changed = {each.name for each in LIMITS if getattr(before, each.name) != getattr(after, each.name)}
    assert changed == {row.field} - {""}
    read_elsewhere = {"x-queue-type", "x-internal-purpose"}  # by what makes queues, and by federation
    assert bool(row.field) == (row.effect is Effect.IMPLEMENTED and row.name not in read_elsewhere)


def test_every_limit_has_one_argument() -> None:
    assert sorted(row.field for row in ROWS if row.field) == sorted(each.name for each in LIMITS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.key and row.field], ids=ids)
def test_a_policy_key_sets_the_limit_of_its_argument(row: QueueArgument) -> None:
    said = effective_limits(QueueLimits(), {row.key: row.example})
    assert getattr(said, row.field) == getattr(limits_of({row.name: row.example}), row.field)


@pytest.mark.parametrize("row", [row for row in ROWS if row.field], ids=ids)
def test_a_row_reads_a_value_of_the_type_of_its_field(row: QueueArgument) -> None:
    value = row.read(row.example, COMPANIONS.get(row.name, {}))
    kind = QueueLimits.__annotations__[row.field].removesuffix(" | None").split("[")[0]
    assert type(value).__name__ == kind


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_s065_every_argument_in_the_table_is_compared_but_the_alternate_exchange(row: QueueArgument) -> None:
    difference = inequivalent_argument({}, {row.name: row.example})
    if row.name == "x-alternate-exchange":
        assert difference is None
        return
    assert difference is not None
    assert difference[0] == row.name


def test_operators_may_set_numbers_only_those_of_rabbitmq() -> None:
    assert set(OPERATOR_KEYS) == {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "delivery-limit",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "target-group-size",
        "delayed-retry-min",
        "delayed-retry-max",
    }
    assert all(key.check(1) is None and key.check("1") is not None for key in OPERATOR_KEYS.values())


@pytest.mark.parametrize("key", [key for key in KEYS if key.effect is Effect.NO_EFFECT], ids=ids)
def test_a_key_without_effect_changes_no_limit_and_has_no_field(key: PolicyKey) -> None:
    assert key.field == ""


@pytest.mark.parametrize("row", [*ROWS, *KEYS, *EXCHANGE_ARGUMENTS.values()], ids=ids)
def test_a_row_is_a_sentence_for_people(row: Row) -> None:
    assert row.about[0].isupper()
    assert row.about.endswith(".")
    assert row.instead == "" or (row.instead[0].islower() and row.instead[-1] != ".")


def test_a_name_has_one_row() -> None:
    with pytest.raises(ValueError, match="two rows"):
        by_name(Row(name="a", about="A."), Row(name="a", about="B."))
