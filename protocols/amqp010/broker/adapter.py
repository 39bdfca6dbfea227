"""The front-end of AMQP 0-10, between the protocol's machine and a `Client` of the core.

    node ──bytes──> Connection ──> Session ──> ServedSession ──> publishing, subscriptions, ... ──> broker_core
    node <──outbox── frames <───── Session <── modules of the served session

A session may outlive its connection: the `Sessions` of the virtual host know which user has which session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from leveret.broker import WORK_MAX, Broker
from leveret.config.config import Config
from leveret.delivery import Delivery
from leveret.errors import Failure
from leveret.front_end import Peer
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.outbox import Outbox
from leveret.protocols.amqp010.broker import stats as facts
from leveret.protocols.amqp010.broker.connection_parts import ConnectionParts
from leveret.protocols.amqp010.broker.session import ServedSession
from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec.commands import (
    CLOSE_CODE_CONNECTION_FORCED,
    CLOSE_CODE_INVALID_PATH,
    DETACH_CODE_TRANSPORT_BUSY,
)
from leveret.protocols.amqp010.codec.types import Value
from leveret.protocols.amqp010.machine.connection import Connection
from leveret.protocols.amqp010.machine.contract import AmqpError, AttachRefused, Handler, Tuning
from leveret.protocols.amqp010.machine.session import Session
from leveret.protocols.shared.broker.ack_timeouts import tagged
from leveret.protocols.shared.broker.machine_ends import ServingWriter
from leveret.protocols.shared.broker.served_connection import ServedConnection
from leveret.protocols.shared.machine.contract import Wait
from leveret.security.sasl import Anonymous
from leveret.values import Table

log: Final = logging.getLogger("leveret.amqp010")


class Adapter010(ServedConnection, Handler):
    """One connection: authentication, the virtual host, the attaching and detaching of its sessions, and alarms."""

    TITLE: ClassVar[str] = "AMQP 0-10"
    LOG: ClassVar[logging.Logger] = log
    wire: Connection

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        super().__init__(broker, config, outbox, peer, config.protocols.amqp010.mechanisms)
        self._asked = ""  # the mechanism whose first response the client was asked for
        self.client_properties: Table = {}
        self._has_complained = False  # in the log, about a refused session
        self.begin(Connection(self, self._tuning(), ServingWriter(outbox, broker, self), now))

    def _tuning(self) -> Tuning:
        settings, limits = self.config.protocols.amqp010, self.config.limits
        return Tuning(
            session_max=settings.session_max,
            frame_max=settings.frame_max,
            heartbeat_s=settings.heartbeat_s,
            body_size_max=self.config.message_size_max,
            handshake_timeout_s=limits.handshake_timeout_s,
            mechanisms=self._mechanisms.offered,
            server_properties={**self.product(), "host": self.config.node.name},
        )

    # The node's side.

    def facts(self) -> ConnectionFacts | None:
        return facts.connection_facts(self) if self._entered else None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        return map(facts.session_facts, list(self.wire.sessions.values()))

    def unsettled(self, channel: int, tag: int | None = None) -> Iterable[tuple[int, Delivery]]:
        """Return the deliveries with the ids of their transfers."""
        session = self.wire.sessions.get(channel)
        if session is None or not isinstance(session.owner, ServedSession):
            return ()
        return tagged(session.owner.unsettled.table, tag)

    def drained(self) -> None:
        for session in list(self.wire.sessions.values()):
            session.owner.wake_all()

    def shut_down(self, reason: str) -> None:
        self.wire.fail(AmqpError(CLOSE_CODE_CONNECTION_FORCED, reason))

    # Alarms. 0-10 has no word for them: publishers are not read from, and notice that nothing completes.

    def alarm(self, reason: str | None) -> None:
        if reason is None and self.blocked:
            self.release()

    # Logging in.

    def on_start_ok(
        self, mechanism: str, response: bytes | None, client_properties: Mapping[str, Value]
    ) -> bytes | Wait | None:
        self.client_properties = facts.few_of(client_properties)
        if response is None and mechanism != Anonymous.name:
            self._asked = mechanism
            return b""  # RFC 4422, 5.1: an empty challenge asks for the initial response
        return self.answered(self._login.begin, mechanism, response or b"")

    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        mechanism, self._asked = self._asked, ""
        if mechanism:
            return self.answered(self._login.begin, mechanism, response)
        return self.answered(self._login.answer, response)

    def on_checked(self) -> bytes | Wait | None:
        return self.answered(self._login.go_on)

    def refused_login(self, failure: Failure) -> AmqpError:
        return _turned_away(failure)

    def on_open(self, virtual_host: str) -> None:
        name = virtual_host or self.default_virtual_host
        if name not in self.broker.virtual_hosts:
            raise AmqpError(CLOSE_CODE_INVALID_PATH, f"vhost {name} not found")
        try:
            self.enter(name)
        except Failure as failure:
            log.warning("%s: user '%s': %s", self.peer.name, self.client.user.name, failure)
            raise _turned_away(failure) from None

    # Sessions.

    def on_attach(self, name: bytes, force: bool) -> Session:
        parts = ConnectionParts(self.broker, self.config, self.client, self.peer.name)
        try:
            return self.client.host.guest(Sessions).attach(parts, name, force)
        except Failure as failure:  # 0-10 has no better code, and existing sessions may go on
            if not self._has_complained:  # log once: the client may ask any number of times
                self._has_complained = True
                log.warning("%s: session refused: %s", self.peer.name, failure)
            raise AttachRefused(DETACH_CODE_TRANSPORT_BUSY) from None

    def on_detached(self, session: Session) -> None:
        self.client.host.guest(Sessions).left(session)

    def is_enough(self) -> bool:
        return self.broker.work > WORK_MAX


def _turned_away(failure: Failure) -> AmqpError:
    return AmqpError(CLOSE_CODE_CONNECTION_FORCED, str(failure))
