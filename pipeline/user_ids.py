"""Take the user out of properties as they were stored: another user may not publish under that name."""

from __future__ import annotations

from typing import Final, cast

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.codec.sections import APPLICATION, PROPERTIES, bounds
from leveret.protocols.amqp10.codec.types import Value, encode, value_at

USER: Final = 1  # place of the user-id among the properties of AMQP 1.0


def without_users(table: pa.Table, users: str, user: str) -> pa.Table:
    """Return rows without the column `users`, and without the user-id in raw properties where it is not `user`."""
    names, rest = table[users], table.drop_columns(users)
    others = pc.fill_null(pc.and_(pc.is_valid(rest["raw_properties"]), pc.not_equal(names, user)), False)
    if not pc.any(others).as_py():
        return rest
    rows = zip(
        rest["encoding"].to_pylist(), rest["raw_properties"].to_pylist(), others.to_pylist(), strict=True
    )
    made = [without_user(encoding, raw) if other else raw for encoding, raw, other in rows]
    at = rest.column_names.index("raw_properties")
    return rest.set_column(at, "raw_properties", pa.array(made, pa.binary()))


def without_user(encoding: str, properties: bytes) -> bytes:
    """Return properties without their user-id; all else stays as it is."""
    if encoding == AMQP10.name:
        return _without_user_10(properties)
    if encoding == AMQP010.name:
        return AMQP010.write(attrs.evolve(AMQP010.read(properties), user_id=None))
    return wire.edit_properties(properties, {"user_id": None})


def _without_user_10(properties: bytes) -> bytes:
    where = bounds(properties)
    begin, end = where[PROPERTIES], where[APPLICATION]
    _, at = value_at(properties, begin + 1, end)
    fields = cast("list[Value]", value_at(properties, at, end)[0])
    fields[USER] = None
    return properties[:at] + encode(fields) + properties[end:]
