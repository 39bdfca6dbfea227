"""The front-end of MQTT, between the protocol's machine and a `Client` of the core.

    node ──bytes──> Connection ──> AdapterMqtt ──> Session ──> broker_core
                        └──> TrafficHandler ──> Publishing ──> broker_core
    node <──outbox── packets <──── Answers, QueueConsumer <──── queues

A connection logs in, opens the session of its client, and serves it until either ends.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import ClassVar, Final

import attrs

from leveret.broker import Broker
from leveret.config.config import Config
from leveret.delivery import Delivery
from leveret.errors import Failure
from leveret.front_end import Peer
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.outbox import Outbox
from leveret.protocols.mqtt.broker.answers import Answers
from leveret.protocols.mqtt.broker.errors import error_of
from leveret.protocols.mqtt.broker.listings import Measures
from leveret.protocols.mqtt.broker.registration import NAME
from leveret.protocols.mqtt.broker.session import PREFIX, Session
from leveret.protocols.mqtt.broker.sessions import sessions_of
from leveret.protocols.mqtt.broker.settings import MqttSettings
from leveret.protocols.mqtt.broker.traffic_handler import TrafficHandler
from leveret.protocols.mqtt.broker.virtual_hosts import divided, virtual_host_of
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.errors import MqttError, ProtocolError
from leveret.protocols.mqtt.codec.packets import (
    MQTT_5,
    MQTT_311,
    Connect,
    Disconnect,
    Subscribe,
    Unsubscribe,
)
from leveret.protocols.mqtt.machine.connection import Connection
from leveret.protocols.mqtt.machine.contract import Accepted, Answer, Challenge, Handler, Renewed, Terms
from leveret.protocols.shared.broker.machine_ends import ServingWriter
from leveret.protocols.shared.broker.served_connection import ServedConnection
from leveret.protocols.shared.machine.contract import Wait
from leveret.security.login import Login
from leveret.security.sasl import Anonymous, External, Pending, Plain
from leveret.security.sasl import Challenge as SaslChallenge
from leveret.values import Table

log: Final = logging.getLogger("leveret.protocols")

VERSIONS: Final = {MQTT_311: "MQTT 3.1.1", MQTT_5: "MQTT 5.0"}
CLIENT_ID_MAX: Final = 255 - len(PREFIX) - len("qos0")  # bytes, as it is in the name of a queue
NEVER_EXPIRES: Final = 0xFFFF_FFFF


class KnownSettings:
    """The settings of MQTT in a configuration, read once: all connections of a node have the same objects."""

    __slots__ = ("_config", "_settings", "_terms")

    def __init__(self) -> None:
        self._config: Config | None = None
        self._settings = MqttSettings()
        self._terms = terms_of(self._settings)

    def of(self, config: Config) -> tuple[MqttSettings, Terms]:
        """Return the settings, and the limits for connections; they are read again if this is another configuration
        than before. Raises as `of` there does."""
        if config is not self._config:
            self._settings = config.protocols.of(NAME, MqttSettings)
            self._terms = terms_of(self._settings)
            self._config = config
        return self._settings, self._terms


def terms_of(settings: MqttSettings) -> Terms:
    """Return the limits for a connection."""
    return Terms(
        packet_size_max=settings.packet_size_max,
        connect_size_max=settings.connect_size_max,
        connect_timeout_s=settings.connect_timeout_s,
        keep_alive_max_s=settings.keep_alive_max_s,
        receive_maximum=settings.receive_maximum,
        in_flight_max=settings.in_flight_max,
        topic_alias_max=settings.topic_alias_max,
    )


KNOWN: Final = KnownSettings()


class AdapterMqtt(ServedConnection, Handler):
    """One connection."""

    TITLE: ClassVar[str] = "MQTT"
    LOG: ClassVar[logging.Logger] = log
    ENDS_WITH_DATA: ClassVar[bool] = True
    wire: Connection

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        self.settings, terms = KNOWN.of(config)
        super().__init__(broker, config, outbox, peer, self.settings.mechanisms)
        self.answers = Answers(broker, outbox)
        self.session: Session | None = None
        self._traffic: TrafficHandler | None = None  # until the first message or acknowledgement
        self._again: Login | None = None  # another authentication of a client that is in
        self._connect: Connect | None = None  # until the client is in
        self._method = ""  # of an enhanced authentication
        self.begin(Connection(self, terms, ServingWriter(outbox, broker, self), now))

    # The node's side.

    def alarm(self, reason: str | None) -> None:
        if reason is None and self.blocked:
            self.release()

    def drained(self) -> None:
        if self.session is not None and self.session.served is self:
            self.session.wake()

    def shut_down(self, reason: str) -> None:
        self.wire.fail(MqttError(r.ADMINISTRATIVE_ACTION, reason))

    def on_expired(self) -> None:
        self.wire.fail(MqttError(r.NOT_AUTHORIZED, "the credential has expired"))

    # Facts.

    def facts(self) -> ConnectionFacts | None:
        session = self.session
        if not self._entered or session is None:
            return None
        version = self.wire.version
        properties: Table = {
            "product": "MQTT client",
            "client_id": session.client_id,
            "connection_name": session.client_id,
            "clean_start": self.clean_start,
            "session_expiry_interval": session.expiry_s,
            "will": session.will is not None,
        }
        facts = self.facts_with(properties, 1, self.settings.packet_size_max, 1, session.client_id)
        return attrs.evolve(facts, protocol=VERSIONS[version])

    def channel_facts(self) -> Iterable[ChannelFacts]:
        session = self.session
        if not self._entered or session is None or session.served is not self:
            return
        yield ChannelFacts(
            number=1,
            confirming=True,
            shared_prefetch=session.in_flight_max,
            consumers=len(session.groups),
            unsettled=len(session.flights),
            unconfirmed=self.wire.receiving,
            published=self.wire.published,
            confirmed=0 if self._traffic is None else self._traffic.confirmed,
            delivered=session.delivered,
            delivered_settled=session.delivered_settled,
            accepted=session.accepted,
        )

    def unsettled(self, channel: int, tag: int | None = None) -> Iterable[tuple[int, Delivery]]:
        session = self.session
        if session is None or session.served is not self:
            return ()
        flights = session.flights.by_id.items()
        return [
            (number, each.token)
            for number, each in flights
            if each.token is not None and tag in (None, number)
        ]

    # Logging in.

    def on_connect(self, connect: Connect) -> Answer:
        self._connect = connect
        self.clean_start = connect.clean_start
        method = connect.properties.authentication_method
        if method is not None:
            self._method = method
            data = connect.properties.authentication_data or b""
            return self._stepped(self.answered(self._login.begin, method, data))
        if connect.user_name is None:
            name = External.name if External.name in self._mechanisms.offered else Anonymous.name
            return self._stepped(self.answered(self._login.begin, name, b""))
        user = divided(connect.user_name)[1].encode()
        if b"\0" in user:
            raise MqttError(r.BAD_USER_NAME_OR_PASSWORD, "the user name contains a NUL")
        response = b"\0".join((b"", user, connect.password or b""))
        return self._stepped(self.answered(self._login.begin, Plain.name, response))

    def on_auth(self, octets: bytes, again: bool) -> Answer:
        if self._entered:
            return self._step_again(octets, again)
        return self._stepped(self.answered(self._login.answer, octets))

    def on_checked(self) -> Answer:
        if self._again is not None:
            return self._renewed(self._again.go_on)
        return self._stepped(self.answered(self._login.go_on))

    def _stepped(self, answer: bytes | Wait | None) -> Answer:
        if isinstance(answer, Wait):
            return answer
        if answer is not None:
            if not self._method:
                raise MqttError(r.BAD_AUTHENTICATION_METHOD, "this way of logging in needs an AUTH exchange")
            return Challenge(answer)
        return self._admitted()

    def refused_login(self, failure: Failure) -> MqttError:
        return error_of(failure)

    def _admitted(self) -> Accepted:
        """Enter the virtual host, and open the session. Raises MqttError."""
        connect, self._connect = self._connect, None
        assert connect is not None
        client_id, assigned = connect.client_id, None
        if not client_id:
            if connect.version == MQTT_311 and not connect.clean_start:
                raise MqttError(
                    r.CLIENT_IDENTIFIER_NOT_VALID, "a client without an id has no session to keep"
                )
            client_id = f"auto-{secrets.token_urlsafe(16)}"
            assigned = client_id if connect.version == MQTT_5 else None
        if len(client_id.encode()) > CLIENT_ID_MAX:
            raise MqttError(
                r.CLIENT_IDENTIFIER_NOT_VALID, f"a client id has at most {CLIENT_ID_MAX} bytes here"
            )
        asked_s, expiry_s = self._expiry(connect)
        self.client.client_id = client_id
        try:
            self._require_will(connect)
            self.enter(self._virtual_host(connect.user_name))
            sessions = sessions_of(self.client.host)
            user = self.client.user.name
            session, present = sessions.open(client_id, user, self.settings, connect.clean_start, expiry_s)
        except Failure as failure:
            log.warning("%s: client '%s': %s", self.peer.name, client_id, failure)
            raise error_of(failure) from None
        self.session = session
        self.broker.guest(Measures)
        session.attach(self, self.client, connect.will, self.wire.in_flight_max)
        self._promise(session)
        return Accepted(
            session_present=present,
            assigned_client_id=assigned,
            session_expiry_s=expiry_s if expiry_s != asked_s else None,
            octets=self._last_words,
        )

    def _virtual_host(self, user_name: str | None) -> str:
        broker = self.broker
        return virtual_host_of(user_name, self.peer, self.settings, self.config, broker.parameters)

    def _require_will(self, connect: Connect) -> None:
        will = connect.will
        if will is not None and will.retain and len(will.payload) > self.settings.retained_size_max:
            raise MqttError(r.QUOTA_EXCEEDED, "the will is too large to be retained")

    def _expiry(self, connect: Connect) -> tuple[int, int]:
        """Return the session expiry interval that a client asks for, and the one that it gets."""
        longest = self.settings.session_expiry_max_s
        if connect.version == MQTT_311:
            asked = 0 if connect.clean_start else longest
        else:
            asked = connect.properties.session_expiry_interval or 0
        return asked, min(asked, longest)

    def on_open(self) -> None:
        assert self.session is not None
        try:
            self.session.go_on()
        except Failure as failure:
            log.warning("%s: its session cannot go on: %s", self.peer.name, failure)
            raise error_of(failure) from None

    def traffic(self) -> TrafficHandler:
        session = self.session
        assert session is not None
        size_max = self.config.message_size_max
        self._traffic = TrafficHandler(self.client, session, self.settings, size_max, self.answers, self.wire)
        return self._traffic

    # Authenticating again.

    def _step_again(self, octets: bytes, begins: bool) -> Answer:
        if begins:
            self._again = Login(
                self.broker, self._mechanisms, self.peer, self.TITLE, log, self.ENDS_WITH_DATA
            )
            return self._renewed(lambda: self._begun(octets))
        again = self._again
        if again is None:
            raise ProtocolError("no authentication goes on")
        return self._renewed(lambda: again.answer(octets))

    def _begun(self, octets: bytes) -> object:
        assert self._again is not None
        return self._again.begin(self._method, octets)

    def _renewed(self, step: object) -> Answer:
        try:
            answer = step()  # type: ignore[operator]
        except Failure as failure:
            raise MqttError(r.NOT_AUTHORIZED, str(failure)) from None
        if isinstance(answer, Pending):
            self.wait_for(answer.waiting)
            return Wait.WAIT
        if isinstance(answer, SaslChallenge):
            return Challenge(answer.octets)
        self._again = None
        try:
            self.client.change_user(answer.user)
        except Failure as failure:
            raise error_of(failure) from None
        self.expires_at = self.client.expires_at
        if self.session is not None and not self.session.may_go_on():
            raise MqttError(r.NOT_AUTHORIZED, "the user may no longer read what the client subscribes to")
        return Renewed(answer.octets)

    # Subscriptions.

    def on_subscribe(self, subscribe: Subscribe) -> tuple[int, ...]:
        session = self.session
        assert session is not None
        identifiers = subscribe.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        codes = session.subscribe_all(subscribe.subscriptions, identifier)
        self._promise(session)
        return codes

    def _promise(self, session: Session) -> None:
        """Answer once what a session keeps is on disk: its client relies on it after a restart."""
        if session.record is not None:
            self.broker.hold_answer()

    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> tuple[int, ...]:
        session = self.session
        assert session is not None
        codes = session.unsubscribe_all(unsubscribe.topic_filters)
        self._promise(session)
        return codes

    # The end.

    def on_disconnect(self, disconnect: Disconnect) -> None:
        session = self.session
        assert session is not None
        expiry_s = disconnect.properties.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not session.lasts:
                raise ProtocolError("a session that was to end with its connection cannot be kept")
            session.set_expiry(min(expiry_s, self.settings.session_expiry_max_s))
        if disconnect.reason_code == r.NORMAL_DISCONNECTION:
            session.will = None

    def release_some(self) -> bool:
        """Release nothing before the end: the session gives up its queues when it parts from the connection."""
        return False

    def on_closed(self) -> None:
        self.answers.end()
        session, self._connect = self.session, None
        if session is not None and session.served is self:
            session.detach()
        if self._again is not None:
            self._again.drop()
        super().on_closed()
