"""The records of MQTT in a virtual host: sessions and retained messages, as they are kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.features.protocol_records.protocol_records import ProtocolRecord as ProtocolRecord
from leveret.features.protocol_records.protocol_records import records_of
from leveret.protocols.mqtt.broker.registration import NAME

if TYPE_CHECKING:
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost

SESSIONS: Final = "sessions"  # by client id
RETAINED: Final = "retained"  # by the digest of the topic


def new_record(
    host: VirtualHost, collection: str, name: str, table: Table, noted: bool = False
) -> ProtocolRecord:
    """Return a new record, which is kept from now on."""
    return records_of(host).add((NAME, collection, name), table, noted)


def records_in(host: VirtualHost, collection: str) -> list[ProtocolRecord]:
    """Return the records of a collection, in the order in which they were made or restored."""
    return records_of(host).of(NAME, collection)


def records_taken(host: VirtualHost, collection: str) -> list[ProtocolRecord]:
    """Return the records of a collection, which the caller holds from now on."""
    return records_of(host).take(NAME, collection)


def write(host: VirtualHost, collection: str, name: str, table: Table) -> None:
    """Write a record that the caller holds to the store."""
    records_of(host).write((NAME, collection, name), table)


def erase(host: VirtualHost, collection: str, name: str) -> None:
    """Remove a record that the caller held from the store."""
    records_of(host).erase((NAME, collection, name))
