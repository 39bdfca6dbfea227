"""AMQP 0-10 on the broker: the machine on one side, a `Client` of the core on the other.

    node ──bytes──> Connection ──> Session ──> ServedSession ──> publishing, subscriptions, ... ──> broker_core
    node <──outbox── frames <───── Session <── those who serve it

A session may outlive its connection: who has which is known to the `Sessions` of the virtual host.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Final, ParamSpec

from broker_core.broker import Broker
from broker_core.client import Client
from broker_core.config.load import Config
from broker_core.errors import Failure
from broker_core.frontend import FrontEnd, Peer
from broker_core.observability.connection_stats import ChannelFacts, ConnectionFacts
from broker_core.outbox import Outbox
from broker_core.security.login import Login
from broker_core.security.sasl import Anonymous, Answer, Challenge, Mechanisms, Pending
from broker_core.values import Table
from protocols.amqp010.broker import stats as facts
from protocols.amqp010.broker.entrance import Entrance
from protocols.amqp010.broker.sessions import Sessions
from protocols.amqp010.codec.commands import (
    CLOSE_CODE_CONNECTION_FORCED,
    CLOSE_CODE_INVALID_PATH,
    DETACH_CODE_TRANSPORT_BUSY,
)
from protocols.amqp010.codec.types import Value
from protocols.amqp010.machine.connection import Connection
from protocols.amqp010.machine.contract import AmqpError, AttachRefused, Handler, Tuning, Wait, Writer
from protocols.amqp010.machine.session import Session

log: Final = logging.getLogger("leveret.amqp010")
P = ParamSpec("P")
WORK_MAX: Final = (
    10_000  # copies that one read makes, or what takes as long, before others have a turn: 10 to 30 ms
)


class OutboxWriter(Writer):
    """The connection's outbox, as the machine wants it."""

    __slots__ = ("_outbox",)

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def write(self, data: bytes) -> None:
        self._outbox.write(data)

    def open(self) -> list[bytes]:
        return self._outbox.open()

    def wrote(self, octets: int) -> None:
        self._outbox.wrote(octets)

    def written(self) -> int:
        return self._outbox.written()

    def full(self) -> bool:
        return self._outbox.full

    def room(self) -> int:
        return self._outbox.room()


class Connection010(Handler, FrontEnd):
    """One connection: authentication, the virtual host, its sessions' coming and going, and alarms."""

    client: Client

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        self.broker = broker
        self.config = config
        self.outbox = outbox
        self.peer = peer
        self.is_stranger = True
        self._mechanisms = Mechanisms(
            broker.access, config.protocols.amqp010.mechanisms, certified=peer.certified, host=peer.host
        )
        self._login = Login(broker, self._mechanisms, peer, "AMQP 0-10", log)
        self._asked = ""  # the mechanism whose first response the client was asked for
        self._entered = False
        self.client_properties: Table = {}
        self._has_complained = False  # of sessions that were refused
        self.wire = Connection(self, self._tuning(), OutboxWriter(outbox), now)

    def _tuning(self) -> Tuning:
        settings, limits = self.config.protocols.amqp010, self.config.limits
        return Tuning(
            session_max=settings.session_max,
            frame_max=settings.frame_max,
            heartbeat_s=settings.heartbeat_s,
            body_size_max=limits.message_size_max,
            handshake_timeout_s=limits.handshake_timeout_s,
            mechanisms=self._mechanisms.offered,
            server_properties=self._server_properties(),
        )

    def _server_properties(self) -> dict[str, Value]:
        """S005."""
        product, version = self.broker.compat.product_and_version
        return {
            "product": product,
            "version": version,
            "platform": f"Python {platform.python_version()}",
            "information": "Licensed under Apache-2.0",
            "host": self.config.node.name,
        }

    # The node's side.

    def receive(self, data: bytes, now: float) -> None:
        heard_before = self.wire.transfers
        self.wire.receive(data, now)
        self.wire.flush()
        if self.wire.transfers != heard_before and self._entered and self.broker.alarms.reason:
            self._hold_back()  # but one that has left is read to its end

    def lost(self) -> None:
        self.wire.lost()
        if self.wire.peer_spoke and not self.wire.peer_spoke.startswith("AMQP 0-10"):
            log.warning("%s: refused, detected %s", self.peer.name, self.wire.peer_spoke)
        elif self.wire.peer_spoke:
            log.info("%s: ended, %r", self.peer.name, self.wire.ended_because)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.wire.closed

    @property
    def halted(self) -> bool:  # type: ignore[override]
        return self.wire.halted and not (self.waits or self.wire.closed)

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"user '{self.client.user.name}', vhost '{self.client.host.name}'" if self._entered else ""

    def facts(self) -> ConnectionFacts | None:
        return facts.connection_facts(self, self._login.attempt) if self._entered else None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        return map(facts.session_facts, list(self.wire.sessions.values()))

    def deadline(self) -> float | None:
        return self.wire.deadline()

    def on_deadline(self, now: float) -> None:
        self.wire.on_deadline(now)

    def drained(self) -> None:
        for session in list(self.wire.sessions.values()):
            session.owner.wake_all()

    def shut_down(self, reason: str) -> None:
        self.wire.fail(AmqpError(CLOSE_CODE_CONNECTION_FORCED, reason))

    # Alarms. There is no word for them in 0-10: who publishes is not read from, and notices that nothing completes.

    def _hold_back(self) -> None:
        if not self.blocked:
            self.blocked = True
            self.wire.pause_monitor()

    def alarm(self, reason: str | None) -> None:
        if reason is None and self.blocked:
            self.blocked = False
            self.wire.resume_monitor(self.broker.tick())

    # Logging in.

    def on_start_ok(
        self, mechanism: str, response: bytes | None, client_properties: Mapping[str, Value]
    ) -> bytes | Wait | None:
        self.client_properties = facts.few_of(client_properties)
        if response is None and mechanism != Anonymous.name:
            self._asked = mechanism
            return b""  # RFC 4422, 5.1: who could have begun and has not is asked to
        return self._answered(self._login.begin, mechanism, response or b"")

    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        asked, self._asked = self._asked, ""
        if asked:
            return self._answered(self._login.begin, asked, response)
        return self._answered(self._login.answer, response)

    def on_checked(self) -> bytes | Wait | None:
        return self._answered(self._login.go_on)

    def _answered(self, step: Callable[P, Answer], *given: P.args, **named: P.kwargs) -> bytes | Wait | None:
        try:
            answer = step(*given, **named)
        except Failure as failure:
            raise _turned_away(failure) from None
        if isinstance(answer, Pending):
            self.wait_for(answer.waiting)
            return Wait.WAIT
        if isinstance(answer, Challenge):
            return answer.octets
        self.client = Client(self.broker, answer.user, self.peer.name)
        return None

    def wake(self) -> None:
        self.wire.halted = True
        super().wake()

    def on_open(self, virtual_host: str) -> None:
        name = virtual_host or self.config.virtual_hosts[0].name
        if name not in self.broker.virtual_hosts:
            raise AmqpError(CLOSE_CODE_INVALID_PATH, f"vhost {name} not found")
        try:
            self.client.enter(name)
        except Failure as failure:
            log.warning("%s: user '%s': %s", self.peer.name, self.client.user.name, failure)
            raise _turned_away(failure) from None
        self._entered = True
        self.is_stranger = False
        self.expires_at = self.client.expires_at
        log.info("%s: %s", self.peer.name, self.description)

    # Sessions.

    def on_attach(self, name: bytes, force: bool) -> Session:
        entrance = Entrance(self.broker, self.config, self.client, self.peer.name)
        try:
            return self.client.host.kept(Sessions).attach(entrance, name, force)
        except (
            Failure
        ) as failure:  # there is no word for that either, and the sessions that are there may go on
            if not self._has_complained:  # once: he may ask as often as he likes
                self._has_complained = True
                log.warning("%s: session refused: %s", self.peer.name, failure)
            raise AttachRefused(DETACH_CODE_TRANSPORT_BUSY) from None

    def on_detached(self, session: Session) -> None:
        self.client.host.kept(Sessions).left(session)

    def is_enough(self) -> bool:
        return self.broker.work > WORK_MAX

    def on_closed(self) -> None:
        self.blocked = False  # its close-ok is to be read
        self._login.drop()
        if self.waits:
            self.wake()
        if self._entered:
            self._entered = False
            self.client.leave()


def _turned_away(failure: Failure) -> AmqpError:
    return AmqpError(CLOSE_CODE_CONNECTION_FORCED, str(failure))
