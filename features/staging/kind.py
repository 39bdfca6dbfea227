"""The kind of stagings in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.catalogue import STAGING
from leveret.durable.kinds.kind import Kind, give_number
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import written_text
from leveret.features.staging.staging import Staging, stagings_of
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.restoration import Restoration


def record_of(staging: Staging) -> Json:
    return {"number": staging.number, "user": written_text(staging.user)}


def restore(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, name = restoration.host(names[0]), names[1]
    staging = Staging(host, name, record.text("user"))
    restoration.number(staging, record)
    stagings_of(host)[name] = staging


def begin(broker: Broker) -> None:
    for host in broker.hosts():
        for staging in stagings_of(host).values():
            staging.begin()


STAGINGS: Final = Kind(STAGING, 2, record_of, restore, prepare=give_number, begin=begin)
