"""Records of settings are compared, hashed and printed by their base, for all of them alike."""

from __future__ import annotations

import importlib
import pkgutil

import attrs
import pytest

import leveret.config
from leveret.config.records import Record, key
from leveret.config.types import Secret, Text


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Field(Record):
    """A field of carrots."""

    crop: str = key(Text(), "The crop.", "carrots")
    fence: str = key(Secret(), "The code of the gate.", "1234")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Meadow(Record):
    """The same keys."""

    crop: str = key(Text(), "The crop.", "carrots")
    fence: str = key(Secret(), "The code of the gate.", "1234")


def test_records_are_equal_if_their_class_and_all_values_are() -> None:
    assert Field() == Field(crop="carrots")
    assert Field() != Field(fence="4321")
    assert Field() != Meadow()
    assert Field() != ("carrots", "1234")


def test_equal_records_are_one_key() -> None:
    assert len({Field(), Field(crop="carrots"), Field(crop="clover"), Meadow()}) == 3


def test_a_record_is_printed_without_its_secrets() -> None:
    assert repr(Field(crop="clover")) == "Field(crop='clover')"
    assert attrs.evolve(Field(), fence="4321").fence == "4321"


def records() -> list[type[Record]]:
    for module in pkgutil.iter_modules(leveret.config.__path__, "leveret.config."):
        importlib.import_module(module.name)
    found, left = [], [Record]
    while left:
        found += (more := left.pop().__subclasses__())
        left += more
    return [each for each in found if each.__module__.startswith("leveret.config.")]


@pytest.mark.parametrize("record", records(), ids=lambda each: each.__name__)
def test_no_code_is_written_for_what_the_base_does(record: type[Record]) -> None:
    assert not {"__eq__", "__hash__", "__repr__"} & vars(record).keys()
    assert record.__eq__ is Record.__eq__
