"""The feeds of a federation from other brokers, which are spoken to over AMQP 0-9-1.

What has to be there is asked for in steps, one method at a time: each waits for the broker's answer. Where a step may
be refused, the broker closes the channel, which is opened again, and the next step knows.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from leveret.errors import PreconditionFailed
from leveret.features.federation.feed import PRIORITY, Propagation, Side
from leveret.features.federation.hops import INTERNAL_TYPE
from leveret.features.transfers.ends import EndListener, ExchangeFeedEnd, Journey, QueueFeedEnd, settles
from leveret.message import Message
from leveret.protocols.amqp091.broker.core_values import field_table
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.broker.shovel_ends import RemoteSource
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import Method

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.config.amqp_uri import Uri
    from leveret.exchanges.exchange_type import Binding
    from leveret.features.federation.feed import ExchangeFeed, QueueFeed

Steps = Generator[tuple[Method, tuple[int, ...]], Method | None, None]
"""Yields a method and the codes with which it may be refused; is sent the answer, None if it was refused."""

SURE: Final = ()  # no refusal is expected: it ends the link
MAY_BE_MISSING: Final = (m.NOT_FOUND,)
MAY_BE_UNKNOWN: Final = (m.COMMAND_INVALID, m.PRECONDITION_FAILED, m.NOT_FOUND)
FANOUT: Final = "fanout"
TAG: Final = "federation"
CHECK_S: Final = 30.0  # between two looks whether the internal exchange is still there
ANSWERS: Final[dict[type[Method], type[Method]]] = {
    m.BasicConsume: m.BasicConsumeOk,
    m.BasicQos: m.BasicQosOk,
    m.ExchangeDeclare: m.ExchangeDeclareOk,
    m.ExchangeDelete: m.ExchangeDeleteOk,
    m.QueueBind: m.QueueBindOk,
    m.QueueDeclare: m.QueueDeclareOk,
}


class Feed091(RemoteSource):
    """The base of both feeds: its steps, and what becomes of the messages."""

    def __init__(
        self, feed: ExchangeFeed | QueueFeed, journey: Journey, uri: Uri, listener: EndListener
    ) -> None:
        super().__init__(journey, uri, listener)
        self._from = feed
        self._origin = Side(None, self._virtual_host)
        self._steps: Steps | None = None
        self._asked: Method | None = None  # the step that waits for its answer
        self._tolerated: tuple[int, ...] = SURE
        self._number = 0  # of the last message that went on
        # delivery tags of messages that went on and are not settled, by number
        self._tags: dict[int, int] = {}

    def _walk(self) -> Steps:
        """Return the steps until messages may come."""
        raise NotImplementedError

    @property
    def _virtual_host(self) -> str:
        return self._journey.virtual_host_at(self._uri)

    @property
    def _prefetch(self) -> int:
        return 0 if settles(self._journey) else self._journey.definition.prefetch

    # The steps.

    def on_open(self) -> None:
        if self._steps is not None:  # the channel is open again after a refusal
            self._step(None)
            return
        if self._link is not None:
            told = self._link.client.server_properties
            cluster = told.get("cluster_name")
            self._origin = Side(cluster if isinstance(cluster, str) else None, self._virtual_host)
        self._steps = self._walk()
        self._step(None)

    def _step(self, answer: Method | None) -> None:
        self._asked, self._tolerated = None, SURE
        if self._steps is None or self._is_closed:
            return
        with suppress(StopIteration):
            self._asked, self._tolerated = self._steps.send(answer)
            self._send(self._asked)

    def on_refused(self, code: int, reason: str) -> bool:
        return code in self._tolerated

    def on_method(self, method: Method) -> None:
        if isinstance(method, m.BasicCancel):
            self._failed("the upstream queue has been deleted")
        elif self._asked is not None and isinstance(method, ANSWERS[type(self._asked)]):
            self._step(method)

    # Messages.

    def on_content(self, method: Method, properties: bytes, body: bytes) -> None:
        if self._is_closed or not isinstance(method, m.BasicDeliver):
            return
        try:
            message = self._marked(method, properties, body)
        except PreconditionFailed as failure:
            self._failed(f"a message cannot be published here: {failure}")
            return
        if message is None:
            if not settles(self._journey):
                self._send(m.BasicAck(method.delivery_tag, False))
            return
        self._number += 1
        if not settles(self._journey):
            self._tags[self._number] = method.delivery_tag
        self._listener.arrived(message)

    def _marked(self, method: m.BasicDeliver, properties: bytes, body: bytes) -> Message | None:
        """Return a message as it goes on; None: it has come far enough. Raises PreconditionFailed."""
        facts, properties = ENCODING.published(properties)
        message = Message(ENCODING, method.exchange, method.routing_key, properties, body, facts)
        headers = self._from.headers(message, method.redelivered, self._origin, self._uri)
        if headers is None:
            return None
        marked = wire.edit_headers(properties, self._from.drops, field_table(headers))
        if facts.user_id is not None and not self._from.upstream.trusts_user_id:
            marked = wire.edit_properties(marked, {"user_id": None})
        facts, properties = ENCODING.published(marked)
        return Message(ENCODING, method.exchange, method.routing_key, properties, body, facts)

    def accept(self, number: int, multiple: bool) -> None:
        if not multiple:
            if (tag := self._tags.pop(number, None)) is not None:
                self._send(m.BasicAck(tag, False))
            return
        last = 0
        while self._tags and (first := next(iter(self._tags))) <= number:
            last = self._tags.pop(first)
        if last:
            self._send(m.BasicAck(last, True))


class ExchangeFeed091(Feed091, ExchangeFeedEnd):
    """An exchange of another broker, with an internal one and a queue of the link's own."""

    def __init__(self, feed: ExchangeFeed, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(feed, journey, uri, listener)
        self._feed = feed
        self._queue_name = feed.queue_name(self._virtual_host)
        self._internal = ""
        self._type = INTERNAL_TYPE  # of the internal exchange
        self._is_declaring = False
        self._propagation: Propagation | None = None
        self._check_at: Timer | None = None

    def _walk(self) -> Steps:
        feed, like = self._feed, self._feed.exchange
        declared = (like.durable, like.auto_delete, like.internal)
        if not (yield m.ExchangeDeclare(feed.name, like.type.name, passive=True), MAY_BE_MISSING):
            yield declaration(feed.name, like.type.name, *declared, field_table(like.arguments)), SURE
        suffixes = "AB"
        if (yield m.ExchangeDeclare(f"{self._queue_name} A", FANOUT, passive=True), MAY_BE_MISSING):
            suffixes = "BA"
        internal, old = (f"{self._queue_name} {suffix}" for suffix in suffixes)
        yield m.ExchangeDelete(internal), SURE
        self._is_declaring = True
        if self._type == INTERNAL_TYPE:
            arguments = field_table(feed.internal_arguments)
            if not (yield declaration(internal, INTERNAL_TYPE, True, True, True, arguments), MAY_BE_UNKNOWN):
                self._type = FANOUT
        if self._type == FANOUT:
            yield declaration(internal, FANOUT, True, True, True, {}), SURE
        self._is_declaring = False
        arguments = field_table(feed.queue_arguments)
        yield m.QueueDeclare(self._queue_name, durable=True, arguments=arguments), SURE
        yield m.QueueBind(self._queue_name, internal, ""), SURE
        self._internal = internal
        self._propagation = Propagation(feed, self._origin, suffixes[0])
        for binding in like.bindings:
            self.bound(binding)
        yield m.ExchangeDelete(old), SURE
        if self._prefetch:
            yield m.BasicQos(0, self._prefetch, False), SURE
        yield m.BasicConsume(self._queue_name, TAG, no_ack=settles(self._journey)), SURE
        self._listener.opened(0)
        self._check_later()

    def on_end(self, reason: str) -> None:
        """Dial again if the broker does not know the type of the internal exchange, which costs the connection."""
        if self._is_declaring and self._type == INTERNAL_TYPE and reason.startswith(f"{m.COMMAND_INVALID} "):
            self._type, self._is_declaring, self._steps, self._asked = FANOUT, False, None, None
            self._link = None
            if not self._is_closed:
                self.open()
            return
        super().on_end(reason)

    def _check_later(self) -> None:
        broker = self._journey.broker
        self._check_at = broker.timers.at(broker.now + CHECK_S, self._check)

    def _check(self, _now: float) -> None:
        """Ask for the internal exchange. If it is gone, the broker closes the channel, and the link begins anew."""
        if not self._is_closed:
            self._send(m.ExchangeDeclare(self._internal, self._type, passive=True))
            self._check_later()

    def bound(self, binding: Binding) -> None:
        wanted = None if self._propagation is None else self._propagation.added(binding)
        if wanted is not None:
            arguments, no_wait = field_table(wanted.arguments), self._feed.upstream.bind_nowait
            self._send(
                m.ExchangeBind(
                    self._internal, self._feed.name, wanted.key, no_wait=no_wait, arguments=arguments
                )
            )

    def unbound(self, binding: Binding) -> None:
        wanted = None if self._propagation is None else self._propagation.removed(binding)
        if wanted is not None:
            arguments, no_wait = field_table(wanted.arguments), self._feed.upstream.bind_nowait
            self._send(
                m.ExchangeUnbind(
                    self._internal, self._feed.name, wanted.key, no_wait=no_wait, arguments=arguments
                )
            )

    def remove(self) -> None:
        self._send(m.QueueDelete(self._queue_name))
        if self._internal:
            self._send(m.ExchangeDelete(self._internal))
        self.close()

    def close(self) -> None:
        self._journey.broker.timers.cancel(self._check_at)
        self._check_at = None
        super().close()


class QueueFeed091(Feed091, QueueFeedEnd):
    """A queue of another broker."""

    def __init__(self, feed: QueueFeed, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(feed, journey, uri, listener)
        self._feed = feed
        self._is_wanted = self._consumes = self._is_open = False

    def _walk(self) -> Steps:
        if not self._has_priorities():
            self._failed(
                "the upstream knows no priorities of consumers, so that messages would go round and round"
            )
            return
        feed, like = self._feed, self._feed.queue
        if not (yield m.QueueDeclare(feed.name, passive=True), MAY_BE_MISSING):
            arguments = field_table(like.arguments)
            yield (
                m.QueueDeclare(
                    feed.name, durable=like.durable, auto_delete=like.auto_delete, arguments=arguments
                ),
                SURE,
            )
        if self._prefetch:
            yield m.BasicQos(0, self._prefetch, False), SURE
        self._is_open = True
        self._listener.opened(0)
        self._follow()

    def _has_priorities(self) -> bool:
        told = {} if self._link is None else self._link.client.server_properties
        capabilities = told.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get("consumer_priorities") is True

    def run(self, wanted: bool) -> None:
        self._is_wanted = wanted
        self._follow()

    def _follow(self) -> None:
        """Consume, or do not, as it is wanted."""
        if not self._is_open or self._is_wanted == self._consumes:
            return
        self._consumes = self._is_wanted
        tag = self._feed.upstream.consumer_tag
        if self._consumes:
            self._send(
                m.BasicConsume(
                    self._feed.name,
                    tag,
                    no_ack=settles(self._journey),
                    no_wait=True,
                    arguments=field_table({"x-priority": PRIORITY}),
                )
            )
        else:
            self._send(m.BasicCancel(tag, no_wait=True))


def declaration(
    name: str, type_: str, durable: bool, auto_delete: bool, internal: bool, arguments: wire.FieldTable
) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(
        name, type_, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
    )
