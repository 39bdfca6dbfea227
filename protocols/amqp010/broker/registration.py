"""The registration of AMQP 0-10 with a node: its first bytes, and the factory of its connections.

The front-end itself is imported with the first connection that speaks it, as AMQP 1.0's is.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.protocols.amqp010.broker.argument_rows import QUEUE_ROWS, sections
from leveret.protocols.shared.broker import AMQP_SUBPROTOCOLS

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.message import Encoding
    from leveret.outbox import Outbox


def connection(broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    """Return the front-end for one connection."""
    from leveret.protocols.amqp010.broker.adapter import Adapter010

    return Adapter010(broker, config, outbox, peer, now)


def encoding() -> Encoding:
    """Return the encoding of its messages."""
    from leveret.protocols.amqp010.broker.encoding import ENCODING

    return ENCODING


PROTOCOL: Final = Protocol(
    name="amqp010",
    first_bytes=(b"AMQP\x01\x01\x00\x0a",),
    relatives=(b"AMQP\x01\x01",),
    factory=connection,
    title="AMQP 0-10",
    encoding=encoding,
    queue_arguments=QUEUE_ROWS,
    sections=sections,
    prepare=partial(import_module, "leveret.protocols.amqp010.broker.adapter"),
    subprotocols=AMQP_SUBPROTOCOLS,
)
