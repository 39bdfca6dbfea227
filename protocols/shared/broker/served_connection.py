"""The broker's side of a connection of any version of AMQP: it logs its user in, enters a virtual host, renews the
secret, and stops reading during alarms.

    machine ──mechanism, response──> ServedConnection ──> Login ──> a challenge, Wait, or None ──> machine

The versions differ in their errors for a refusal.
"""

from __future__ import annotations

import platform
from abc import abstractmethod
from collections.abc import Callable, Sequence
from logging import Logger
from typing import ClassVar, Final, ParamSpec

from leveret.broker import Broker
from leveret.client import Client
from leveret.config.compat import OfferExternal
from leveret.config.config import Config
from leveret.errors import Failure
from leveret.front_end import READ_ALL, FrontEnd, Peer
from leveret.intake import Intake
from leveret.observability.connection_stats import ConnectionFacts
from leveret.outbox import Outbox
from leveret.protocols.shared.broker.machine_ends import ServedIntake
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.contract import Wait
from leveret.publishing.publish_rate import Meter
from leveret.security.login import Login, Renewal
from leveret.security.password_checks import Waiting
from leveret.security.sasl import Answer, Challenge, External, Mechanism, Mechanisms, Pending
from leveret.security.users import User
from leveret.values import Table

P = ParamSpec("P")

READ_LITTLE: Final = 4096  # bytes to read at once from a client that has just waited for a queue
READ_LITTLE_S: Final = 0.05  # between such reads from a client that consumes while it waits


class ServedConnection(FrontEnd):
    """A connection with its authentication, its virtual host, and its alarms."""

    TITLE: ClassVar[str]  # the protocol's name in logs and management
    LOG: ClassVar[Logger]
    MECHANISMS: ClassVar[Sequence[type[Mechanism]]] = ()  # of this protocol only
    ENDS_WITH_DATA: ClassVar[bool] = False  # whether the end of a login can carry data of the mechanism
    client: Client  # set once the user is known
    wire: ConnectionMachine

    def __init__(
        self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, mechanisms: Sequence[str]
    ) -> None:
        self.broker = broker
        self.config = config
        self.outbox = outbox
        self.peer = peer
        self.is_stranger = True
        if broker.compat.external is OfferExternal.CERTIFICATE and External.name not in mechanisms:
            mechanisms = (*mechanisms, External.name)
        self._mechanisms = Mechanisms(broker.access, mechanisms, self.MECHANISMS, peer.certified, peer.host)
        self._login = Login(broker, self._mechanisms, peer, self.TITLE, self.LOG, self.ENDS_WITH_DATA)
        self._last_words = b""  # that the mechanism sends at the end of the login
        self._entered = False

    def begin(self, wire: ConnectionMachine) -> None:
        """Set the machine of the connection, before any input."""
        self.wire = wire
        self._intake = ServedIntake(self.broker, self, wire)

    @abstractmethod
    def refused_login(self, failure: Failure) -> Exception:
        """Return the protocol's error for a failed login."""

    @property
    def default_virtual_host(self) -> str:
        """Return the name of the virtual host of clients that name none."""
        return self.peer.virtual_host or self.config.virtual_hosts[0].name

    def product(self) -> dict[str, str]:
        """Return the product fields of the server properties that every peer gets (S005, X050)."""
        product, version = self.broker.compat.product_and_version
        host = {"host": self.peer.local_host} if self.broker.compat.tell_host else {}
        return {
            **host,
            "product": product,
            "version": version,
            "copyright": "Copyright (c) the authors of Leveret",
            "platform": f"Python {platform.python_version()}",
            "information": "Licensed under Apache-2.0",
        }

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.wire.closed

    @property
    def gave_up(self) -> bool:  # type: ignore[override]
        return self.wire.gave_up

    @property
    def halted(self) -> bool:  # type: ignore[override]
        return self._intake.is_halted()

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"user '{self.client.user.name}', vhost '{self.client.host.name}'" if self._entered else ""

    def intake(self) -> Intake:
        return self._intake

    def receive(self, data: bytes, now: float) -> None:
        self._intake.receive(data, now)

    def heard(self, published: int) -> None:
        """Called after a read that has brought so many messages, if rates, full queues or an alarm hold for them."""
        if self.client.meter is not None:
            self.count(self.client.meter, published)
        if self.broker.overfull:
            self.wait_for_queues()
        reason = self.broker.alarms.reason
        if reason and self._entered:  # a connection that has left the virtual host is read to its end
            self.heard_during(reason, published)

    def heard_during(self, reason: str, published: int) -> None:
        """Called after a read during an alarm."""
        if published:
            self.hold_back()

    def deadline(self) -> float | None:
        return self.wire.deadline()

    def on_deadline(self, now: float) -> None:
        self.wire.on_deadline(now)

    def lost(self) -> None:
        self.wire.lost()
        if self.wire.peer_spoke and not self.wire.peer_spoke.startswith(self.TITLE):
            self.LOG.warning("%s: refused, detected %s", self.peer.name, self.wire.peer_spoke)
        elif self.wire.peer_spoke:
            self.LOG.info("%s: ended, %r", self.peer.name, self.wire.ended_because)

    def facts_with(
        self,
        client_properties: Table,
        channel_max: int,
        frame_max: int,
        channels: int,
        container_id: str | None = None,
    ) -> ConnectionFacts:
        """Return the facts for management about a connection that has opened its virtual host."""
        attempt = self._login.attempt
        return ConnectionFacts(
            protocol=self.TITLE,
            user=self.client.user.name,
            virtual_host=self.client.host.name,
            mechanism="" if attempt is None else attempt.name,
            client_properties=client_properties,
            blocked=self.blocked,
            throttled=self.throttled,
            channel_max=channel_max,
            frame_max=frame_max,
            heartbeat_s=self.wire.heartbeat_s,
            channels=channels,
            unfinished_bytes=self.wire.unfinished.size,
            container_id=container_id,
        )

    def hold_back(self) -> None:
        """Called when the client has published during an alarm: nothing is read from it, nor is its silence watched."""
        self.blocked = True
        self.wire.pause_monitor()

    def release(self) -> None:
        """Called when the last alarm is over."""
        self.blocked = False
        if not self.throttled:
            self.wire.resume_monitor(self.broker.tick())

    def suspend(self) -> None:
        self.wire.pause_monitor()

    def resume(self, now: float) -> None:
        if not (self.blocked or self.throttled):
            self.wire.resume_monitor(now)

    def count(self, meter: Meter, published: int) -> None:
        """Count messages of this read for the rates that hold for the client. Read no more if they are used up."""
        if published:
            meter.count(published, self.broker.now)
        if meter.waits and self._entered:
            self._throttle_reads(meter)

    def _throttle_reads(self, meter: Meter) -> None:
        self.throttled, self.read_max = True, meter.read_max
        self.wire.pause_monitor()

    def wait_for_queues(self) -> None:
        """Called when the client has published to queues that are too long: read no more until they are shorter.

        From a client that also consumes a little is read now and then: it may be the one that makes them shorter.
        """
        self.client.wait_for_overfull()
        self.throttled, self.read_max = True, READ_LITTLE
        self.wire.pause_monitor()
        if any(each.consumers or each.unsettled for each in self.channel_facts()):
            self.broker.timers.at(self.broker.now + READ_LITTLE_S, self._read_a_little)

    def _read_a_little(self, now: float) -> None:
        if self._entered and self.client.waits_for:
            self.client.wait_no_longer()
            self._resumed()

    def _resumed(self) -> None:
        """Called when the rates and the queues allow the client to publish again: read on."""
        meter = self.client.meter
        if self.client.waits_for or (meter is not None and meter.waits):
            return
        self.throttled = False
        self.read_max = READ_ALL if meter is None else meter.read_max
        if not (self.blocked or self.wire.closed):
            self.wire.resume_monitor(self.broker.now)
        if self.on_resume is not None:
            self.on_resume()

    def answered(self, step: Callable[P, Answer], *given: P.args, **named: P.kwargs) -> bytes | Wait | None:
        """Take a step of the login: return the next challenge, Wait while a password is checked, or None when the user
        is logged in. Raises `refused_login`."""
        try:
            answer = step(*given, **named)
        except Failure as failure:
            raise self.refused_login(failure) from None
        if isinstance(answer, Pending):
            self.wait_for(answer.waiting)
            return Wait.WAIT
        if isinstance(answer, Challenge):
            return answer.octets
        self.client = Client(self.broker, answer.user, self.peer.name)
        self._last_words = answer.octets
        return None

    def renew_if_checked(self) -> None:
        """Complete the renewal of a secret, if it has been checked."""

    def wake(self) -> None:
        self.wire.halted = True
        super().wake()

    def enter(self, virtual_host: str) -> None:
        """Let the user enter this virtual host, which completes the login. Raises the core's failures."""
        self.client.resumed = self._resumed
        self.client.address = self.peer.host
        self.client.enter(virtual_host)
        self._entered = True
        self._intake.client = self.client
        if self.client.meter is not None:
            self.read_max = self.client.meter.read_max
        self.is_stranger = False
        self.expires_at = self.client.expires_at
        facts = self.facts()
        told = facts and (facts.client_properties.get("connection_name") or facts.container_id)
        self.LOG.info(
            "%s: logged in: %s%s", self.peer.name, self.description, f", client {told!r}" if told else ""
        )

    def release_some(self) -> bool:
        return self._entered and self.client.abandon_queue()

    def on_closed(self) -> None:
        self.blocked = self.throttled = False  # the peer's answer to our close must be read
        self._stop_waiting()
        if self._entered:
            self._entered = False
            self._intake.client = None
            self.client.leave()

    def _stop_waiting(self) -> None:
        self._login.drop()
        if self.waits:
            self.wake()


class RenewableConnection(ServedConnection):
    """A connection whose client may renew its secret."""

    def __init__(
        self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, mechanisms: Sequence[str]
    ) -> None:
        super().__init__(broker, config, outbox, peer, mechanisms)
        self._renewal = Renewal(broker, peer, self.LOG)

    @abstractmethod
    def refused_secret(self, failure: Failure | None) -> Exception:
        """Return the protocol's error for a secret that is wrong (None), or that cannot be used."""

    @abstractmethod
    def recheck(self) -> None:
        """End what the user may not do any more."""

    def renew(self, secret: bytes) -> Wait | None:
        """Change the user to the one with this secret, now or when it has been checked. Raises `refused_secret`.

        Where the profile says so, any secret will do for a user with a password, which does not expire: then only the
        user's permissions are looked at again.
        """
        user = self.client.user
        if not self.broker.compat.checks_secret(expires=user.scopes is not None):
            self.change_user(self.broker.access.user(user.name))
            return None
        try:
            found = self._renewal.begin(user.name, secret, user.scopes is not None)
        except Failure as failure:
            raise self.refused_secret(failure) from None
        if isinstance(found, Waiting):
            self._intake.renews = True
            self.wait_for(found)
            return Wait.WAIT
        self.change_user(found)
        return None

    def renew_if_checked(self) -> None:
        checked = self._renewal.checked()
        self._intake.renews = self._renewal.waiting is not None
        if checked is not None:
            self.renewed(checked.user)

    @abstractmethod
    def renewed(self, user: User | None) -> None:
        """Change the user to the one whose new secret has been checked, and tell the client."""

    def change_user(self, user: User | None) -> None:
        if user is None:
            raise self.refused_secret(None)
        try:
            self.client.change_user(user)
        except Failure as failure:
            raise self.refused_secret(failure) from None
        self.expires_at = self.client.expires_at
        self.recheck()

    def _stop_waiting(self) -> None:
        self._renewal.drop()
        self._intake.renews = False
        super()._stop_waiting()
