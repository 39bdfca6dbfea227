"""Blocks that a stranger sends, checked as a whole before anything is done with them, and then messages.

Nothing of what they say is believed: what the broker knows of a message is projected anew from its properties, and the
checks are those of a publish over AMQP. Offsets, times, places in queues and deaths in them mean nothing here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from broker_core.access import Permission
from broker_core.client import require_not_internal
from broker_core.discard import PAUSE_S
from broker_core.errors import PreconditionFailed
from broker_core.message import Encoding, Facts, Message
from broker_core.store import block
from broker_core.store.contract import DamagedError

if TYPE_CHECKING:
    from broker_core.access import User
    from broker_core.broker import Broker
    from broker_core.exchange import Exchange
    from broker_core.topology import VirtualHost
    from protocols.http.asked import Asked

ROWS_MAX: Final = 1_000_000  # of a request
ORIGINS_OCTETS_MAX: Final = 4 << 20  # of a request: JSON takes many times that while it is read
ORIGIN_LENGTH: Final = 12  # encoding, nine things that are not looked at, exchange, routing key
NAME_MAX: Final = 255  # octets of an exchange's name or a routing key
ORIGINS: Final = 4000  # checked in a turn: 8 ms
PROPERTIES: Final = 2000  # the same

Seen: TypeAlias = "tuple[Facts, bytes]"  # what the broker knows, and the properties as they are kept


class Origin:
    """Where rows of a block are to be published."""

    __slots__ = ("encoding", "exchange", "guarded", "key")

    def __init__(self, encoding: Encoding, exchange: Exchange, key: str, guarded: bool) -> None:
        self.encoding = encoding
        self.exchange = exchange
        self.key = key
        self.guarded = guarded  # each key needs a topic permission


class Incoming:
    """The rows of one request."""

    __slots__ = (
        "_access",
        "_body",
        "_broker",
        "_exchanges",
        "_facts",
        "_host",
        "_size_max",
        "_user",
        "blocks",
        "rows",
    )

    def __init__(self, asked: Asked, host: VirtualHost) -> None:
        self._broker: Broker = asked.broker
        self._access = asked.broker.access
        self._user: User = asked.user
        self._host = host
        self._size_max = asked.message_size_max
        self._body = asked.body
        self._exchanges: dict[
            str, tuple[Exchange, bool]
        ] = {}  # that may be published to, and whether keys are guarded
        self._facts: dict[object, Facts] = {}  # by all there is in them
        self.blocks: list[Rows] = []
        self.rows = 0

    def check(self) -> Generator[float, None, None]:
        """All of it; a portion at a time, as `InPortions` wants it. Raises Failures."""
        if not self._body:
            raise PreconditionFailed("the body has no blocks")
        at = octets = 0
        while at < len(self._body):
            try:
                head = block.header(self._body, at)
                self.rows += head.count
                octets += head.origins_octets
                self._require_few(octets)
                rows = Rows(block.Block(self._body, at))
            except (DamagedError, ValueError, RecursionError) as error:
                raise PreconditionFailed(f"the block at octet {at} cannot be read: {error}") from None
            yield from self._check_block(rows, at)
            self.blocks.append(rows)
            at += head.octets
        self._body = b""

    def _require_few(self, octets: int) -> None:
        if self.rows > ROWS_MAX:
            raise PreconditionFailed(f"there are more than {ROWS_MAX} rows; send smaller requests")
        if octets > ORIGINS_OCTETS_MAX:
            raise PreconditionFailed(
                f"the origins have more than {ORIGINS_OCTETS_MAX} octets; send smaller requests"
            )

    def _check_block(self, rows: Rows, at: int) -> Generator[float, None, None]:
        rows.require_sound(at, self._size_max)
        said_of_each, rows.said = rows.said, []
        for number, said in enumerate(said_of_each, 1):
            rows.origins.append(self._origin(said, at))
            if number % ORIGINS == 0:
                yield PAUSE_S
        if len({origin.encoding.name for origin in rows.origins}) > 1:
            raise PreconditionFailed(f"the block at octet {at} has messages of several protocols")
        for number, (encoding, raw) in enumerate(rows.properties(), 1):
            rows.seen[raw] = self._seen(encoding, raw)
            if number % PROPERTIES == 0:
                yield PAUSE_S
        if any(origin.guarded for origin in rows.origins):
            self._check_further_keys(rows)

    def _origin(self, said: object, at: int) -> Origin:
        if not isinstance(said, list) or len(said) != ORIGIN_LENGTH:
            raise PreconditionFailed(
                f"the block at octet {at} has an origin that is no list of {ORIGIN_LENGTH}"
            )
        names = said[0], said[-2], said[-1]
        for name in names:
            if not isinstance(name, str) or not is_name(name):
                raise PreconditionFailed(
                    f"the block at octet {at} has an origin whose encoding, exchange or routing key is no text of"
                    f" {NAME_MAX} octets or less"
                )
        encoding, exchange, key = names
        known = self._exchanges.get(exchange)
        if known is None:
            known = self._exchanges[exchange] = self._may_publish(exchange)
        if known[1]:
            self._check_topic(known[0], key)
        return Origin(self._encoding(encoding), known[0], key, known[1])

    def _may_publish(self, name: str) -> tuple[Exchange, bool]:
        self._access.check(self._user, self._host.name, Permission.WRITE, "exchange", name)
        exchange = self._host.exchange(name)
        require_not_internal(exchange)
        topics = self._access.guards_topics(self._user, self._host.name, exchange.name)
        return exchange, topics and exchange.type.name == "topic"

    def _check_topic(self, exchange: Exchange, key: str) -> None:
        self._access.check_topic(self._user, self._host.name, Permission.WRITE, exchange.name, key)

    def _encoding(self, name: str) -> Encoding:
        encoding = self._broker.encodings.get(name)
        if encoding is None:
            raise PreconditionFailed(f"a message is of the protocol '{name}', which is not installed")
        return encoding()

    def _seen(self, encoding: Encoding, raw: bytes) -> Seen:
        facts, kept = encoding.published(raw)
        if facts.user_id is not None:
            self._access.check_user_id(self._user, facts.user_id)
        return self._shared(facts), kept

    def _shared(self, facts: Facts) -> Facts:
        """The same for all rows of which the broker knows the same: to the store, each is another kind (7 us)."""
        if type(facts) is not Facts:
            return facts
        looks = (
            facts.durable,
            facts.priority,
            facts.ttl_ms,
            facts.user_id,
            facts.reply_to,
            facts.cc,
            facts.bcc,
            facts.has_headers,
        )
        return self._facts.setdefault(looks, facts)

    def _check_further_keys(self, rows: Rows) -> None:
        """CC and BCC are keys, too (S088)."""
        for place, raw in set(zip(rows.places, rows.raws, strict=True)):
            facts, origin = rows.seen[raw][0], rows.origins[place]
            if origin.guarded:
                for key in (*facts.cc, *facts.bcc):
                    self._check_topic(origin.exchange, key)

    def messages(self) -> Iterator[Message]:
        """All rows, in order, made as they are taken."""
        return chain.from_iterable(map(Rows.messages, self.blocks))


class Rows:
    """One block's."""

    __slots__ = ("_bodies", "_ends", "origins", "places", "raws", "said", "seen")

    def __init__(self, read: block.Block) -> None:
        count = read.header.count
        self.said: list[list[object]] = read.origins
        self.origins: list[Origin] = []  # that may be published to
        self.places = [0] * count if read.which is None else read.which.tolist()
        if read.property_ends is None:
            self.raws = [bytes(read.properties)] * count
        else:
            self.raws = block.pieces(read.properties, ascending(read.property_ends, len(read.properties)))
        self.seen: dict[bytes, Seen] = {}  # by the properties as they came
        self._ends = ascending(read.body_ends, len(read.bodies)).tolist()
        self._bodies = read.bodies

    def require_sound(self, at: int, size_max: int) -> None:
        """Raises PreconditionFailed."""
        said = self.said
        if not isinstance(said, list) or max(self.places) >= len(said):
            raise PreconditionFailed(f"the block at octet {at} has rows without an origin")
        size = max(end - begin for begin, end in pairwise(self._ends))
        if size > size_max:
            raise PreconditionFailed(f"message size {size} is larger than configured max size {size_max}")

    def properties(self) -> Iterable[tuple[Encoding, bytes]]:
        """Each distinct ones, with their encoding, which all rows have."""
        encoding = self.origins[0].encoding
        return [(encoding, raw) for raw in dict.fromkeys(self.raws)]

    def messages(self) -> Iterator[Message]:
        bodies, seen = bytes(self._bodies), self.seen
        targets = [(each.encoding, each.exchange.name, each.key) for each in self.origins]
        for place, raw, (begin, end) in zip(self.places, self.raws, pairwise(self._ends), strict=True):
            encoding, exchange, key = targets[place]
            facts, kept = seen[raw]
            yield Message(encoding, exchange, key, kept, bodies[begin:end], facts)


def ascending(ends: block.Column, octets: int) -> block.Column:
    """The column, if it says where pieces of so many octets end. Raises ValueError."""
    listed = ends.tolist()
    if listed[0] or listed[-1] != octets or any(begin > end for begin, end in pairwise(listed)):
        raise ValueError("pieces end where they cannot")
    return ends


def is_name(name: str) -> bool:
    """Whether it can stand on the wire."""
    try:
        return len(name) <= NAME_MAX and len(name.encode("utf-8", "surrogateescape")) <= NAME_MAX
    except UnicodeEncodeError:
        return False
