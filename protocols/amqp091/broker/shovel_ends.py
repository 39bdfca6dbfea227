"""The ends of shovels and other transfers on other brokers, which are spoken to over AMQP 0-9-1.

    open ─> dial ─> handshake, channel ─> the queue is there, or is declared ─> consume, or confirm.select ─> opened

A queue is asked for passively first, so that it need not have the arguments with which it would be declared; if it is
missing, the broker closes the channel, which is opened again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from leveret.errors import PreconditionFailed
from leveret.features.transfers.definition import AckMode
from leveret.features.transfers.ends import (
    REFUSES,
    DestinationEnd,
    EndListener,
    Journey,
    SourceEnd,
    goes_nowhere,
    settles,
)
from leveret.message import Message
from leveret.protocols.amqp091.broker.core_values import field_table
from leveret.protocols.amqp091.broker.encoding import ENCODING, rendered
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method
from leveret.protocols.amqp091.machine.client import Client, Login, Owner
from leveret.protocols.shared.broker.machine_ends import OutboxWriter
from leveret.protocols.shared.broker.remote_end import Link
from leveret.protocols.shared.broker.remote_end import RemoteEnd as DialledEnd
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri
    from leveret.features.transfers.definition import EndSettings
    from leveret.outbox import Outbox

TAG: Final = "shovel"


class Returned(NamedTuple):
    """A message as the other broker returns it."""

    exchange: str
    key: str
    properties: bytes
    body: bytes


class RemoteEnd(DialledEnd[Client], Owner):
    """The base of both ends: the channel, and the queue."""

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(journey, uri, listener)
        self._may_declare = False  # the queue has been looked for, and is missing

    @property
    def _end(self) -> EndSettings:
        raise NotImplementedError

    @property
    def _virtual_host(self) -> str:
        return "/" if self._uri.virtual_host is None else self._uri.virtual_host

    def _queue_there(self, waiting: int) -> None:
        """Called when the queue is there; go on."""
        raise NotImplementedError

    def _client_on(self, outbox: Outbox, now: float, body_size_max: int) -> Link[Client]:
        uri, name = self._uri, self._journey.title
        login = Login(
            uri.mechanism,
            uri.user,
            uri.password,
            self._virtual_host,
            uri.heartbeat_s,
            uri.timeout_s,
            body_size_max,
            {"product": "Leveret", "version": VERSION, "connection_name": name},
        )
        client = Client(self, login, OutboxWriter(outbox), now)
        return Link(client, outbox, f"to {login.virtual_host}")

    def _send(self, method: Method) -> None:
        if self._link is not None:
            self._link.client.send(method)

    def on_refused(self, code: int, reason: str) -> bool:
        if code == m.NOT_FOUND and not self._may_declare and self._end.queue and not self._end.predeclared:
            self._may_declare = True
            return True
        return False

    def _seek_queue(self, name: str) -> None:
        if self._may_declare:
            arguments = field_table(self._end.arguments)
            self._send(m.QueueDeclare(name, durable=True, arguments=arguments))
        else:
            self._send(m.QueueDeclare(name, passive=True))

    def on_method(self, method: Method) -> None:
        if isinstance(method, m.QueueDeclareOk):
            self._name = method.queue
            self._queue_there(method.message_count)


class RemoteSource(RemoteEnd, SourceEnd):
    """The base of sources: the connection is not read while they pause."""

    @property
    def _end(self) -> EndSettings:
        return self._journey.definition.source


class Source091(RemoteSource):
    """A queue or an exchange of another broker, to consume from."""

    _waiting = 0
    _name = ""

    def on_open(self) -> None:
        if not settles(self._journey):
            self._send(m.BasicQos(0, self._journey.definition.prefetch, False))
        if self._end.queue is not None:
            self._seek_queue(self._end.queue)
        else:
            self._send(m.QueueDeclare("", exclusive=True, arguments=field_table(self._end.arguments)))

    def _queue_there(self, waiting: int) -> None:
        self._waiting = waiting
        if self._end.exchange is not None:
            self._send(m.QueueBind(self._name, self._end.exchange, self._end.key or ""))
        arguments = field_table(self._journey.definition.consumer_arguments)
        self._send(m.BasicConsume(self._name, TAG, no_ack=settles(self._journey), arguments=arguments))

    def on_method(self, method: Method) -> None:
        if isinstance(method, m.BasicConsumeOk):
            self._listener.opened(self._waiting)
        elif isinstance(method, m.BasicCancel):
            self._failed("the source queue has been deleted")
        else:
            super().on_method(method)

    def on_content(self, method: Method, properties: bytes, body: bytes) -> None:
        if self._is_closed or not isinstance(method, m.BasicDeliver):
            return
        try:
            facts, properties = ENCODING.published(properties)
        except PreconditionFailed as failure:
            self._failed(f"a message cannot be published here: {failure}")
            return
        self._listener.arrived(
            Message(ENCODING, method.exchange, method.routing_key, properties, body, facts)
        )

    def accept(self, number: int, multiple: bool) -> None:
        self._send(m.BasicAck(number, multiple))


class Destination091(RemoteEnd, DestinationEnd):
    """A queue or an exchange of another broker, to publish to.

    On confirm every message is mandatory. A message that is returned has no number: it is the first like it that is
    not confirmed yet, and if there are several, it does not matter which of them stays at the source.
    """

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(journey, uri, listener)
        self._sent: dict[int, Returned] = {}  # messages that are not confirmed yet
        self._number = 0  # of the last of them

    @property
    def _end(self) -> EndSettings:
        return self._journey.definition.destination

    @property
    def _confirms(self) -> bool:
        return self._journey.definition.ack_mode is AckMode.ON_CONFIRM

    def on_open(self) -> None:
        if self._link is not None:
            self._link.drain = self._listener.go_on
        if self._end.queue is not None:
            self._seek_queue(self._end.queue)
        else:
            self._queue_there(0)

    def _queue_there(self, waiting: int) -> None:
        if self._confirms:
            self._send(m.ConfirmSelect())
        else:
            self._listener.opened(None)

    def on_method(self, method: Method) -> None:
        if isinstance(method, m.BasicAck):
            self._confirmed(method)
        elif isinstance(method, m.BasicNack):
            self._refuse(method)
        elif isinstance(method, m.ConfirmSelectOk):
            self._listener.opened(None)
        else:
            super().on_method(method)

    def _confirmed(self, method: m.BasicAck) -> None:
        tag = method.delivery_tag
        if not method.multiple:
            self._sent.pop(tag, None)
        while method.multiple and self._sent and (first := next(iter(self._sent))) <= tag:
            del self._sent[first]
        if not self._is_closed:
            self._listener.confirmed(tag, method.multiple)

    def _refuse(self, method: m.BasicNack) -> None:
        if method.multiple:  # which messages it is about is not known
            self._failed(REFUSES)
        elif not self._is_closed:
            self._listener.refused(method.delivery_tag, REFUSES)

    def on_content(self, method: Method, properties: bytes, body: bytes) -> None:
        if isinstance(method, m.BasicReturn):
            self._returned(
                goes_nowhere(self._end, method.exchange, method.routing_key), method, properties, body
            )

    def _returned(self, reason: str, method: m.BasicReturn, properties: bytes, body: bytes) -> None:
        returned = Returned(method.exchange, method.routing_key, properties, body)
        number = next((number for number, sent in self._sent.items() if sent == returned), None)
        if number is None:
            self._failed(reason)
        elif not self._is_closed:
            del self._sent[number]
            self._listener.refused(number, reason)

    def has_room(self) -> bool:
        return self._link is not None and self._link.outbox.room() > 0

    def publish(self, message: Message) -> None:
        if self._link is None:
            return
        end = self._end
        exchange = "" if end.queue is not None else message.exchange if end.exchange is None else end.exchange
        key = end.queue if end.queue is not None else message.key if end.key is None else end.key
        properties, body = rendered(message)
        if self._confirms:
            self._number += 1
            self._sent[self._number] = Returned(exchange, key, properties, body)
        method = m.BasicPublish(exchange, key, mandatory=self._confirms)
        self._link.client.publish(method, properties, body)
