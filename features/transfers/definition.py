"""The settings of a transfer, checked: those of a shovel, or of a link of a federation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from leveret.config.amqp_uri import Uri
from leveret.values import Table


class AckMode(Enum):
    """The moments at which a message may leave the source."""

    ON_CONFIRM = "on-confirm"  # when the destination has confirmed it
    ON_PUBLISH = "on-publish"  # when it has been published
    NO_ACK = "no-ack"  # when it is delivered


@attrs.frozen
class EndSettings:
    """One end of a shovel."""

    uris: tuple[Uri, ...]
    queue: str | None
    exchange: str | None
    key: str | None
    arguments: Table  # of the queue, if it has to be declared
    predeclared: bool  # a missing queue is not declared


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
