"""Check blocks from a client as a whole, and turn them into messages.

Nothing in them is trusted: the facts that the broker keeps of a message are read anew from its properties, and the
checks are those of a publish over AMQP. Offsets, times, places in queues and deaths in them are ignored.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, pairwise
from operator import le, sub
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.client import require_not_internal
from leveret.durable.store import block
from leveret.durable.store.chunk import BIG_ENDIAN, octets_of
from leveret.durable.store.contract import DamagedError, Packed
from leveret.errors import PreconditionFailed
from leveret.message import Encoding, Facts, Message
from leveret.queues.discarded_messages import PAUSE_S
from leveret.security.users import Permission

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.exchange_type import Exchange
    from leveret.protocols.http.server.request import Request
    from leveret.security.users import User
    from leveret.virtual_host import VirtualHost

ROWS_MAX: Final = 1_000_000  # of a request
ORIGINS_OCTETS_MAX: Final = 4 << 20  # of a request: JSON takes many times that while it is read
ORIGIN_LENGTH: Final = 12  # encoding, nine fields that are ignored, exchange, routing key
NAME_MAX: Final = 255  # bytes of an exchange's name or a routing key
BLOCK_OCTETS_MAX: Final = 2 * block.BLOCK_OCTETS  # of a block that is kept as it is
ORIGINS: Final = 4000  # checked in a turn: 8 ms
PROPERTIES: Final = 2000  # the same

Seen: TypeAlias = "tuple[Facts, bytes]"  # the facts that the broker keeps, and the properties as stored


class Origin:
    """The exchange and routing key that rows of a block are to be published with."""

    __slots__ = ("encoding", "exchange", "guarded", "key")

    def __init__(self, encoding: Encoding, exchange: Exchange, key: str, guarded: bool) -> None:
        self.encoding = encoding
        self.exchange = exchange
        self.key = key
        self.guarded = guarded  # each key needs a topic permission


class InputBlocks:
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

    def __init__(self, request: Request, host: VirtualHost) -> None:
        self._broker: Broker = request.broker
        self._access = request.broker.access
        self._user: User = request.user
        self._host = host
        self._size_max = request.message_size_max
        self._body = request.body
        # exchanges that may be published to, and whether their keys are guarded
        self._exchanges: dict[str, tuple[Exchange, bool]] = {}
        self._facts: dict[object, Facts] = {}  # shared by equal rows
        self.blocks: list[BlockRows] = []
        self.rows = 0

    def check(self) -> Generator[float, None, None]:
        """Check all blocks in portions, as steps of `PortionedAnswer`. Raises Failures if one cannot be published."""
        if not self._body:
            raise PreconditionFailed("the body has no blocks")
        at = octets = 0
        while at < len(self._body):
            try:
                head = block.header(self._body, at)
                self.rows += head.count
                octets += head.origins_octets
                self._require_few(octets)
                rows = BlockRows(block.Block(self._body, at))
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

    def _check_block(self, rows: BlockRows, at: int) -> Generator[float, None, None]:
        rows.require_sound(at, self._size_max)
        said_of_each, rows.said = rows.said, []
        for number, value in enumerate(said_of_each, 1):
            rows.origins.append(self._origin(value, at))
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
        require = rows.origins[0].encoding.require_body
        for number, body in enumerate(rows.bodies(), 1):
            require(body)
            if number % PROPERTIES == 0:
                yield PAUSE_S

    def _origin(self, value: object, at: int) -> Origin:
        if not isinstance(value, list) or len(value) != ORIGIN_LENGTH:
            raise PreconditionFailed(
                f"the block at octet {at} has an origin that is no list of {ORIGIN_LENGTH}"
            )
        names = value[0], value[-2], value[-1]
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
        """Return the same object for equal facts, because the store writes each object as another kind (7 us)."""
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

    def _check_further_keys(self, rows: BlockRows) -> None:
        """Check topic permissions of the keys in CC and BCC (S088)."""
        for place, raw in rows.kinds():
            facts, origin = rows.seen[raw][0], rows.origins[place]
            if origin.guarded:
                for key in (*facts.cc, *facts.bcc):
                    self._check_topic(origin.exchange, key)

    def messages(self) -> Iterator[Message]:
        """Yield all rows as messages, in order."""
        return chain.from_iterable(map(BlockRows.messages, self.blocks))

    def samples(self) -> Iterator[Message]:
        """Yield a message without a body for each set of rows that differ only in bodies, in order of appearance."""
        return chain.from_iterable(map(BlockRows.samples, self.blocks))

    def packed(self) -> Iterator[Packed] | None:
        """Return all rows in blocks, made as they are taken, or None if some are better kept one by one."""
        return map(BlockRows.packed, self.blocks) if all(rows.is_alike for rows in self.blocks) else None


class BlockRows:
    """The rows of one block."""

    __slots__ = ("_read", "ends", "origins", "places", "raws", "said", "seen")

    def __init__(self, read: block.Block) -> None:
        self._read = read
        self.said: list[list[object]] = read.origins
        self.origins: list[Origin] = []  # checked: these may be published to
        self.places = None if read.which is None else read.which.tolist()  # None if all are of the first
        self.raws: list[bytes] | None = None  # properties as they came; None if all are equal
        if read.property_ends is not None:
            ascending(read.property_ends, len(read.properties))
            self.raws = block.pieces(read.properties, read.property_ends)
        self.seen: dict[bytes, Seen] = {}  # by the properties as they came
        self.ends = ascending(read.body_ends, len(read.bodies))

    def require_sound(self, at: int, size_max: int) -> None:
        """Check that rows have origins, and are not too large. Raises PreconditionFailed otherwise."""
        value = self.said
        if not isinstance(value, list) or max(self.places or (0,)) >= len(value):
            raise PreconditionFailed(f"the block at octet {at} has rows without an origin")
        size = max(map(sub, self.ends[1:], self.ends))
        if size > size_max:
            raise PreconditionFailed(
                f"message size {size} is larger than configured max size {size_max} (limits.message_size_max)"
            )

    @property
    def count(self) -> int:
        return self._read.header.count

    def properties(self) -> Iterable[tuple[Encoding, bytes]]:
        """Return the distinct properties, with the encoding of all rows."""
        encoding = self.origins[0].encoding
        return [(encoding, raw) for raw in dict.fromkeys(self.raws or (self._raw,))]

    @property
    def _raw(self) -> bytes:
        """Return the properties that all rows have."""
        return bytes(self._read.properties)

    def kinds(self) -> Iterable[tuple[int, bytes]]:
        """Return the pairs of origin and properties that occur, in order of appearance."""
        if self.raws is not None:
            return dict.fromkeys(zip(self.places or [0] * self.count, self.raws, strict=True))
        raw = self._raw
        return [(place, raw) for place in dict.fromkeys(self.places or (0,))]

    def bodies(self) -> Iterator[bytes]:
        """Yield the bodies that need a check: none where any bytes are one."""
        if type(self.origins[0].encoding).require_body is not Encoding.require_body:
            yield from (bytes(self._read.bodies[begin:end]) for begin, end in pairwise(self.ends))

    def samples(self) -> Iterator[Message]:
        for place, raw in self.kinds():
            yield self._message(self.origins[place], raw, b"")

    def _message(self, origin: Origin, raw: bytes, body: bytes) -> Message:
        facts, kept = self.seen[raw]
        return Message(origin.encoding, origin.exchange.name, origin.key, kept, body, facts)

    def messages(self) -> Iterator[Message]:
        bodies, seen = bytes(self._read.bodies), self.seen
        targets = [(each.encoding, each.exchange.name, each.key) for each in self.origins]
        places = self.places or [0] * self.count
        raws = self.raws or [self._raw] * self.count
        for place, raw, (begin, end) in zip(places, raws, pairwise(self.ends), strict=True):
            encoding, exchange, key = targets[place]
            facts, kept = seen[raw]
            yield Message(encoding, exchange, key, kept, bodies[begin:end], facts)

    @property
    def is_alike(self) -> bool:
        """Return whether rows differ in origins and bodies only, and fit a block of the size that the broker makes."""
        if self.raws is not None:
            return False
        head, ((facts, kept),) = self._read.header, self.seen.values()
        is_small = head.count <= block.BLOCK_MESSAGES and head.octets <= BLOCK_OCTETS_MAX
        says_little = len(self.origins) * len(kept) <= block.BLOCK_OCTETS  # each origin has its own facts
        return type(facts) is Facts and says_little and is_small

    def packed(self) -> Packed:
        """Return the rows as a block of our own, with the facts that were checked."""
        read = self._read
        ((raw, (_, kept)),) = self.seen.items()
        origins = [block.origin_of(self._message(origin, raw, b"")) for origin in self.origins]
        kinds = b"[" + b",".join(origins) + b"]"
        parts: list[bytes | memoryview[int]] = [kinds]
        flags = block.SAME
        if read.which is not None:
            flags |= block.WHICH
            parts.append(listed(read.which))
        parts += (kept, listed(read.body_ends), read.bodies)
        sizes = len(origins), len(kinds), len(kept), len(read.bodies)
        return Packed(block.sealed(flags, self.count, 0, 0, sizes, parts), self.count, len(read.bodies))


def listed(column: block.Column) -> bytes | memoryview[int]:
    """Return a column in the byte order of a block."""
    return octets_of(array("I", column)) if BIG_ENDIAN else column.cast("B")  # type: ignore[union-attr]


def ascending(ends: block.Column, octets: int) -> list[int]:
    """Return a column as a list, if it has the ends of pieces of so many bytes. Raises ValueError otherwise."""
    listed = ends.tolist()
    if listed[0] or listed[-1] != octets or not all(map(le, listed, listed[1:])):
        raise ValueError("the ends of pieces do not ascend to their size")
    return listed


def is_name(name: str) -> bool:
    """Return whether a name can be sent over the wire."""
    try:
        return len(name) <= NAME_MAX and len(name.encode("utf-8", "surrogateescape")) <= NAME_MAX
    except UnicodeEncodeError:
        return False
