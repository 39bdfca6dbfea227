"""What a session is given of the connection that brought it in. It outlives that connection, so this is not it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.client import Client
    from broker_core.config.load import Config


@attrs.frozen(eq=False)
class Entrance:
    """Where a session came in."""

    broker: Broker
    config: Config
    client: Client  # of the connection: `client.part()` is what a session keeps
    name: str  # of the connection, for people
