"""The contract of kinds: things become the store's records, and come back from them at a start.

    change    keep ──> prepare ──> is_kept ──> record ──> the journal
    start     store ──> found, for all ──> restore, kind by kind ──> messages are recovered ──> begin, kind by kind

A table of kinds, in which each stands behind those that it needs, is put together by what runs a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import attrs

from leveret.durable.store.records import Names, ObjectRecord
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.journal import Journal
    from leveret.durable.restoration import Restoration
    from leveret.durable.stored_catalogue import StoredCatalogue

T = TypeVar("T")


class Numbered(Protocol):
    """A thing with messages or notes of its own in the store, under a number."""

    @property
    def number(self) -> int:
        """The number; 0: it has none."""

    def keep_in(self, journal: Journal, number: int) -> None:
        """Called before its first use, and when it was restored."""


def give_number(thing: Numbered, catalogue: StoredCatalogue) -> None:
    catalogue.give_number(thing)


def is_numbered(thing: Numbered) -> bool:
    return thing.number != 0


@attrs.frozen
class Kind(Generic[T]):
    """One kind of things: how they are called in the store, and functions of which each is for one of them, or all."""

    name: str
    length: int  # how many names there are in a key, besides that of the kind
    record: Callable[[T], Json]  # returns what is stored under the key
    restore: Callable[[Restoration, Names, ObjectRecord], None]  # raises ValueError or a Failure
    layered: bool = False  # things may be in the configuration file, or by default
    prepare: Callable[[T, StoredCatalogue], None] = lambda thing, catalogue: (
        None
    )  # may give a thing its number
    is_kept: Callable[[T], bool] = lambda thing: True
    # Called for each key before anything is restored; returns the thing's place in its kind, raises Unreadable.
    found: Callable[[Restoration, Names], int] = lambda restoration, names: 0
    begin: Callable[[Broker], None] = lambda broker: None  # called once all things and messages are restored


Kinds: TypeAlias = tuple[Kind[Any], ...]
