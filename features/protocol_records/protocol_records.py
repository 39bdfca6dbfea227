"""Records of protocols: tables by names, such as the sessions of clients, which are there again after a restart.

    front-end ── keep, forget ──> ProtocolRecords ──> the store
    front-end ── note, unnote ──> ProtocolRecord ───> its log, in one commit with the messages of the same batch

A record belongs to the protocol that made it, which alone knows what its table means. Its names are its collection, and
its own name within that. A record that is `noted` has numbers under names besides: a note and the messages or
settlements of the same batch are all there after a crash, or none of them. A table is on disk before the messages of
its batch if it is new, and after them if it takes the place of another. Without a store the records last as long as the
node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from leveret.catalogue import PROTOCOL_RECORD
from leveret.guests import Guest
from leveret.queues.stream_log import Log, MemoryLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.durable.journal import Journal
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost

RecordNames: TypeAlias = tuple[str, str, str]
"""The protocol, the collection, and the name of a record."""


class ProtocolRecord:
    """One record: a table, and notes if it has any."""

    __slots__ = ("_log", "ended", "host", "names", "noted", "number", "table")

    def __init__(self, host: VirtualHost, names: RecordNames, table: Table, noted: bool = False) -> None:
        self.host = host
        self.names = names
        self.table = table
        self.noted = noted
        self.number = 0  # of its log in the store; 0: it has none
        self.ended = False
        self._log: Log | None = MemoryLog() if noted else None

    @property
    def stored_as(self) -> tuple[str, ...]:
        return PROTOCOL_RECORD, self.host.name, *self.names

    @property
    def described(self) -> str:
        """The record as texts in the log name it."""
        protocol, collection, name = self.names
        return f"record '{name}' of the {collection} of protocol '{protocol}' in vhost '{self.host.name}'"

    def keep_in(self, journal: Journal, number: int) -> None:
        """Keep the notes in the store, under this number."""
        self.number = number
        self._log = journal.open_log(number, self.described, lambda: None)

    @property
    def notes(self) -> Mapping[str, int]:
        """The numbers by their names."""
        return {} if self._log is None else self._log.sequences

    def note(self, name: str, number: int) -> None:
        """Keep a number (0 or more) under a name, in the open commit. For a record that is `noted`."""
        if self._log is not None and not self.ended:
            self._log.note(name, number)

    def unnote(self, name: str) -> None:
        """Forget a number in the open commit; there may be none."""
        if self._log is not None and not self.ended:
            self._log.unnote(name)

    def change(self, table: Table) -> None:
        """Replace the table."""
        if table != self.table and not self.ended:
            self.table = table
            self.keep()

    def keep(self) -> None:
        """Write the record to the store, if there is one."""
        catalogue = self.host.broker.catalogue
        if catalogue is not None:
            catalogue.keep(self)

    def end(self) -> None:
        """Remove the record with its notes, in the open commit. A second call does nothing."""
        if self.ended:
            return
        self.ended = True
        records_of(self.host).remove(self)
        catalogue = self.host.broker.catalogue
        if catalogue is not None:
            catalogue.forget(self)
        if self._log is not None:
            self._log.end()


class ProtocolRecords(Guest):
    """The records of a virtual host, of all protocols."""

    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._found: dict[RecordNames, ProtocolRecord] = {}

    def of(self, protocol: str, collection: str) -> list[ProtocolRecord]:
        """Return the records of a collection, in the order in which they were made or restored."""
        return [each for each in self._found.values() if each.names[:2] == (protocol, collection)]

    def has_any(self, protocol: str) -> bool:
        """Return whether a protocol has records."""
        return any(names[0] == protocol for names in self._found)

    def take(self, protocol: str, collection: str) -> list[ProtocolRecord]:
        """Return the records of a collection, which are the caller's from now on: it keeps them with `write`."""
        found = self.of(protocol, collection)
        for record in found:
            self.remove(record)
        return found

    def write(self, names: RecordNames, table: Table) -> None:
        """Write a record to the store, in place of one of these names, for a caller that holds many by itself."""
        ProtocolRecord(self._host, names, table).keep()

    def erase(self, names: RecordNames) -> None:
        """Remove a record from the store that was written by `write`."""
        catalogue = self._host.broker.catalogue
        if catalogue is not None:
            catalogue.forget(ProtocolRecord(self._host, names, {}))

    def add(self, names: RecordNames, table: Table, noted: bool = False) -> ProtocolRecord:
        """Return a new record, which is kept from now on. There must be none of these names."""
        record = ProtocolRecord(self._host, names, table, noted)
        self.put(record)
        record.keep()
        return record

    def put(self, record: ProtocolRecord) -> None:
        """Put a record in place, as when it comes from the store."""
        self._found[record.names] = record

    def remove(self, record: ProtocolRecord) -> None:
        self._found.pop(record.names, None)

    def close(self) -> None:
        """Remove the records from the store, as the virtual host is deleted."""
        for record in list(self._found.values()):
            record.end()


def records_of(host: VirtualHost) -> ProtocolRecords:
    """Return the records of a virtual host."""
    return host.guest(ProtocolRecords)
