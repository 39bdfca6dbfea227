"""Messages with ids, and publishers that count what is confirmed."""

from __future__ import annotations

from leveret.broker import Outcome, Publisher
from leveret.exchanges.exchange_type import Exchange
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Table, Value
from tests.harness.bench import Bench

DURABLE = Facts(durable=True, has_headers=True)
TRANSIENT = Facts(has_headers=True)
PLAIN = Facts(durable=True)


def identified(
    id_: Value,
    body: bytes = b"",
    key: str = "",
    exchange: str = "",
    ttl_ms: Value = None,
    durable: bool = True,
) -> Message:
    """A message with an id in the usual header."""
    headers: dict[str, Value] = {"x-deduplication-header": id_}
    if ttl_ms is not None:
        headers["x-cache-ttl"] = ttl_ms
    return headed(headers, body, key, exchange, durable)


def headed(
    headers: Table, body: bytes = b"", key: str = "", exchange: str = "", durable: bool = True
) -> Message:
    facts = DURABLE if durable else TRANSIENT
    return Message(FakeEncoding(Properties(headers=headers)), exchange, key, b"headers", body, facts)


def publish(
    bench: Bench, exchange: Exchange, *ids: Value, key: str = "", durable: bool = True
) -> list[Outcome]:
    """Publish a message for each id, with the id as its body, in one batch."""
    messages = [identified(i, str(i).encode(), key, exchange.name, durable=durable) for i in ids]
    outcomes = [bench.broker.publish(exchange, each) for each in messages]
    bench.settle()
    return outcomes


def written(id_: str, key: str = "", exchange: str = "") -> Message:
    """A message of AMQP 0-9-1, whose id can be read from what the store has of it."""
    properties = BasicProperties(headers={"x-deduplication-header": id_}, delivery_mode=2).encode()
    return Message(ENCODING091, exchange, key, properties, id_.encode(), DURABLE)


class Confirmed(Publisher):
    """A publisher that counts what is confirmed."""

    def __init__(self) -> None:
        self.persistent = True
        self.published = self.confirmed = 0

    def mark(self) -> int:
        return self.published

    def taken(self, mark: int) -> None:
        self.confirmed = mark
