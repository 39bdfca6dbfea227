"""The parts that several front-ends share on the broker's side: login, the outbox, and acknowledgement time-outs."""

from typing import Final

# The WebSocket subprotocols of AMQP: that of the binding of AMQP 1.0 (OASIS, section 2), and that of its drafts.
AMQP_SUBPROTOCOLS: Final = ("amqp", "AMQPWSB10")
