"""The stored catalogue writes changes of things to the journal, in the order in which they are made.

What is durable, and its record, is up to its kind (`kinds/`).

Users, permissions, policies and virtual hosts have three layers, of which the highest holds:

    configuration file   read at each start; other changes of its objects last until the node ends
    store                objects made by clients and definitions files; a deleted default leaves `null`
    default              the user guest and the virtual host /, unless the file names users, or hosts
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leveret.catalogue import Catalogue, Kept, Origin
from leveret.durable.store.records import LAST_NUMBER, UNREADABLE, key_of, text_of

if TYPE_CHECKING:
    from leveret.durable.journal import Journal
    from leveret.durable.kinds.kind import Kinds, Numbered
    from leveret.values import Json


class StoredCatalogue(Catalogue):
    """The catalogue that writes to the journal. `restoration.py` sets what was found in the store."""

    def __init__(self, journal: Journal, kinds: Kinds) -> None:
        self.incomplete = False
        self.stored: set[str] = set()  # the keys in the store that have layers
        self.unreadable: dict[str, str] = {}  # objects in the store that could not be read, by key
        self.put_aside = 0  # how many of those were stored under other keys, to make room for new objects
        self.last_binding = 0
        self.protocols: dict[str, str] = {}  # those that do not come with Leveret, and where each came from
        self.journal = journal
        self._kinds = {kind.name: kind for kind in kinds}
        self._origin = Origin.CLIENT
        self._of_file: set[str] = set()
        self._of_default: set[str] = set()

    # Changes.

    def keep(self, thing: Kept) -> None:
        kind = self._kinds[thing.stored_as[0]]
        kind.prepare(thing, self)
        if kind.is_kept(thing):
            put = self._put_layered if kind.layered else self._put
            put(key_of(*thing.stored_as), kind.record(thing))

    def forget(self, thing: Kept) -> None:
        kind = self._kinds[thing.stored_as[0]]
        if kind.is_kept(thing):
            remove = self._forget_layered if kind.layered else self.journal.remove
            remove(key_of(*thing.stored_as))

    def number(self) -> int:
        """Return a new number, and store it, as entries of deleted queues may stay in the store for a while."""
        number = self.journal.next_queue
        self.journal.next_queue += 1
        self.journal.put(key_of(LAST_NUMBER), text_of(number))
        return number

    def give_number(self, thing: Numbered) -> None:
        """Give a thing a number and the journal, unless it has them."""
        if not thing.number:
            thing.keep_in(self.journal, self.number())

    # Layers.

    @contextmanager
    def told_by(self, origin: Origin) -> Iterator[None]:
        before, self._origin = self._origin, origin
        try:
            yield
        finally:
            self._origin = before

    def by_default(self, *names: str) -> bool:
        key = key_of(*names)
        self._of_file.discard(key)
        self._of_default.add(key)
        return key not in self.stored

    def has(self, *names: str) -> bool:
        return key_of(*names) in self.stored

    def _put_layered(self, key: str, record: Json) -> None:
        if self._origin is Origin.FILE:
            self._of_file.add(key)
            self._of_default.discard(key)
            self._remove_layered(key)
        elif self._origin is Origin.CLIENT and key not in self._of_file:
            self.stored.add(key)
            self._put(key, record)

    def _forget_layered(self, key: str) -> None:
        if self._origin is Origin.FILE:
            self._of_file.discard(key)
            self._of_default.discard(key)
        if self._origin is Origin.CLIENT and key in self._of_default:
            self.stored.add(key)
            self._put(key, None)
        else:
            self._remove_layered(key)

    def _remove_layered(self, key: str) -> None:
        if key in self.stored:
            self.stored.remove(key)
            self.journal.remove(key)

    def _put(self, key: str, record: Json) -> None:
        if (text := self.unreadable.pop(key, None)) is not None:
            self.put_aside += 1
            self.journal.put(key_of(UNREADABLE, key, str(self.put_aside)), text)
        self.journal.put(key, text_of(record))
