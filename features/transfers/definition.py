"""The settings of a transfer, checked: those of a shovel, or of a link of a federation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import attrs

from leveret.config.amqp_uri import Uri
from leveret.values import Table


class AckMode(Enum):
    """The moments at which a message may leave the source."""

    ON_CONFIRM = "on-confirm"  # when the destination has confirmed it
    ON_PUBLISH = "on-publish"  # when it has been published
    NO_ACK = "no-ack"  # when it is delivered


AMQP091: Final = "amqp091"
AMQP10: Final = "amqp10"


@attrs.frozen
class EndSettings:
    """One end of a shovel: it has an address if it speaks AMQP 1.0, and else a queue or an exchange."""

    uris: tuple[Uri, ...]
    queue: str | None = None
    exchange: str | None = None
    key: str | None = None
    arguments: Table = attrs.field(factory=dict)  # of the queue, if it has to be declared
    predeclared: bool = False  # a missing queue is not declared
    address: str | None = None

    @property
    def protocol(self) -> str:
        return AMQP091 if self.address is None else AMQP10


@attrs.frozen
class Overwrites:
    """Properties, application-properties and message-annotations that each message gets at an end of AMQP 1.0."""

    properties: Mapping[str, str | int]
    application: Mapping[str, str | int | float | bool]
    annotations: Mapping[str, str | int | float | bool]


@attrs.frozen
class Definition:
    """The settings of a shovel, checked."""

    source: EndSettings
    destination: EndSettings
    ack_mode: AckMode
    prefetch: int  # the most messages that are on their way
    consumer_arguments: Table
    delete_after: int | str | None  # messages, or "queue-length"; None: never
    reconnect_s: float | None  # None: it does not try again
    forward_headers: bool = False
    timestamp_header: bool = False
    trusts_user_id: bool = False  # what the source says about who has published a message is not checked
    properties: Mapping[str, Any] = attrs.field(factory=dict)  # that each message gets in place of its own
    overwrites: Overwrites | None = None  # the same, at an end of AMQP 1.0
