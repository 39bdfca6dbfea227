"""The WebSocket subprotocols of AMQP: that of the binding of AMQP 1.0 (OASIS, section 2), and that of its drafts."""

from __future__ import annotations

from typing import Final

AMQP: Final = ("amqp", "AMQPWSB10")
