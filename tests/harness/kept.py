"""A list of a protocol that there is not: lamps, by virtual host, as a protocol would offer them to operators."""

from __future__ import annotations

import attrs

from leveret.message import NO_FACTS, Message
from leveret.observability.listing import Column, Listing, Shape
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.methods import BasicProperties
from leveret.values import Table
from leveret.virtual_host import VirtualHost

NO_PROPERTIES = BasicProperties().encode()


@attrs.define
class Lamps:
    """The lamps, each with its power. One of -1 goes out when somebody looks."""

    of_host: dict[str, dict[str, int]] = attrs.field(factory=dict)

    def names(self, host: VirtualHost) -> list[str]:
        return list(self.of_host.get(host.name, {}))

    def row(self, host: VirtualHost, name: str) -> Table | None:
        power = self.of_host.get(host.name, {}).get(name)
        if power in (None, -1):
            return None
        parts = [{"part": "bulb", "is_new": True}]
        return {
            "name": name,
            "vhost": host.name,
            "power": power,
            "left": None,
            "on": bool(power),
            "parts": parts,
        }

    def delete(self, host: VirtualHost, name: str) -> bool:
        return self.of_host.get(host.name, {}).pop(name, None) is not None

    def message(self, host: VirtualHost, name: str) -> Message | None:
        if self.row(host, name) is None:
            return None
        return Message(ENCODING, "", f"lamp.{name}", NO_PROPERTIES, b"shine", NO_FACTS)

    def listings(self) -> tuple[Listing, ...]:
        columns = (
            Column("power", "Power", Shape.COUNT),
            Column("left", "Left", Shape.SECONDS),
            Column("on", "On"),
        )
        return (Listing("lamps", "Lamps", self.names, self.row, columns, self.delete, self.message),)
