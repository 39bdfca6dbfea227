"""The parts of a connection that a session is given. It outlives the connection, so it does not get that itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.client import Client
    from leveret.config.config import Config


@attrs.frozen(eq=False)
class ConnectionParts:
    """The connection through which a session came in."""

    broker: Broker
    config: Config
    client: Client  # of the connection: `client.part()` is what a session keeps
    name: str  # of the connection, for people
