"""The kind of the maps of links' unsettled deliveries in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.catalogue import UNSETTLED_MAP
from leveret.durable.kinds.kind import Kind, give_number
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import written_table
from leveret.features.unsettled_maps.unsettled_map import UnsettledMap, unsettled_maps_of
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.durable.restoration import Restoration


def record_of(unsettled: UnsettledMap) -> Json:
    return {"number": unsettled.number, "terms": written_table(unsettled.terms)}


def restore(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, (role, user, container, link) = restoration.host(names[0]), names[1:]
    unsettled = UnsettledMap(host, (role, user, container, link), record.table("terms"))
    restoration.number(unsettled, record)
    unsettled_maps_of(host)[unsettled.names] = unsettled


UNSETTLED_MAPS: Final = Kind(UNSETTLED_MAP, 5, record_of, restore, prepare=give_number)
