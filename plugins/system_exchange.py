"""`system`: passes a message to the service of the broker that its routing key names, which answers it.

| routing key    | answer                                                                          |
|----------------|---------------------------------------------------------------------------------|
| `amq.ping`     | the body of the request                                                         |
| `amq.time`     | the node's time, in ISO 8601, UTC                                               |
| `amq.stats`    | totals of the virtual host, as JSON; counted at most once a second              |
| `amq.services` | a list of these services, as JSON                                               |

A draft of AMQP describes this exchange type (2.2.3.5), but no released version. A message for another service is
unroutable: its alternate exchange gets it, or it is returned.

The answer goes to the request's reply-to, with its correlation-id, or, without one, its message-id. It has no reply-to
of its own, and is put straight into queues, so no answer is ever answered. The publisher chooses the queue without
needing a permission to write to it; so it has to be private: exclusive, or a direct reply-to. The argument
`x-reply-to-prefix` allows other queues by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from leveret.arguments.checks import text_fault
from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Exchange, ExchangeType, Handled, LooksAt
from leveret.message import Facts, Message
from leveret.values import Id, Properties, Table, printed

if TYPE_CHECKING:
    from leveret.exchanges.contract import Host
    from leveret.queues.queue import Queue

PREFIX: Final = "x-reply-to-prefix"
STATS_S: Final = 1.0  # for which the totals are reused
QUEUES: Final = "/queues/"  # prefix of reply-tos of other protocols than 0-9-1
EXCHANGES: Final = "/exchanges/"
TEXT: Final = "text/plain"
JSON: Final = "application/json"


class SystemExchange(ExchangeType):
    name = "system"
    looks_at = LooksAt.KEY
    arguments = (
        ExchangeArgument(
            name=PREFIX,
            about="Answers also go to queues whose names begin with this, besides exclusive and reply queues.",
            check=text_fault,
            example="answers.",
        ),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._prefix = prefix_in(exchange.arguments)
        self._stats = b""
        self._stats_until = 0.0  # monotonic seconds

    @classmethod
    def validate(cls, arguments: Table) -> None:
        prefix_in(arguments)

    def route(self, message: Message) -> Iterable[Destination] | Handled:
        return HANDLED if message.key in SERVICES else []

    def keep(self, message: Message) -> None:
        service = SERVICES.get(message.key)
        if service is None:
            return  # its alternate exchange has it
        converted = message.encoding.read(message.properties)
        if converted.reply_to:
            self._answer(message, converted, converted.reply_to, *service(self, message))

    def _answer(
        self, request: Message, written: Properties, reply_to: str, body: bytes, content_type: str | None
    ) -> None:
        name, key = address_in(reply_to)
        host = self.exchange.virtual_host
        exchange = host.exchanges.get(name)
        if exchange is None:
            return
        encoding = request.encoding
        about = Properties(content_type=content_type or written.content_type, correlation_id=id_in(written))
        properties = encoding.write(about)
        facts = encoding.restored(Facts(), properties)
        answer = Message(encoding, name, key, properties, body, facts)
        route = host.broker.route(exchange, answer).queues
        host.broker.deliver(answer, [queue for queue in route if self._may_have_it(queue)])

    def _may_have_it(self, queue: Queue) -> bool:
        is_private = queue.owner is not None or queue.hidden
        return is_private or (self._prefix is not None and queue.name.startswith(self._prefix))

    # Services return the body of the answer, in the request's encoding, and its content type; None: the request's.

    def ping(self, request: Message) -> tuple[bytes, str | None]:
        return request.body, None

    def time(self, request: Message) -> tuple[bytes, str]:
        wall = self.exchange.broker.clock.wall()
        told = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
        return request.encoding.body(told.encode()), TEXT

    def stats(self, request: Message) -> tuple[bytes, str]:
        """Count the virtual host at most once a second, because many queues take long to count."""
        now = self.exchange.broker.now
        if now >= self._stats_until:
            self._stats = json.dumps(totals(self.exchange.virtual_host)).encode()
            self._stats_until = now + STATS_S
        return request.encoding.body(self._stats), JSON

    def services(self, request: Message) -> tuple[bytes, str]:
        return request.encoding.body(json.dumps(sorted(SERVICES)).encode()), JSON


SERVICES: Final[dict[str, Callable[[SystemExchange, Message], tuple[bytes, str | None]]]] = {
    "amq.ping": SystemExchange.ping,
    "amq.time": SystemExchange.time,
    "amq.stats": SystemExchange.stats,
    "amq.services": SystemExchange.services,
}


def totals(host: Host) -> dict[str, int]:
    """Return totals of the virtual host as it is now."""
    queues = list(host.queues.values())
    return {
        "connections": host.connections,
        "exchanges": len(host.exchanges),
        "queues": len(queues),
        "consumers": sum(len(queue.consumers) for queue in queues),
        "ready": sum(queue.ready for queue in queues),
        "ready_octets": sum(queue.ready_bytes for queue in queues),
        "unsettled": sum(queue.unsettled for queue in queues),
        "published": sum(queue.published for queue in queues),
        "delivered": sum(queue.delivered for queue in queues),
        "accepted": sum(queue.accepted for queue in queues),
    }


def id_in(properties: Properties) -> Id | None:
    """Return the id that relates the answer to its request."""
    return properties.message_id if properties.correlation_id is None else properties.correlation_id


def address_in(reply_to: str) -> tuple[str, str]:
    """Return the exchange and the routing key that a reply-to names."""
    if reply_to.startswith(QUEUES):
        return "", unquote(reply_to.removeprefix(QUEUES))
    if reply_to.startswith(EXCHANGES):
        exchange, _, key = reply_to.removeprefix(EXCHANGES).partition("/")
        return unquote(exchange), unquote(key)
    return "", reply_to


def prefix_in(arguments: Table) -> str | None:
    """Return the prefix of names of other queues that may get answers. Raises PreconditionFailed if it is no text."""
    prefix = arguments.get(PREFIX)
    if prefix is not None and not (isinstance(prefix, str) and prefix):
        raise PreconditionFailed(f"Invalid argument '{printed(prefix)}', '{PREFIX}' must be a text")
    return prefix
