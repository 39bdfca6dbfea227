"""The interfaces between the machine of a connection and what it serves."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs

from leveret.protocols.mqtt.codec.packets import Connect, Disconnect, Subscribe, Unsubscribe
from leveret.protocols.mqtt.machine.traffic import Traffic
from leveret.protocols.shared.machine.contract import Wait


@attrs.frozen(kw_only=True)
class Terms:
    """The limits of a server for its connections. Sizes are bytes, times seconds."""

    packet_size_max: int  # of packets that are received
    connect_size_max: int  # the same, before the client has logged in
    connect_timeout_s: float
    keep_alive_max_s: int  # for version 5; 0: any
    receive_maximum: int  # messages of QoS 1 and 2 that are received and not answered
    in_flight_max: int  # the same of those that are sent
    topic_alias_max: int  # in either direction


@attrs.frozen
class Challenge:
    """The next data of an enhanced authentication (section 4.12), for the client to answer with AUTH."""

    octets: bytes


@attrs.frozen
class Accepted:
    """The client is logged in: what CONNACK tells besides the limits."""

    session_present: bool = False
    assigned_client_id: str | None = None
    session_expiry_s: int | None = None  # where it differs from what the client asked for
    octets: bytes = b""  # the last data of an enhanced authentication


@attrs.frozen
class Renewed:
    """The client has authenticated itself again, with the last data of that."""

    octets: bytes = b""


Answer = Challenge | Accepted | Renewed | Wait
"""The answer to a step of an authentication."""


class Handler(ABC):
    """The broker's side of a connection. Each method may raise MqttError, which ends the connection."""

    @abstractmethod
    def on_connect(self, connect: Connect) -> Answer:
        """Begin a login. `Wait` says that `on_checked` has the answer, later."""

    @abstractmethod
    def on_auth(self, octets: bytes, again: bool) -> Answer:
        """Take the client's data of an enhanced authentication. `again`: an open connection begins a new one."""

    @abstractmethod
    def on_checked(self) -> Answer:
        """Return the answer that was waited for, or `Wait` if it is not there yet."""

    @abstractmethod
    def on_open(self) -> None:
        """Called after CONNACK was sent: what the session has goes out now."""

    @abstractmethod
    def traffic(self) -> Traffic:
        """Return what takes the client's messages and acknowledgements. Called once, for the first."""

    @abstractmethod
    def on_subscribe(self, subscribe: Subscribe) -> tuple[int, ...]:
        """Subscribe, and return the reason codes of SUBACK."""

    @abstractmethod
    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> tuple[int, ...]:
        """Unsubscribe, and return the reason codes of UNSUBACK."""

    @abstractmethod
    def on_disconnect(self, disconnect: Disconnect) -> None:
        """Called when the client has said that it leaves."""

    @abstractmethod
    def on_closed(self) -> None:
        """Called once, when the connection has ended in whatever way."""

    @abstractmethod
    def release_some(self) -> bool:
        """Release a part of what the connection holds, as it ends; return whether there was any."""
