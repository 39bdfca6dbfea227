"""The registration of AMQP 1.0 with a node: its first bytes, and the factory of its connections.

The front-end itself is imported with the first connection, or once a node has been up for a while: it is as much code
as all the rest, and a node starts a tenth of a second earlier without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.protocols.amqp10.broker import unsettled_state

if TYPE_CHECKING:
    from leveret.arguments.row import Section
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.message import Encoding
    from leveret.outbox import Outbox

SUBSCRIPTION: Final = "amqp10.subscription"  # the key of a queue's notes about its subscription


def connection(broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    """Return the front-end for a connection."""
    from leveret.protocols.amqp10.broker.adapter import Adapter10

    return Adapter10(broker, config, outbox, peer, now)


def sections() -> Sequence[Section]:
    """Return the rows of what clients can ask for by name."""
    from leveret.protocols.amqp10.broker import argument_rows

    return argument_rows.sections()


def encoding() -> Encoding:
    """Return the encoding of its messages."""
    from leveret.protocols.amqp10.broker.encoding import ENCODING

    return ENCODING


def restored(broker: Broker) -> None:
    """Restore subscriptions and unsettled deliveries that have outlived a restart; they wait for their links."""
    if any(SUBSCRIPTION in queue.notes for host in broker.hosts() for queue in host.queues.values()):
        from leveret.protocols.amqp10.broker.subscriptions import restore

        restore(broker)
    unsettled_state.restore(broker)


PROTOCOL: Final = Protocol(
    name="amqp10",
    first_bytes=(b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"),
    relatives=(b"AMQP\x00\x01", b"AMQP\x02", b"AMQP\x03"),  # other revisions of 1.0, and its header for TLS
    factory=connection,
    title="AMQP 1.0",
    encoding=encoding,
    restored=restored,
    sections=sections,
    prepare=partial(import_module, "leveret.protocols.amqp10.broker.adapter"),
)
