"""The errors of an MQTT connection, each with the reason code that the peer is told.

This module is not compiled, because a handler for a compiled exception class does not catch subclasses in plain Python.
"""

from __future__ import annotations

from leveret.protocols.mqtt.codec.reason_codes import MALFORMED_PACKET, PROTOCOL_ERROR


class MqttError(Exception):
    """A violation of the protocol, or a refusal, with a reason code of MQTT 5, section 2.4, and an explanation.

    A peer of version 3.1.1 is told the code in CONNACK only (`reason_codes.RETURN_CODES`).
    """

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(reason_code, text)
        self.reason_code = reason_code
        self.text = text


class MalformedError(MqttError):
    """Raised for bytes that cannot be read as the specification says: 0x81 (section 4.13)."""

    def __init__(self, text: str) -> None:
        super().__init__(MALFORMED_PACKET, text)


class ProtocolError(MqttError):
    """Raised for what can be read, and is not allowed: 0x82 (section 4.13)."""

    def __init__(self, text: str) -> None:
        super().__init__(PROTOCOL_ERROR, text)
