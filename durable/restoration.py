"""Restore all things in the store at a start, by the kind of each (`kinds/`).

No object is refused that was there: if its declaration would be refused today, that is logged, and the object comes
back as it was. A virtual host comes back if anything in it does. Unreadable objects are logged and stay in the store;
the rest comes back without them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.durable.store.records import (
    LAST_NUMBER,
    PROTOCOL,
    UNREADABLE,
    Names,
    ObjectRecord,
    json_in,
    names_in,
)
from leveret.durable.store.typed_json import Unreadable
from leveret.durable.stored_catalogue import StoredCatalogue
from leveret.errors import Failure
from leveret.memory_tuning import no_collection

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.journal import Journal
    from leveret.durable.kinds.kind import Kind, Kinds, Numbered
    from leveret.durable.store.contract import Span
    from leveret.values import Json
    from leveret.virtual_host import VirtualHost

log: Final = logging.getLogger("leveret.store")

Found: TypeAlias = "tuple[int, str]"
"""The place of a thing among those of its kind, and its key."""


def restore(broker: Broker, journal: Journal, kinds: Kinds) -> None:
    """Restore all things in the journal's store, and keep changes from now on. Raises StoreError."""
    restoration = Restoration(broker, journal, kinds)
    with no_collection():
        restoration.read()
        restoration.put_in_place()
    broker.keep_in(restoration.catalogue)


def begin(broker: Broker, kinds: Kinds) -> None:
    """Have what was restored begin to work. Called when messages are restored, too."""
    broker.tick()
    for kind in kinds:
        kind.begin(broker)


def spans_of(journal: Journal, numbers: Iterable[int]) -> dict[int, list[Span]]:
    """Return the segments of logs by their numbers. Those in the store are looked through once for all."""
    spans: dict[int, list[Span]] = {number: [] for number in numbers}
    for span in journal.store.spans() if spans else ():
        if span.stream in spans:
            spans[span.stream].append(span)
    return spans


class Restoration:
    """The restoration of all things at one start."""

    def __init__(self, broker: Broker, journal: Journal, kinds: Kinds) -> None:
        self.catalogue = StoredCatalogue(journal, kinds)
        self.broker = broker
        self.journal = journal
        self._kinds = {kind.name: kind for kind in kinds}
        self._texts: dict[str, str] = {}  # by key, until the thing is in place: there may be a million
        self._found: dict[str, list[Found]] = {name: [] for name in self._kinds}

    # For kinds.

    def host(self, name: str) -> VirtualHost:
        """Return a virtual host; it comes back if anything in it does."""
        return self.broker.add_virtual_host(name)

    def number(self, thing: Numbered, record: ObjectRecord, field: str = "number") -> None:
        """Give a thing the number in its record again. Raises Unreadable."""
        thing.keep_in(self.journal, record.number(field, least=1))
        self.has_number(thing.number)

    def has_number(self, number: int) -> None:
        """Note that a number is used."""
        self.journal.next_queue = max(self.journal.next_queue, number + 1)

    # What is in the store.

    def read(self) -> None:
        """Read all objects, and sort them by kind."""
        self._texts = dict(self.journal.store.objects())
        for key, text in self._texts.items():
            try:
                self._sort_in(key, text)
            except Unreadable as unreadable:
                self._pass_over(key, unreadable)

    def _sort_in(self, key: str, text: str) -> None:
        name, *names = names_in(key)
        if name == LAST_NUMBER and not names:
            number = json_in(text)
            self.has_number(number if isinstance(number, int) else 0)
            return
        if name == PROTOCOL and len(names) == 1:
            self.catalogue.protocols[names[0]] = ObjectRecord(json_in(text)).text("source")
            return
        if name == UNREADABLE and len(names) == 2:
            self.catalogue.put_aside += 1
            raise Unreadable("it was unreadable at an earlier start")
        kind = self._kinds.get(name)
        if kind is None or len(names) != kind.length:
            raise Unreadable("no known kind of object has such a key")
        place = kind.found(self, tuple(names))
        self._found[name].append((place, key))

    def put_in_place(self) -> None:
        for name, kind in self._kinds.items():
            for _, key in sorted(self._found.pop(name), key=itemgetter(0)):
                try:
                    self._put(kind, key, names_in(key)[1:], json_in(self._texts[key]))
                except Unreadable as unreadable:
                    self._pass_over(key, unreadable)
                self._texts.pop(key, None)

    def _put(self, kind: Kind[Any], key: str, names: Names, record: Json) -> None:
        if kind.layered:
            self.catalogue.stored.add(key)
            if record is None:  # a default that has been deleted
                return
        try:
            kind.restore(self, names, ObjectRecord(record))
        except (ValueError, Failure, RecursionError) as fault:
            self._pass_over(key, fault)

    def _pass_over(self, key: str, why: Exception) -> None:
        self.catalogue.unreadable[key] = self._texts[key]
        self.catalogue.incomplete = True
        log.error("passed over, and left in the store: %s: %s", key, why)
