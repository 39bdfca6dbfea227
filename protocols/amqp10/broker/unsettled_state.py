"""Links whose unsettled deliveries have outlived a restart of the node: they are kept again for their peers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from leveret.features.unsettled_maps.unsettled_map import unsettled_maps_of

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.features.unsettled_maps.unsettled_map import UnsettledMap

log: Final = logging.getLogger("leveret.amqp10")


def restore(broker: Broker) -> None:
    """Restore what links of all virtual hosts have left. What cannot be read is forgotten: it is delivered anew."""
    if maps := [each for host in broker.hosts() for each in unsettled_maps_of(host).values()]:
        _restore(maps)


def _restore(maps: list[UnsettledMap]) -> None:
    from leveret.protocols.amqp10.broker import (  # not needed before a client comes
        kept_deliveries,
        resumption,
    )
    from leveret.protocols.amqp10.codec.errors import AmqpError
    from leveret.protocols.amqp10.codec.types import DecodeError

    kinds = {resumption.SENDER: resumption.restore, kept_deliveries.RECEIVER: kept_deliveries.restore}
    for unsettled in maps:
        role, user, container, link = unsettled.names
        try:
            kinds[role](unsettled, (user, container, link))
        except (AmqpError, DecodeError, KeyError, ValueError) as error:
            log.error("the %s cannot be read, and are forgotten: %s", unsettled.described, error)
            unsettled.end()
