"""The contract for the messages and acknowledgements of a client, apart from `contract.py` so that it is compiled."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from leveret.protocols.mqtt.codec.reader import PublishRun


@mypyc_attr(allow_interpreted_subclasses=True)
class Traffic(ABC):
    """The broker's side of what an open connection carries. Each method may raise MqttError, which ends it."""

    __slots__ = ()

    @abstractmethod
    def on_publish(self, run: PublishRun) -> int:
        """Publish messages, whose topics are whole and whose packet identifiers count as received.

        Returns how many were: the rest is given again once others have had their turn.
        """

    @abstractmethod
    def on_ack(self, kind: int, packet_id: int, reason_code: int) -> None:
        """Take a PUBACK, PUBREC, PUBREL or PUBCOMP, as `kind` says."""
