"""Messages as the core holds them: the publisher's own bytes, the few facts the core reads, and what the broker adds.

The property bytes go back untouched to consumers of the same protocol. What the broker learns about a message on its
way (`Notes`) is rendered by the consumer's protocol. Messages are never edited: dead-lettering makes a new one that
shares the body.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import attrs
from mypy_extensions import mypyc_attr

from leveret.arguments.checks import text
from leveret.errors import PreconditionFailed, Unsupported
from leveret.values import Properties, Table, Value, printed, type_name

RECEIVED: Final = "timestamp_in_ms"  # the header with the time of arrival
LOWEST: Final = -1  # the priority of a message that was given the priority 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Facts:
    """The facts that the core needs of a message's properties, projected once when it is published.

    The priority 0 means that none was given. One of 0 that was given is `LOWEST`, which quorum queues tell apart.
    """

    __slots__ = ("bcc", "cc", "due_ms", "durable", "has_headers", "priority", "reply_to", "ttl_ms", "user_id")

    def __init__(
        self,
        durable: bool = False,
        priority: int = 0,
        ttl_ms: int | None = None,
        user_id: str | None = None,
        reply_to: str | None = None,
        cc: tuple[str, ...] = (),
        bcc: tuple[str, ...] = (),
        has_headers: bool = False,
        due_ms: int = 0,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms  # None: does not expire
        self.user_id = user_id
        self.reply_to = reply_to
        self.cc = cc  # further routing keys that the consumer may see
        self.bcc = bcc  # further routing keys that no consumer sees; the adapter removed them from the bytes
        self.has_headers = has_headers
        self.due_ms = due_ms  # ready no earlier than this, in ms since 1970-01-01 UTC; 0: at once

    def copy(self) -> Facts:
        """Return the same facts, to be changed: the one list of what there is. A protocol's own are left out."""
        return Facts(
            self.durable,
            self.priority,
            self.ttl_ms,
            self.user_id,
            self.reply_to,
            self.cc,
            self.bcc,
            self.has_headers,
            self.due_ms,
        )

    def due_at(self, due_ms: int) -> Facts:
        """Return the same facts of a message that is ready no earlier than `due_ms`."""
        facts = self.copy()
        facts.due_ms = due_ms
        return facts

    def without_ttl(self, keeps_keys: bool = True) -> Facts:
        """Return the same facts of a message that does not expire, and is ready at once; without further keys unless
        it `keeps_keys`."""
        facts = self.copy()
        facts.ttl_ms, facts.due_ms = None, 0
        if not keeps_keys:
            facts.cc = facts.bcc = ()
        return facts

    def is_like(self, other: Facts) -> bool:
        """Return whether queues treat messages with either of these facts in the same way.

        The others are carried along with each message: `user_id`, `reply_to`, `has_headers`.
        """
        return (
            self.durable == other.durable
            and self.priority == other.priority
            and self.ttl_ms == other.ttl_ms
            and self.due_ms == other.due_ms
            and self.cc == other.cc
            and self.bcc == other.bcc
        )


NO_FACTS = Facts()


def further_keys(headers: Table, name: str) -> tuple[str, ...]:
    """Return the routing keys in the header CC or BCC; entries that are no strings are ignored.

    Raises PreconditionFailed if the header is there and not a list (S091).
    """
    listed = headers.get(name)
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise PreconditionFailed(
            f"invalid message: unacceptable type '{type_name(listed)}' in header '{name}', expected an array"
        )
    return tuple(key for each in listed if (key := text(each)) is not None)


SUBJECT: Final = "qpid.subject"  # 0-10 has the subject in this header, other protocols as a property


def said_in(message: Message, header: str) -> str:
    """Return a message's header as a string; empty if it is absent."""
    value = message.header(header)
    if value is None and header == SUBJECT:
        value = message.encoding.property(message.properties, "subject")
    return "" if value is None else printed(value)


FILTER_VALUE: Final = "x-stream-filter-value"  # the header by which readers of a stream choose messages
FILTER_NAMED: Final = FILTER_VALUE.encode()  # searched for in the encoded properties, before they are decoded


def filter_value(message: Message) -> str | None:
    """Return the value by which readers of a stream choose a message; None if it has none.

    Only texts count, and the empty one does not. Source: RabbitMQ's documentation of stream filtering.
    """
    if not message.facts.has_headers or FILTER_NAMED not in message.properties:
        return None
    try:
        return text(message.header(FILTER_VALUE)) or None
    except Exception:  # the encoding may raise anything
        return None


class Death:
    """The record of a message's deaths in one queue for one reason (`x-death` in 0-9-1, `x-opt-deaths` in 1.0)."""

    __slots__ = ("count", "exchange", "first_time", "keys", "last_time", "queue", "reason", "ttl_ms")

    def __init__(
        self,
        queue: str,
        reason: str,
        count: int,
        first_time: int,
        last_time: int,
        exchange: str,
        keys: tuple[str, ...],
        ttl_ms: int | None,
    ) -> None:
        self.queue = queue
        self.reason = reason  # rejected, expired, maxlen or delivery_limit
        self.count = count
        self.first_time = first_time  # seconds since 1970-01-01 UTC
        self.last_time = last_time
        self.exchange = exchange
        self.keys = keys  # original key and CC; never BCC
        self.ttl_ms = ttl_ms  # the message's own TTL when it first died here, if it had one


@mypyc_attr(allow_interpreted_subclasses=True)
class Notes:
    """The broker's notes on a message that has died before or has a place in a stream. Most messages have none."""

    __slots__ = ("deaths", "first_death", "is_repeat", "last_death", "offset", "reached")

    def __init__(self) -> None:
        self.deaths: tuple[Death, ...] = ()  # newest first
        self.first_death: tuple[str, str, str] | None = None  # reason, queue, exchange
        self.last_death: tuple[str, str, str] | None = None
        self.offset: int | None = None  # in the stream that holds it
        # The names of what has a dead letter that is still held for others; True: an exchange, False: a queue.
        self.reached: tuple[tuple[bool, str], ...] = ()
        # It may have been in its next queue, and delivered, before the node ended suddenly.
        self.is_repeat = False

    def copy(self) -> Notes:
        """Return notes that say the same."""
        notes = Notes()
        notes.deaths, notes.first_death, notes.last_death = self.deaths, self.first_death, self.last_death
        notes.offset, notes.reached, notes.is_repeat = self.offset, self.reached, self.is_repeat
        return notes


# Properties that only some protocols have, though selectors may name them. Times are in milliseconds since 1970.
PARTICULAR: Final = frozenset(
    {
        "absolute_expiry_time",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
        "subject",
        "to",
    }
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Encoding(ABC):
    """An encoding reads and writes one protocol's properties and bodies. It is stateless, one instance a protocol."""

    name: ClassVar[str]

    @abstractmethod
    def headers(self, properties: bytes) -> Table:
        """Return the application headers, decoded; empty if there are none."""

    def header(self, properties: bytes, name: str) -> Value:
        """Return one application header; None if it is absent, or void. To be overridden where that is quicker."""
        return self.headers(properties).get(name)

    def header_octets(self, properties: bytes, names: dict[bytes, int], size_max: int) -> bytes | None:
        """Return the bytes of the headers with these names, in the order in which they are there: equal ones stand for
        equal headers. None if that cannot be told, or they are more than `size_max`. To be overridden where it is
        quicker than to decode them.
        """
        return None

    @abstractmethod
    def read(self, properties: bytes) -> Properties:
        """Return all properties under their neutral names."""

    @abstractmethod
    def write(self, properties: Properties) -> bytes:
        """Return neutral properties as this protocol's bytes; what it cannot express is left out."""

    def convert(self, message: Message) -> tuple[Properties, bytes]:
        """Return a message for consumers of other protocols: its properties in neutral names, and its plain body.

        To be overridden where `Message.body` holds more than the application's bytes.
        """
        return self.read(message.properties), message.body

    def octets(self, body: bytes) -> bytes:
        """Return a body's plain bytes, or the body as it is if it has none. To be overridden as `convert`."""
        return body

    def body(self, octets: bytes) -> bytes:
        """Return plain bytes as a body of this protocol. To be overridden as `convert`."""
        return octets

    def require_body(self, body: bytes) -> None:
        """Check a body that arrived by another way than this protocol. Raises PreconditionFailed.

        To be overridden where not all bytes are a body.
        """

    def value(self, message: Message) -> Value:
        """Return the body as a map, a list or a string, where this protocol has such bodies and this is one; else None.

        None also if neutral values cannot express all of it: callers then use `convert`. To be overridden.
        """
        return None

    def with_headers(self, properties: bytes, headers: Table) -> bytes:
        """Return the properties with these headers added; headers that are there already are replaced."""
        before = self.read(properties)
        return self.write(attrs.evolve(before, headers={**(before.headers or {}), **headers}))

    def received_at(self, properties: bytes, now_ms: int, overwrites: bool) -> bytes:
        """Return the properties with the time of arrival, in ms since 1970-01-01 UTC; the same object if they have one
        already, unless that is overwritten. To be overridden by protocols that have an annotation for it.
        """
        before = self.read(properties)
        timestamp = now_ms // 1000 if overwrites or before.timestamp is None else before.timestamp
        headers = before.headers or {}
        if overwrites or headers.get(RECEIVED) is None:
            headers = {**headers, RECEIVED: now_ms}
        elif timestamp == before.timestamp:
            return properties
        return self.write(attrs.evolve(before, timestamp=timestamp, headers=headers))

    def restored(self, facts: Facts, properties: bytes) -> Facts:
        """Return the facts of a message that comes back from the store, as this encoding would have projected them.

        To be overridden by encodings whose facts hold more than the core's.
        """
        return facts

    def published(self, properties: bytes) -> tuple[Facts, bytes]:
        """Return the facts and the checked property bytes of a message that arrived by another way than this protocol.

        Raises Unsupported by default, to be overridden where that is possible; PreconditionFailed for properties that
        the protocol would refuse.
        """
        raise Unsupported(f"messages of the protocol '{self.name}' are taken over that protocol only")

    def property(self, properties: bytes, name: str) -> Value:
        """Return a property by its neutral name (`message_id`, `correlation_id`, `timestamp`, ...); None if absent.

        To be overridden by protocols that have properties beyond those of `Properties`: those in `PARTICULAR`.
        """
        found: Value = None if name in PARTICULAR else getattr(self.read(properties), name)
        return found


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Message:
    """A published message. `properties` and `body` are the publisher's bytes in `encoding`.

    The body, too, is in the encoding's format: `encoding.convert` gives the plain bytes.
    """

    __slots__ = (
        "body",
        "converted",
        "encoding",
        "exchange",
        "facts",
        "key",
        "notes",
        "peer",
        "properties",
        "size",
    )

    def __init__(
        self,
        encoding: Encoding,
        exchange: str,
        key: str,
        properties: bytes,
        body: bytes,
        facts: Facts = NO_FACTS,
        notes: Notes | None = None,
    ) -> None:
        self.encoding = encoding
        self.exchange = exchange  # the exchange it was published to, not the one that routed it
        self.key = key
        self.properties = properties
        self.body = body
        self.facts = facts
        self.notes = notes
        self.converted: object = None  # the last rendering for a consumer; owned by the protocol that made it
        # The other end of its connection (`Client.peer`), where the protocol sets it.
        self.peer: object = None
        self.size = len(body)  # bytes of body, as limits count them

    @property
    def keys(self) -> tuple[str, ...]:
        """All routing keys: the message's own, then CC, then BCC."""
        facts = self.facts
        return (self.key, *facts.cc, *facts.bcc)

    def saying(self, headers: Table) -> Message:
        """Return this message with headers added, as far as its encoding can add them."""
        properties = self.encoding.with_headers(self.properties, headers)
        return self if properties == self.properties else self.headed(properties)

    def headed(self, properties: bytes) -> Message:
        """Return this message with other property bytes, which differ in headers."""
        facts = self.facts.copy()
        facts.has_headers = True
        return Message(self.encoding, self.exchange, self.key, properties, self.body, facts, self.notes)

    def repeated(self) -> Message:
        """Return this message with the note that it may have been in its next queue before: there it is redelivered.

        A message moves on in memory first. If the node ends before that is on disk, it is in its old place again, and
        moves once more, although a consumer of its next queue may have got it.
        """
        notes = Notes() if self.notes is None else self.notes.copy()
        notes.is_repeat = True
        return Message(self.encoding, self.exchange, self.key, self.properties, self.body, self.facts, notes)

    def header(self, name: str) -> Value:
        """Return one application header; None if it is absent, or void."""
        return self.encoding.header(self.properties, name) if self.facts.has_headers else None

    @property
    def headers(self) -> Table:
        """The application headers, decoded on each call."""
        return self.encoding.headers(self.properties) if self.facts.has_headers else {}


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class AbsentMessage(Message):
    """A message whose properties and body are on disk only: to read them is an AttributeError (`queues/absent.py`)."""

    __slots__ = ()

    def __init__(self, message: Message) -> None:
        self.encoding = message.encoding
        self.exchange = message.exchange
        self.key = message.key
        self.facts = message.facts
        self.size = message.size

    def stands_for(self, message: Message) -> bool:
        """Return whether all that this one tells is true of another message, too."""
        return (
            self.size == message.size
            and self.facts.is_like(message.facts)
            and self.key == message.key
            and self.exchange == message.exchange
            and self.encoding is message.encoding
        )
