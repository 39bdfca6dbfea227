"""The links of an AMQP 1.0 session. One door to `link` (what both kinds share), `receiving` and `sending`."""

from protocols.amqp10.machine.link import Link, size_exceeded
from protocols.amqp10.machine.receiving import IncomingLink
from protocols.amqp10.machine.sending import OutgoingLink

__all__ = ["IncomingLink", "Link", "OutgoingLink", "size_exceeded"]
