"""The parameter of a shovel, as RabbitMQ has it, to a checked definition.

Source: RabbitMQ's documentation of dynamic shovels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.features.shovels.publish_properties import NAME as PROPERTIES
from leveret.features.shovels.publish_properties import changes_of
from leveret.features.transfers.definition import Definition
from leveret.features.transfers.parameter_reader import ParameterReader, object_in, require_known
from leveret.values import Json

SPOKEN: Final = ("amqp091", "local")
# Older names of keys.
ALIASES: Final = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
KEYS: Final = (
    "ack-mode",
    "reconnect-delay",
    *(
        f"{end}-{key}"
        for end in ("src", "dest")
        for key in ("protocol", "uri", "queue", "queue-args", "predeclared")
    ),
    *(f"{end}-{key}" for end in ("src", "dest") for key in ("exchange", "exchange-key")),
    "src-consumer-args",
    "src-delete-after",
    "src-prefetch-count",
    "dest-add-forward-headers",
    "dest-add-timestamp-header",
    "dest-publish-properties",
)


def definition_of(value: Json) -> Definition:
    """Read the value of a parameter. Raises PreconditionFailed for the first thing that is wrong."""
    parameter = _known(object_in(value, "a shovel"))
    ack_mode = parameter.ack_mode()
    for end in ("src", "dest"):
        parameter.one_of(f"{end}-protocol", "amqp091", *SPOKEN)
    source, destination = parameter.end("src"), parameter.end("dest")
    if (source.queue is None) == (source.exchange is None):
        raise PreconditionFailed("must specify either 'src-queue' or 'src-exchange'")
    if destination.queue is not None and destination.exchange is not None:
        raise PreconditionFailed("cannot specify both 'dest-queue' and 'dest-exchange'")
    reconnect_s = parameter.reconnect_s()
    return Definition(
        source,
        destination,
        ack_mode,
        parameter.prefetch("src-prefetch-count"),
        parameter.table("src-consumer-args"),
        parameter.delete_after(),
        reconnect_s,
        parameter.flag("dest-add-forward-headers"),
        parameter.flag("dest-add-timestamp-header"),
        properties=changes_of(parameter.table(PROPERTIES)),
    )


def _known(value: Mapping[str, Json]) -> ParameterReader:
    """Return the value with today's names of keys. Raises PreconditionFailed for unknown ones."""
    fields: dict[str, Json] = {}
    for name, item in value.items():
        key = ALIASES.get(name, name)
        require_known(key, KEYS)
        fields[key] = item
    return ParameterReader(fields)
