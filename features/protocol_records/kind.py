"""The kind of protocol records in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.catalogue import PROTOCOL_RECORD
from leveret.durable.kinds.kind import Kind
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import written_table
from leveret.features.protocol_records.protocol_records import ProtocolRecord, records_of
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.durable.restoration import Restoration
    from leveret.durable.stored_catalogue import StoredCatalogue


def prepare(record: ProtocolRecord, catalogue: StoredCatalogue) -> None:
    if record.noted:
        catalogue.give_number(record)


def record_of(record: ProtocolRecord) -> Json:
    return {"number": record.number, "table": written_table(record.table)}


def restore(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, number = restoration.host(names[0]), record.number("number", least=0)
    found = ProtocolRecord(host, (names[1], names[2], names[3]), record.table("table"), noted=number > 0)
    if number:
        restoration.number(found, record)
    records_of(host).put(found)


PROTOCOL_RECORDS: Final = Kind(PROTOCOL_RECORD, 4, record_of, restore, prepare=prepare)
