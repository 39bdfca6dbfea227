"""The registration of AMQP 0-9-1 with a node: its first bytes, and the factory of its connections.

The front-end itself is imported with the first connection, as AMQP 1.0's is.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.protocols.amqp091.machine.greeting import HEADER_0_9, HEADER_0_9_1, RELATIVES
from leveret.protocols.shared.broker import AMQP_SUBPROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.arguments.row import Section
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.features.transfers.ends import FeedEnds
    from leveret.message import Encoding
    from leveret.outbox import Outbox


def connection(broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    """Return the front-end for one connection."""
    from leveret.protocols.amqp091.broker.adapter import Adapter091

    return Adapter091(broker, config, outbox, peer, now)


def sections() -> Sequence[Section]:
    """Return the rows of what clients can ask for by name."""
    from leveret.protocols.amqp091.broker import argument_rows

    return argument_rows.sections()


def encoding() -> Encoding:
    """Return the encoding of its messages."""
    from leveret.protocols.amqp091.broker.encoding import ENCODING

    return ENCODING


def remote_ends() -> FeedEnds:
    """Return what makes the ends of shovels and of links of a federation on other brokers."""
    from leveret.features.transfers.ends import FeedEnds
    from leveret.protocols.amqp091.broker.federation_ends import ExchangeFeed091, QueueFeed091
    from leveret.protocols.amqp091.broker.shovel_ends import Destination091, Source091

    return FeedEnds(Source091, Destination091, ExchangeFeed091, QueueFeed091)


PROTOCOL: Final = Protocol(
    name="amqp091",
    first_bytes=(HEADER_0_9_1, HEADER_0_9),
    relatives=RELATIVES,
    factory=connection,
    fallback=True,
    title="AMQP 0-9-1",
    sections=sections,
    encoding=encoding,
    remote_ends=remote_ends,
    subprotocols=AMQP_SUBPROTOCOLS,
    prepare=partial(import_module, "leveret.protocols.amqp091.broker.adapter"),
)
