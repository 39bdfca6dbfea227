"""AMQP 0-9-1 on the broker: an adapter from the wire's machine to a `Client` of the core.

    node ──bytes──> Connection (wire) ──calls──> Adapter091, TrafficHandler ──> Channel ──> broker_core
    node <──outbox── frames <── Channel / ChannelConsumer <── broker_core

The core's refusals come as `Failure`s; `errors` has the reply code for each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import ClassVar, Final

from leveret.broker import Broker
from leveret.config.compat import FlowMechanism, Product, UnknownVirtualHost
from leveret.config.config import Config
from leveret.delivery import Delivery
from leveret.errors import Failure
from leveret.front_end import Peer
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.outbox import Outbox
from leveret.protocols.amqp091.broker import stats as facts
from leveret.protocols.amqp091.broker.amqplain import AmqPlain
from leveret.protocols.amqp091.broker.channel import METHODS, Channel
from leveret.protocols.amqp091.broker.errors import reply
from leveret.protocols.amqp091.broker.traffic_handler import TrafficHandler
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.fields import values_in
from leveret.protocols.amqp091.codec.wire import FieldTable, Method
from leveret.protocols.amqp091.machine.connection import AmqpError, Connection, Handler, Tuning
from leveret.protocols.shared.broker.ack_timeouts import tagged
from leveret.protocols.shared.broker.machine_ends import ServingWriter
from leveret.protocols.shared.broker.served_connection import RenewableConnection
from leveret.protocols.shared.machine.contract import Wait
from leveret.security.sasl import Mechanism
from leveret.security.users import User

log: Final = logging.getLogger("leveret.amqp091")
UPDATE_SECRET: Final = m.ConnectionUpdateSecret.class_id, m.ConnectionUpdateSecret.method_id
AGAIN_S: Final = 0.005  # until a method comes again whose message was on another machine
PROPERTIES_MAX: Final = 100  # of a client; each takes several times the bytes that it has on the wire

CAPABILITIES: Final[FieldTable] = dict.fromkeys(
    (
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ),
    True,
)


class Adapter091(RenewableConnection, Handler):
    """A connection with its authentication, its virtual host, its channels, and its alarms."""

    TITLE: ClassVar[str] = "AMQP 0-9-1"
    LOG: ClassVar[logging.Logger] = log
    MECHANISMS: ClassVar[tuple[type[Mechanism], ...]] = (AmqPlain,)
    wire: Connection

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        super().__init__(broker, config, outbox, peer, config.protocols.amqp091.mechanisms)
        self.channels: dict[int, Channel] = {}
        self._traffic = TrafficHandler(broker, self.channels)
        self.begin(Connection(self, self._traffic, self._tuning(), ServingWriter(outbox, broker, self), now))
        self._traffic.wire = self.wire

    def _tuning(self) -> Tuning:
        settings = self.config.protocols.amqp091
        return Tuning(
            channel_max=settings.channel_max,
            frame_max=settings.frame_max,
            heartbeat_s=settings.heartbeat_s,
            frame_min=self.config.compat.chosen.frame_min_size,
            initial_frame_max=settings.initial_frame_max,
            body_size_max=self.config.message_size_max,
            handshake_timeout_s=self.config.limits.handshake_timeout_s,
            mechanisms=self._mechanisms.offered,
            server_properties={
                **self.product(),
                "cluster_name": self.config.node.name,
                "capabilities": CAPABILITIES,
            },
            serves_1_0=self.peer.served is None or "amqp10" in self.peer.served,
        )

    def put_off(self) -> None:
        """Have the method that is being handled come again in a moment, and nothing of this client before."""
        self.wire.again = True
        if not self.waits:
            self.waits = True
            self.broker.timers.at(self.broker.now + AGAIN_S, self._try_again)

    def _try_again(self, now: float) -> None:
        if self.waits:
            self.wake()

    @property
    def shares_prefetch(self) -> bool:
        """True if this client means a channel's prefetch when it does not set `global`.

        That is what the specification says, and what kombu, and with it Celery, expects of every broker that does not
        call itself RabbitMQ 3: a Celery worker raises its prefetch for each task that waits for its time.
        """
        is_kombu = self.wire.client_properties.get("product") == "py-amqp"
        return is_kombu and self.broker.compat.product is not Product.RABBITMQ_3

    def facts(self) -> ConnectionFacts | None:
        return facts.connection_facts(self) if self._entered else None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        return map(facts.channel_facts, list(self.channels.values()))

    def counted_channels(self) -> Iterable[ChannelFacts | None]:
        return map(facts.counts, list(self.channels.values()))

    def unsettled(self, channel: int, tag: int | None = None) -> Iterable[tuple[int, Delivery]]:
        found = self.channels.get(channel)
        return () if found is None else tagged(found.unsettled, tag)

    def drained(self) -> None:
        for channel in self.channels.values():
            channel.wake_all()

    def shut_down(self, reason: str) -> None:
        """End the connection with connection.close (X009)."""
        self.wire.fail(AmqpError(m.CONNECTION_FORCED, reason))

    def heard_during(self, reason: str, published: int) -> None:
        """Stop reading from a client that publishes during an alarm, or ask its channels to pause (S155-S158)."""
        if not published and not self.wire.is_receiving():
            return
        if self.config.compat.chosen.flow_mechanism is FlowMechanism.CHANNEL_FLOW:
            self._throttle(False)
        elif not self.blocked:
            self.hold_back()
            self.wire.blocked(reason)

    def alarm(self, reason: str | None) -> None:
        if self.config.compat.chosen.flow_mechanism is FlowMechanism.CHANNEL_FLOW:
            self._throttle(reason is None)
        elif reason is None and self.blocked:
            self.release()
            self.wire.unblocked()
        elif reason is not None and self.blocked:
            self.wire.blocked(reason)  # another alarm was raised

    def _throttle(self, active: bool) -> None:
        for channel in self.channels.values():
            if channel.publishing.published and channel.asked_to_flow is not active:
                channel.asked_to_flow = active
                channel.send(m.ChannelFlow(active))

    def on_start_ok(
        self, mechanism: str, response: bytes, client_properties: FieldTable
    ) -> bytes | Wait | None:
        if values_in(client_properties) > PROPERTIES_MAX:
            self.wire.client_properties = {}
            raise AmqpError(m.SYNTAX_ERROR, f"more than {PROPERTIES_MAX} client properties")
        return self.answered(self._login.begin, mechanism, response)

    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        return self.answered(self._login.answer, response)

    def on_checked(self) -> bytes | Wait | None:
        return self.answered(self._login.go_on)

    def refused_login(self, failure: Failure) -> AmqpError:
        return reply(failure)

    def on_update_secret(self, secret: bytes, reason: str) -> Wait | None:
        """Begin to change the user to the one with this secret (X008)."""
        return self.renew(secret)

    def renewed(self, user: User | None) -> None:
        try:
            self.change_user(user)
        except AmqpError as error:
            self.wire.fail(error)
        else:
            self.wire.secret_updated()

    def refused_secret(self, failure: Failure | None) -> AmqpError:
        if failure is None:
            return AmqpError(m.NOT_ALLOWED, "New secret was refused by one of the backends", *UPDATE_SECRET)
        return reply(failure, *UPDATE_SECRET)

    def recheck(self) -> None:
        for channel in self.channels.values():
            channel.recheck_consumers()

    def on_open(self, virtual_host: str) -> None:
        strict = self.broker.compat.unknown_virtual_host is UnknownVirtualHost.INVALID_PATH
        if strict and virtual_host not in self.broker.virtual_hosts:
            raise AmqpError(m.INVALID_PATH, f"vhost {virtual_host} not found")
        try:
            self.enter(virtual_host)
        except Failure as failure:
            raise reply(failure) from None

    def on_channel_open(self, channel: int) -> None:
        try:
            self.client.open_channel()
        except Failure as failure:
            raise reply(failure) from None
        self.channels[channel] = Channel(self, channel)

    def release_some_of(self, channel: int) -> bool:
        return self.channels[channel].end_consumer()

    def on_channel_closed(self, channel: int) -> None:
        self.client.close_channel()
        closed = self.channels.pop(channel)
        closed.close()

    def on_method(self, channel: int, method: Method) -> None:
        handle = METHODS.get(type(method))
        if handle is None:
            raise AmqpError(m.COMMAND_INVALID, "unimplemented method", method.class_id, method.method_id)
        self.broker.settle()  # settle what earlier input of this read has caused, so that it happens first
        here = self.channels.get(channel)
        if here is None:  # settling has ended the channel
            return
        try:
            handle(here, method)
        except Failure as failure:
            raise reply(failure, method.class_id, method.method_id) from None
