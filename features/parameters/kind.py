"""The kinds of the parameters of shovels and federation in the store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.catalogue import COMPONENTS, Named
from leveret.durable.kinds.kind import Kind, Kinds
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import written_text
from leveret.features.parameters.components import component_of
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.durable.restoration import Restoration


def record_of(setting: Named[tuple[Json, str]]) -> Json:
    value, user = setting.value
    return {"value": value, "user": written_text(user)}


def restore(component: str, restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, name = names
    restoration.host(host)
    value, user = record.json("value"), record.text("user")
    component_of(restoration.broker, component).set(host, name, value, user)


PARAMETERS: Final[Kinds] = tuple(
    Kind(component, 2, record_of, partial(restore, component)) for component in COMPONENTS
)
