"""AMQP 1.0 on the broker: the machine on one side, a `Client` of the core on the other.

    node ──bytes──> Connection ──calls──> Connection10 ──> ServedSession ──> targets, sources, ... ──> broker_core
    node <──outbox── frames <── Session, links <────────────── those who serve them

What the core refuses comes as a `Failure`; `failures.py` says what that is called here, and what it ends.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

from broker_core.broker import Broker
from broker_core.client import Client
from broker_core.config.load import Config
from broker_core.errors import Failure, LimitReached
from broker_core.frontend import FrontEnd, Peer
from broker_core.observability.connection_stats import ChannelFacts, ConnectionFacts
from broker_core.outbox import Outbox
from broker_core.security.access import User
from broker_core.security.login import Login, Renewal
from broker_core.security.password_checks import Waiting
from broker_core.security.sasl import Answer, Challenge, Mechanisms, Pending
from protocols.amqp10.broker import kept_links
from protocols.amqp10.broker import stats as facts
from protocols.amqp10.broker.errors import refusal
from protocols.amqp10.broker.session import ServedSession
from protocols.amqp10.broker.transactions import Transactions
from protocols.amqp10.codec import performatives as p
from protocols.amqp10.codec.errors import AmqpError, Ends
from protocols.amqp10.codec.types import Value
from protocols.amqp10.machine.connection import Connection
from protocols.amqp10.machine.contract import Handler, Tuning, Wait, Writer
from protocols.amqp10.machine.session import Session

log: Final = logging.getLogger("leveret.amqp10")

P = ParamSpec("P")
CAPABILITIES: Final = ("LINK_PAIR_V1_0", "ANONYMOUS-RELAY", "SHARED-SUBS")  # the extensions served (X050)
VIRTUAL_HOST: Final = "vhost:"  # how a hostname begins that names one (S165)


def nothing() -> None:
    """What is done when nobody wants to know."""


class OutboxWriter(Writer):
    """The connection's outbox, as the machine wants it."""

    __slots__ = ("_outbox",)

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def write(self, data: bytes) -> None:
        self._outbox.write(data)

    def open(self) -> list[bytes]:
        return self._outbox.open()

    def wrote(self, count: int) -> None:
        self._outbox.wrote(count)

    def written(self) -> int:
        return self._outbox.written()

    def full(self) -> bool:
        return self._outbox.full


class Connection10(Handler, FrontEnd):
    """One connection: authentication, the virtual host, sessions, and alarms."""

    client: Client

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        self.broker = broker
        self.config = config
        self.outbox = outbox
        self.peer = peer
        self.is_stranger = True
        self.sessions: dict[ServedSession, None] = {}
        self.transactions = Transactions(broker)
        self.address_v1 = config.address_v1
        mechanisms = config.protocols.amqp10.mechanisms
        self._mechanisms = Mechanisms(broker.access, mechanisms, certified=peer.certified, host=peer.host)
        self._login = Login(broker, self._mechanisms, peer, "AMQP 1.0", log, ends_with_data=True)
        self._last_words: bytes | None = None  # of the login
        self._renewal = Renewal(broker, peer, log)
        self._renewed: Callable[[], None]  # called when it is right
        self._entered = False
        self.wire = Connection(self, self._tuning(), OutboxWriter(outbox), now)

    def _tuning(self) -> Tuning:
        settings, limits = self.config.protocols.amqp10, self.config.limits
        return Tuning(
            container_id=self.config.node.name,
            frame_size_max=settings.frame_max,
            channel_max=settings.session_max - 1,
            handle_max=settings.link_max - 1,
            idle_timeout_s=settings.idle_timeout_s,
            incoming_window=settings.incoming_window,
            link_credit=settings.link_credit,
            message_size_max=limits.message_size_max,
            initial_frame_size_max=settings.initial_frame_max,
            handshake_timeout_s=limits.handshake_timeout_s,
            mechanisms=self._mechanisms.offered,
            offered_capabilities=CAPABILITIES,
        )

    def _properties(self) -> dict[str, Value]:
        """X050."""
        product, version = self.broker.compat.product_and_version
        return {
            "product": product,
            "version": version,
            "platform": f"Python {platform.python_version()}",
            "information": "Licensed under Apache-2.0",
            "node": self.config.node.name,
        }

    # The node's side.

    def receive(self, data: bytes, now: float) -> None:
        if self._renewal.waiting is not None:
            self._renew_if_checked()
        self.wire.receive(data, now)
        self.wire.flush()

    def lost(self) -> None:
        self.wire.lost()
        if self.wire.peer_spoke and not self.wire.peer_spoke.startswith("AMQP 1.0"):
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

    @property
    def container(self) -> str:
        """What the peer calls itself."""
        assert self.wire.peer is not None
        return self.wire.peer.container_id

    def facts(self) -> ConnectionFacts | None:
        return facts.connection_facts(self, self._login.attempt) if self._entered else None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        return map(facts.session_facts, list(self.sessions))

    def deadline(self) -> float | None:
        return self.wire.deadline()

    def on_deadline(self, now: float) -> None:
        self.wire.on_deadline(now)

    def drained(self) -> None:
        for session in list(self.sessions):
            session.wake_all()

    def alarm(self, reason: str | None) -> None:
        """S162: nobody may publish any more; deliveries and their outcomes go on."""
        for session in self.sessions:
            if reason is None:
                session.wire.unhold()
            else:
                session.wire.hold()

    def shut_down(self, reason: str) -> None:
        self.wire.fail(AmqpError(p.CONNECTION_FORCED, reason, Ends.CONNECTION))

    def on_expired(self) -> None:
        self.wire.fail(_unauthorized("credential expired"))

    # Logging in.

    def on_sasl_init(self, mechanism: str, response: bytes) -> bytes | Wait | None:
        return self._answered(self._login.begin, mechanism, response)

    def on_sasl_response(self, response: bytes) -> bytes | Wait | None:
        return self._answered(self._login.answer, response)

    def on_sasl_checked(self) -> bytes | Wait | None:
        return self._answered(self._login.go_on)

    def _answered(self, step: Callable[P, Answer], *given: P.args, **named: P.kwargs) -> bytes | Wait | None:
        try:
            answer = step(*given, **named)
        except Failure as failure:  # X046
            raise refusal(failure) from None
        if isinstance(answer, Pending):
            self.wait_for(answer.waiting)
            return Wait.WAIT
        if isinstance(answer, Challenge):
            return answer.octets
        self.client = Client(self.broker, answer.user, self.peer.name)
        self._last_words = answer.octets or None
        return None

    def last_words(self) -> bytes | None:
        return self._last_words

    def wake(self) -> None:
        self.wire.halted = True
        super().wake()

    def change_secret(self, secret: bytes, renewed: Callable[[], None] = nothing) -> bool:
        """The client has a fresh secret (X086). False: it has to be checked first, and `renewed` is called after that.

        Raises AmqpError that ends the connection if it is not good.
        """
        try:
            found = self._renewal.begin(self.client.user.name, secret)
        except Failure as failure:
            raise _unauthorized(str(failure)) from None
        if isinstance(found, Waiting):
            self._renewed = renewed
            self.wait_for(found)
            return False
        self._renew(found)
        return True

    def _renew_if_checked(self) -> None:
        if (checked := self._renewal.checked()) is None:
            return
        try:
            self._renew(checked.user)
            self._renewed()
        except AmqpError as error:
            self.wire.fail(error)

    def _renew(self, user: User | None) -> None:
        if user is None:
            raise _unauthorized("credential update failed: the new secret was refused")
        try:
            self.client.change_user(user)
            self.expires_at = self.client.expires_at
        except Failure as failure:
            raise _unauthorized(str(failure)) from None
        for session in list(self.sessions):
            session.recheck()

    def on_open(self, open: p.Open) -> dict[str, Value]:
        name = self._virtual_host(open.hostname)
        if name not in self.broker.virtual_hosts:
            why = f"AMQP 1.0 connection failed: virtual host '{name}' does not exist"
            raise self._turned_away(_unauthorized(why))
        try:
            self.client.enter(name)
        except LimitReached as failure:
            # where 0-9-1 speaks of a connection limit, 1.0 speaks of a vhost's (X047)
            why = str(failure).replace("': connection limit (", "': vhost connection limit (")
            raise self._turned_away(AmqpError(p.RESOURCE_LIMIT_EXCEEDED, why, Ends.CONNECTION)) from None
        except Failure as failure:
            raise self._turned_away(_unauthorized(str(failure))) from None
        self._entered = True
        self.is_stranger = False
        self.expires_at = self.client.expires_at
        log.info("%s: %s", self.peer.name, self.description)
        return self._properties()

    def _virtual_host(self, hostname: str | None) -> str:
        """S165."""
        if hostname is not None and hostname.startswith(VIRTUAL_HOST):
            return hostname.removeprefix(VIRTUAL_HOST)
        return self.config.virtual_hosts[0].name

    def _turned_away(self, error: AmqpError) -> AmqpError:
        log.warning("%s: user '%s': %s", self.peer.name, self.client.user.name, error.description)
        return error

    # Sessions.

    def on_begin(self, session: Session) -> ServedSession:
        try:
            self.client.open_channel()
        except Failure as failure:
            raise refusal(failure) from None
        served = ServedSession(self, session)
        self.sessions[served] = None
        if self.broker.alarms.reason:
            session.hold()  # S163
        return served

    def session_ended(self, session: ServedSession) -> None:
        self.client.close_channel()
        del self.sessions[session]

    def on_closed(self) -> None:
        self._stop_waiting()
        if self._entered:
            self._entered = False
            kept_links.ended(self.client.host, self)
            self.client.leave()

    def _stop_waiting(self) -> None:
        self._login.drop()
        self._renewal.drop()
        if self.waits:
            self.wake()


def _unauthorized(why: str) -> AmqpError:
    return AmqpError(p.UNAUTHORIZED_ACCESS, why, Ends.CONNECTION)
