"""AMQP 1.0 on the broker: an adapter from the machine to a `Client` of the core.

    node ──bytes──> Connection ──calls──> Adapter10 ──> ServedSession ──> publishing, consuming, ... ──> broker_core
    node <──outbox── frames <── Session, links <────────────── their owners

The core's refusals come as `Failure`s; `errors.py` has the condition for each, and the scope that it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from leveret.broker import Broker
from leveret.config.compat import LinkErrors, RefusedOpen, WithoutSasl
from leveret.config.config import Config
from leveret.delivery import Delivery
from leveret.errors import Failure, LimitReached
from leveret.front_end import Peer
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.outbox import Outbox
from leveret.protocols.amqp10.broker import stats as facts
from leveret.protocols.amqp10.broker import termini
from leveret.protocols.amqp10.broker.containers import (
    CAPABILITY,
    POLICY,
    ContainerConnection,
    Containers,
)
from leveret.protocols.amqp10.broker.errors import refusal
from leveret.protocols.amqp10.broker.publishing import DELAYED_DELIVERY
from leveret.protocols.amqp10.broker.session import ServedSession
from leveret.protocols.amqp10.broker.transactions import Transactions
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.types import Value
from leveret.protocols.amqp10.machine.connection import Connection
from leveret.protocols.amqp10.machine.contract import Handler, Tuning
from leveret.protocols.amqp10.machine.session import Session
from leveret.protocols.shared.broker.machine_ends import ServingWriter
from leveret.protocols.shared.broker.served_connection import RenewableConnection
from leveret.protocols.shared.machine.contract import Wait
from leveret.security.sasl import Anonymous
from leveret.security.users import User

log: Final = logging.getLogger("leveret.amqp10")
# The extensions served (X050).
CAPABILITIES: Final = (
    "LINK_PAIR_V1_0",
    "ANONYMOUS-RELAY",
    "SHARED-SUBS",
    DELAYED_DELIVERY,
    CAPABILITY,
)
VIRTUAL_HOST: Final = "vhost:"  # the prefix of a hostname that names a virtual host (S165)


def nothing() -> None:
    """Do nothing after a renewal."""


class Adapter10(RenewableConnection, Handler):
    """A connection with its authentication, its virtual host, its sessions, and its alarms."""

    TITLE: ClassVar[str] = "AMQP 1.0"
    LOG: ClassVar[logging.Logger] = log
    ENDS_WITH_DATA: ClassVar[bool] = True
    wire: Connection

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        super().__init__(broker, config, outbox, peer, config.protocols.amqp10.mechanisms)
        self.sessions: dict[ServedSession, None] = {}
        self._in_container: ContainerConnection | None = None  # once it is open
        self.transactions = Transactions(broker)
        self._received = self._received_before = (
            0  # messages: by the last count, and in sessions that have ended
        )
        self.address_v1 = config.address_v1
        self.address_nodes = config.protocols.amqp10.addresses.nodes
        self._on_renewed: Callable[[], None]  # called when a new secret has been accepted
        self.begin(Connection(self, self._tuning(), ServingWriter(outbox, broker, self), now))

    def _tuning(self) -> Tuning:
        settings, limits = self.config.protocols.amqp10, self.config.limits
        offered = self._mechanisms.offered
        return Tuning(
            container_id=self.config.node.name,
            frame_size_max=settings.frame_max,
            channel_max=settings.session_max - 1,
            handle_max=settings.link_max - 1,
            idle_timeout_s=settings.idle_timeout_s,
            incoming_window=settings.incoming_window,
            link_credit=settings.link_credit,
            message_size_max=self.config.message_size_max,
            initial_frame_size_max=settings.initial_frame_max,
            handshake_timeout_s=limits.handshake_timeout_s,
            mechanisms=offered,
            offered_capabilities=CAPABILITIES,
            drops_refused_open=self.broker.compat.refused_open is RefusedOpen.DROP,
            takes_anonymous=self._takes_anonymous(offered),
            link_errors_end=Ends.SESSION
            if self.broker.compat.link_errors is LinkErrors.SESSION
            else Ends.LINK,
        )

    def _takes_anonymous(self, offered: Sequence[str]) -> bool:
        """Return whether a client may leave out SASL: where it may use ANONYMOUS anyway."""
        return self.broker.compat.without_sasl is WithoutSasl.ANONYMOUS and Anonymous.name in offered

    def heard(self, published: int) -> None:
        before = self._received
        self._received = self._received_before + sum(session.wire.received for session in self.sessions)
        super().heard(self._received - before)

    def heard_during(self, reason: str, published: int) -> None:
        """Do nothing: an alarm stops the sessions (`alarm`), and the connection is read."""

    @property
    def container(self) -> str:
        """The container-id of the peer."""
        assert self.wire.peer is not None
        return self.wire.peer.container_id

    def facts(self) -> ConnectionFacts | None:
        return facts.connection_facts(self) if self._entered else None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        return map(facts.session_facts, list(self.sessions))

    def unsettled(self, channel: int, tag: int | None = None) -> Iterable[tuple[int, Delivery]]:
        """Return the deliveries with their ids, which are also their tags, as four bytes."""
        found = next((each for each in self.sessions if each.wire.channel == channel), None)
        return () if found is None else found.unsettled(tag)

    def drained(self) -> None:
        for session in list(self.sessions):
            session.wake_all()

    def alarm(self, reason: str | None) -> None:
        """Stop or permit publishing in all sessions; deliveries and their outcomes continue (S162)."""
        for session in self.sessions:
            if reason is None:
                session.wire.unhold()
            else:
                session.wire.hold()

    def shut_down(self, reason: str) -> None:
        self.wire.fail(AmqpError(p.CONNECTION_FORCED, f"Connection forced: {reason}", Ends.CONNECTION))

    def on_expired(self) -> None:
        self.wire.fail(_unauthorized("credential expired"))

    def on_sasl_init(self, mechanism: str, response: bytes) -> bytes | Wait | None:
        return self.answered(self._login.begin, mechanism, response)

    def on_sasl_response(self, response: bytes) -> bytes | Wait | None:
        return self.answered(self._login.answer, response)

    def on_sasl_checked(self) -> bytes | Wait | None:
        return self.answered(self._login.go_on)

    def last_words(self) -> bytes | None:
        return self._last_words or None

    def refused_login(self, failure: Failure) -> AmqpError:  # X046
        return refusal(failure)

    def change_secret(self, secret: bytes, renewed: Callable[[], None] = nothing) -> bool:
        """Renew the client's secret (X086). Returns False if it has to be checked first; `renewed` is called after
        that.

        Raises AmqpError, which ends the connection, if the secret is refused.
        """
        if self.renew(secret) is Wait.WAIT:
            self._on_renewed = renewed
            return False
        return True

    def renewed(self, user: User | None) -> None:
        try:
            self.change_user(user)
            self._on_renewed()
        except AmqpError as error:
            self.wire.fail(error)

    def refused_secret(self, failure: Failure | None) -> AmqpError:
        why = "credential update failed: the new secret was refused" if failure is None else str(failure)
        return _unauthorized(why)

    def recheck(self) -> None:
        for session in list(self.sessions):
            session.recheck()

    def on_open(self, open: p.Open) -> dict[str, Value]:
        name = self._virtual_host(open.hostname)
        if name not in self.broker.virtual_hosts:
            why = f"AMQP 1.0 connection failed: virtual host '{name}' does not exist"
            raise self._turned_away(_unauthorized(why))
        try:
            self.enter(name)
        except LimitReached as failure:
            # Where the text of 0-9-1 names a connection limit, that of 1.0 names a vhost's (X047).
            why = str(failure).replace("': connection limit (", "': vhost connection limit (")
            raise self._turned_away(AmqpError(p.RESOURCE_LIMIT_EXCEEDED, why, Ends.CONNECTION)) from None
        except Failure as failure:
            raise self._turned_away(_unauthorized(str(failure))) from None
        entrant = ContainerConnection.of(open, self.client.user.name, self.wire.fail)
        try:
            self.client.host.guest(Containers).enter(entrant, (open.properties or {}).get(POLICY))
            self._in_container = entrant
        except AmqpError as error:  # JMS clients have to be told, also where a refused open is dropped
            self.wire.fail(self._turned_away(error))
        return {**self.product(), "node": self.config.node.name}  # X050

    def _virtual_host(self, hostname: str | None) -> str:
        """Return the name of the virtual host for a hostname (S165)."""
        if hostname is not None and hostname.startswith(VIRTUAL_HOST):
            return hostname.removeprefix(VIRTUAL_HOST)
        return self.default_virtual_host

    def _turned_away(self, error: AmqpError) -> AmqpError:
        log.warning("%s: user '%s': %s", self.peer.name, self.client.user.name, error.description)
        return error

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
        self._received_before += session.wire.received
        del self.sessions[session]

    def on_closed(self) -> None:
        if self._entered:
            if self._in_container is not None:
                self.client.host.guest(Containers).leave(self._in_container)
            termini.ended(self.client.host, self)
        super().on_closed()


def _unauthorized(why: str) -> AmqpError:
    return AmqpError(p.UNAUTHORIZED_ACCESS, why, Ends.CONNECTION)
