"""The kind of the ids by which exchanges and queues drop duplicates in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.arguments.deduplication_settings import DeduplicationSettings
from leveret.catalogue import DEDUPLICATION
from leveret.durable.journal import Journal
from leveret.durable.kinds.kind import Kind
from leveret.durable.kinds.topology import outlives_node
from leveret.durable.restoration import spans_of
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import Unreadable, written_text
from leveret.exchanges.exchange_type import Exchange
from leveret.features.deduplication.deduplication import Deduplication, new_deduplication
from leveret.features.deduplication.deduplications import known_to
from leveret.features.deduplication.id_log import IdLog, records_in
from leveret.queues.queue import Queue
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.restoration import Restoration
    from leveret.durable.stored_catalogue import StoredCatalogue


def prepare(known: Deduplication, catalogue: StoredCatalogue) -> None:
    if known.wants_disk and outlives_node(known.owner) and not known.number:
        keep_ids(known, catalogue.journal, catalogue.number())


def is_kept(known: Deduplication) -> bool:
    return known.number != 0


def keep_ids(known: Deduplication, journal: Journal, number: int) -> None:
    log = journal.logs[number] = IdLog(journal, number, known.described, known.known_ids)
    known.keep_in(log, number)


def record_of(known: Deduplication) -> Json:
    settings = known.settings
    return {
        "number": known.number,
        "key": known.key.hex(),
        "header": written_text(settings.header),
        "size": settings.size,
        "ttl_ms": settings.ttl_ms,
    }


def restore(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, name, kind = restoration.host(names[0]), names[1], names[2]
    owners: Mapping[str, Exchange | Queue] = host.exchanges if kind == "exchange" else host.queues
    owner = owners.get(name)
    if owner is None:
        raise Unreadable(f"its {kind} is not there")
    size, ttl_ms = record.optional_whole("size"), record.optional_whole("ttl_ms")
    settings = DeduplicationSettings(record.text("header"), size, ttl_ms)
    key, number = key_in(record), record.number("number", least=1)
    known = known_to(owner)
    if known is None:  # by a policy of the configuration file, perhaps, which is read later
        known = new_deduplication(host, owner, settings)
        owner.deduplicate(known)
    known.key = key
    keep_ids(known, restoration.journal, number)
    restoration.has_number(number)


def key_in(record: ObjectRecord) -> bytes:
    """Return the key of the digests. Raises Unreadable."""
    try:
        return bytes.fromhex(record.text("key"))
    except ValueError:
        raise Unreadable("its key is not in hexadecimal digits") from None


def begin(broker: Broker) -> None:
    """Give exchanges and queues the ids that they knew."""
    owners: list[Exchange | Queue] = []
    for host in broker.hosts():
        owners += [*host.exchanges.values(), *host.queues.values()]
    known = {ids.number: ids for owner in owners if (ids := known_to(owner)) is not None and ids.number}
    if known:
        assert isinstance(broker.journal, Journal), "the ids come from its store"
        with broker.journal.store.reader() as reader:
            for number, spans in spans_of(broker.journal, known).items():
                known[number].take_back(records_in(reader, spans, known[number].described))


DEDUPLICATIONS: Final = Kind(
    DEDUPLICATION, 3, record_of, restore, prepare=prepare, is_kept=is_kept, begin=begin
)
