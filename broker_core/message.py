"""A message as the core holds it: the publisher's own bytes, the few facts the core reads, and what the broker adds.

The property bytes go back untouched to consumers of the same protocol. What the broker learns about a message on its
way (`Notes`) is rendered by the consumer's protocol. Messages are never edited: dead-lettering makes a new one that
shares the body.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import attrs
from mypy_extensions import mypyc_attr

from broker_core.errors import PreconditionFailed, Unsupported
from broker_core.limits import text
from broker_core.values import Properties, Table, Value, printed, type_name


@mypyc_attr(allow_interpreted_subclasses=True)
class Facts:
    """What the core needs to know of a message's properties, projected once when it is published."""

    __slots__ = ("bcc", "cc", "durable", "has_headers", "priority", "reply_to", "ttl_ms", "user_id")

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
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms  # milliseconds; None: lives for ever
        self.user_id = user_id
        self.reply_to = reply_to
        self.cc = cc  # further routing keys that the consumer may see
        self.bcc = bcc  # further routing keys that nobody sees; the adapter has removed them from the bytes
        self.has_headers = has_headers


NO_FACTS = Facts()


def further_keys(headers: Table, name: str) -> tuple[str, ...]:
    """The routing keys in the header CC or BCC; what is no text in it is passed over.

    Raises PreconditionFailed if there is something else than a list (S091).
    """
    listed = headers.get(name)
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise PreconditionFailed(
            f"invalid message: unacceptable type '{type_name(listed)}' in header '{name}', expected an array"
        )
    return tuple(key for each in listed if (key := text(each)) is not None)


SUBJECT: Final = "qpid.subject"  # the header in which 0-10 has what others have as a property


def said_in(message: Message, header: str) -> str:
    """What a message says in one header, as a text; empty if it says nothing."""
    value = message.headers.get(header)
    if value is None and header == SUBJECT:
        value = message.encoding.property(message.properties, "subject")
    return "" if value is None else printed(value)


class Death:
    """Why and how often a message died in one queue (shown as `x-death` in 0-9-1, `x-opt-deaths` in 1.0)."""

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
    """What the broker adds to a message that has a history or a place in a stream. Most messages have none."""

    __slots__ = ("deaths", "first_death", "last_death", "offset")

    def __init__(self) -> None:
        self.deaths: tuple[Death, ...] = ()  # newest first
        self.first_death: tuple[str, str, str] | None = None  # reason, queue, exchange
        self.last_death: tuple[str, str, str] | None = None
        self.offset: int | None = None  # in the stream that holds it


# What only some protocols know of, though selectors ask it of every message. Times are in milliseconds since 1970.
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
    """How one protocol's property bytes are read. One instance a protocol, stateless."""

    name: ClassVar[str]

    @abstractmethod
    def headers(self, properties: bytes) -> Table:
        """The application headers, decoded; empty if there are none."""

    @abstractmethod
    def read(self, properties: bytes) -> Properties:
        """All properties under their neutral names."""

    @abstractmethod
    def write(self, properties: Properties) -> bytes:
        """Neutral properties as this protocol's bytes; what it cannot say is left out."""

    def convert(self, message: Message) -> tuple[Properties, bytes]:
        """A message for consumers of other protocols: its properties in neutral names, and its body as plain octets.

        To be overridden where `Message.body` holds more than the application's octets.
        """
        return self.read(message.properties), message.body

    def octets(self, body: bytes) -> bytes:
        """A body as plain octets, or as it is if it says something else. To be overridden as `convert`."""
        return body

    def body(self, octets: bytes) -> bytes:
        """Plain octets as a body. To be overridden as `convert`."""
        return octets

    def value(self, message: Message) -> Value:
        """The body as a map, a list or a text, where this protocol has such bodies and this is one; None: octets.

        Only if it can be said in full: who cannot say all of it takes what `convert` tells. To be overridden.
        """
        return None

    def with_headers(self, properties: bytes, headers: Table) -> bytes:
        """The properties with these headers added; one that is there already is replaced."""
        before = self.read(properties)
        return self.write(attrs.evolve(before, headers={**(before.headers or {}), **headers}))

    def restored(self, facts: Facts, properties: bytes) -> Facts:
        """The facts of a message that comes back from the store, as this encoding would have projected them.

        To be overridden where `facts` has more than the core knows of.
        """
        return facts

    def published(self, properties: bytes) -> tuple[Facts, bytes]:
        """The facts of a stranger's properties, and those as they are to be kept: for messages that come in otherwise
        than over this protocol. To be overridden where they may.

        Raises Unsupported, or PreconditionFailed for what the protocol would refuse.
        """
        raise Unsupported(f"messages of the protocol '{self.name}' are taken over that protocol only")

    def property(self, properties: bytes, name: str) -> Value:
        """One property under its neutral name (`message_id`, `correlation_id`, `timestamp`, ...); None if absent.

        To be overridden where there are more of them than `Properties` has names for: those in `PARTICULAR`.
        """
        found: Value = None if name in PARTICULAR else getattr(self.read(properties), name)
        return found


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Message:
    """One published message. `properties` and `body` are the publisher's bytes in `encoding`.

    What the body's bytes mean is the encoding's business, too: `encoding.convert` tells the plain octets.
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
        self.peer: object = (
            None  # the other end of its connection (`Client.peer`), where the protocol says that
        )
        self.size = len(body)  # octets of body, as limits count them

    @property
    def keys(self) -> tuple[str, ...]:
        """Every routing key: the message's own, then CC, then BCC."""
        facts = self.facts
        return (self.key, *facts.cc, *facts.bcc)

    def saying(self, headers: Table) -> Message:
        """The same message with these headers, as far as its encoding can add them."""
        properties = self.encoding.with_headers(self.properties, headers)
        return self if properties == self.properties else self.headed(properties)

    def headed(self, properties: bytes) -> Message:
        """The same message with these properties, which differ in headers."""
        facts = Facts(
            self.facts.durable,
            self.facts.priority,
            self.facts.ttl_ms,
            self.facts.user_id,
            self.facts.reply_to,
            self.facts.cc,
            self.facts.bcc,
            has_headers=True,
        )
        return Message(self.encoding, self.exchange, self.key, properties, self.body, facts, self.notes)

    @property
    def headers(self) -> Table:
        """The application headers, decoded on each call."""
        return self.encoding.headers(self.properties) if self.facts.has_headers else {}
