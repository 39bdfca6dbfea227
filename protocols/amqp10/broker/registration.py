"""The registration of AMQP 1.0 with a node: its first bytes, and the factory of its connections.

The front-end itself is imported with the first connection that speaks it: it is as much code
as all the rest, and a node starts a tenth of a second earlier without it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from leveret.features.unsettled_maps.unsettled_map import UnsettledMap, unsettled_maps_of
from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.protocols.shared.broker import AMQP_SUBPROTOCOLS

if TYPE_CHECKING:
    from leveret.arguments.row import Section
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.features.transfers.ends import RemoteEnds
    from leveret.message import Encoding
    from leveret.outbox import Outbox

log: Final = logging.getLogger("leveret.amqp10")

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
    if maps := [each for host in broker.hosts() for each in unsettled_maps_of(host).values()]:
        _restore_links(maps)


def _restore_links(maps: list[UnsettledMap]) -> None:
    """Keep the deliveries again that links have left unsettled. What cannot be read is forgotten: it comes anew."""
    from leveret.protocols.amqp10.broker import kept_deliveries, resumption
    from leveret.protocols.amqp10.codec.errors import AmqpError
    from leveret.protocols.amqp10.codec.types import DecodeError

    kinds = {resumption.SENDER: resumption.restore, kept_deliveries.RECEIVER: kept_deliveries.restore}
    for unsettled in maps:
        role, user, container, link = unsettled.names
        if not unsettled.host.broker.access.may_know(
            user
        ):  # it was in the configuration file, and is not any more
            unsettled.end()
            continue
        try:
            kinds[role](unsettled, (user, container, link))
        except (AmqpError, DecodeError, KeyError, ValueError) as error:
            log.error("the %s cannot be read, and are forgotten: %s", unsettled.described, error)
            unsettled.end()


def remote_ends() -> RemoteEnds:
    """Return what makes the ends of shovels on other brokers."""
    from leveret.features.transfers.ends import RemoteEnds
    from leveret.protocols.amqp10.broker.shovel_ends import Destination10, Source10

    return RemoteEnds(Source10, Destination10)


PROTOCOL: Final = Protocol(
    name="amqp10",
    first_bytes=(b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"),
    relatives=(b"AMQP\x00\x01", b"AMQP\x02", b"AMQP\x03"),  # other revisions of 1.0, and its header for TLS
    factory=connection,
    title="AMQP 1.0",
    encoding=encoding,
    restored=restored,
    sections=sections,
    remote_ends=remote_ends,
    prepare=partial(import_module, "leveret.protocols.amqp10.broker.adapter"),
    subprotocols=AMQP_SUBPROTOCOLS,
)
