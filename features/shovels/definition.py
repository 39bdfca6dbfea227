"""The parameter of a shovel, as RabbitMQ has it, to a checked definition.

Source: RabbitMQ's documentation of dynamic shovels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.features.shovels.overwrites import KEYS as OVERWRITES
from leveret.features.shovels.overwrites import overwrites_of
from leveret.features.shovels.publish_properties import NAME as PROPERTIES
from leveret.features.shovels.publish_properties import changes_of
from leveret.features.transfers.definition import AMQP091, AMQP10, Definition, EndSettings
from leveret.features.transfers.parameter_reader import (
    QUEUE_LENGTH,
    ParameterReader,
    object_in,
    require_known,
)
from leveret.values import Json

ADDRESS_MAX: Final = 4096  # bytes
LOCAL: Final = "local"  # this node; where the URI names none
SPOKEN: Final = (AMQP091, AMQP10, LOCAL)
# Older names of keys.
ALIASES: Final = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
ENDS: Final = ("src", "dest")
BOTH: Final = (
    "ack-mode",
    "reconnect-delay",
    *(f"{end}-{key}" for end in ENDS for key in ("protocol", "uri")),
    "src-delete-after",
    "src-prefetch-count",
    "dest-add-forward-headers",
    "dest-add-timestamp-header",
)
# The keys of an end by its protocol.
OF_QUEUES: Final = {
    "src": (
        *(f"src-{key}" for key in ("queue", "queue-args", "predeclared", "exchange", "exchange-key")),
        "src-consumer-args",
    ),
    "dest": (
        *(f"dest-{key}" for key in ("queue", "queue-args", "predeclared", "exchange", "exchange-key")),
        PROPERTIES,
    ),
}
OF_ADDRESSES: Final = {"src": ("src-address",), "dest": ("dest-address", *OVERWRITES)}
KEYS: Final = (*BOTH, *(key for end in ENDS for key in (*OF_QUEUES[end], *OF_ADDRESSES[end])))


def definition_of(value: Json) -> Definition:
    """Read the value of a parameter. Raises PreconditionFailed for the first thing that is wrong."""
    fields = _known(object_in(value, "a shovel"))
    parameter = ParameterReader(fields)
    ack_mode = parameter.ack_mode()
    source, destination = (_end(end, parameter, fields) for end in ENDS)
    delete_after = parameter.delete_after()
    if source.protocol == AMQP10 and delete_after == QUEUE_LENGTH:
        raise PreconditionFailed(
            f"key 'src-delete-after' cannot be '{QUEUE_LENGTH}': AMQP 1.0 does not tell how many messages wait"
        )
    return Definition(
        source,
        destination,
        ack_mode,
        parameter.prefetch("src-prefetch-count"),
        parameter.table("src-consumer-args"),
        delete_after,
        parameter.reconnect_s(),
        parameter.flag("dest-add-forward-headers"),
        parameter.flag("dest-add-timestamp-header"),
        properties=changes_of(parameter.table(PROPERTIES)),
        overwrites=overwrites_of(parameter),
    )


def _end(end: str, parameter: ParameterReader, fields: Mapping[str, Json]) -> EndSettings:
    """Return an end, which has the keys of its protocol only. Raises PreconditionFailed."""
    protocol = parameter.one_of(f"{end}-protocol", AMQP091, *SPOKEN)
    for key in OF_QUEUES[end] if protocol == AMQP10 else OF_ADDRESSES[end]:
        if fields.get(key) is not None:
            raise PreconditionFailed(f"key '{key}' is not for an end with the protocol {protocol}")
    return _at_address(end, parameter) if protocol == AMQP10 else _at_queue(end, parameter)


def _at_address(end: str, parameter: ParameterReader) -> EndSettings:
    uris, address = parameter.uris(f"{end}-uri"), parameter.text(f"{end}-address", ADDRESS_MAX)
    if address is None:
        raise PreconditionFailed(f"must specify '{end}-address'")
    if any(uri.is_local for uri in uris):
        raise PreconditionFailed(
            f"key '{end}-uri' has no host: on this node a shovel has '{end}-queue' or '{end}-exchange'"
        )
    return EndSettings(uris, address=address)


def _at_queue(end: str, parameter: ParameterReader) -> EndSettings:
    found = parameter.end(end)
    if end == "src" and (found.queue is None) == (found.exchange is None):
        raise PreconditionFailed("must specify either 'src-queue' or 'src-exchange'")
    if found.queue is not None and found.exchange is not None:
        raise PreconditionFailed("cannot specify both 'dest-queue' and 'dest-exchange'")
    return found


def _known(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return the value with today's names of keys. Raises PreconditionFailed for unknown ones."""
    fields: dict[str, Json] = {}
    for name, item in value.items():
        key = ALIASES.get(name, name)
        require_known(key, KEYS)
        fields[key] = item
    return fields
