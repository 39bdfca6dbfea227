"""The retained messages of a virtual host: the last one of each topic, kept in the store, and found by filters.

They stand in a tree of levels, so that a filter with wildcards looks only at topics that begin as it does. Each is a
record of the protocol besides, from which it comes back at a start. An empty payload deletes (MQTT-3.3.1-6 and 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from leveret.clock import NEVER
from leveret.guests import Guest
from leveret.message import Facts, Message
from leveret.protocols.mqtt.broker.encoding import ENCODING, QOS, RETAINED, with_flags
from leveret.protocols.mqtt.broker.records import RETAINED as RETAINED_MESSAGES
from leveret.protocols.mqtt.broker.records import ProtocolRecord, erase, write
from leveret.protocols.mqtt.broker.topics import ANY_LEVEL, REST, key_of
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.reason_codes import QUOTA_EXCEEDED

if TYPE_CHECKING:
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost


class RetainedMessage:
    """One retained message. `octets` is what is kept of its PUBLISH, as in `encoding`."""

    __slots__ = ("expires_at", "octets", "payload", "topic")

    def __init__(self, topic: str, octets: bytes, payload: bytes, expires_at: float) -> None:
        self.topic = topic
        self.octets = octets
        self.payload = payload
        self.expires_at = expires_at  # seconds since 1970-01-01 UTC


class Level:
    """A level of the tree: what is below it, if there is anything, and the message of the topic that ends here."""

    __slots__ = ("below", "message")

    def __init__(self) -> None:
        self.below: dict[str, Level] | None = None
        self.message: RetainedMessage | None = None


class RetainedMessages(Guest):
    """The retained messages of one virtual host."""

    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._root = Level()
        self.count = 0

    def retain(self, topic: str, octets: bytes, payload: bytes, ttl_ms: int | None, count_max: int) -> None:
        """Put a message in place of the one that its topic had. Raises MqttError 0x97 if there are too many."""
        level = self._level(topic)
        if level.message is None:
            if self.count >= count_max:
                self._prune(topic)
                raise MqttError(QUOTA_EXCEEDED, f"there are {self.count} retained messages already")
            self.count += 1
        wall = self._host.broker.clock.wall()
        expires_at = NEVER if ttl_ms is None else wall + ttl_ms / 1000
        level.message = RetainedMessage(topic, octets, payload, expires_at)
        table: Table = {
            "topic": topic,
            "octets": octets,
            "payload": payload,
            "expires_ms": None if ttl_ms is None else round(expires_at * 1000),
        }
        write(self._host, RETAINED_MESSAGES, digest(topic), table)

    def restore(self, record: ProtocolRecord) -> None:
        """Put a message back from its record. Raises ValueError if that is damaged."""
        table = record.table
        topic, octets, payload = table.get("topic"), table.get("octets"), table.get("payload")
        if not isinstance(topic, str) or not isinstance(octets, bytes) or not isinstance(payload, bytes):
            raise ValueError("topic, properties or payload are missing")
        expires_ms = table.get("expires_ms")
        expires_at = expires_ms / 1000 if isinstance(expires_ms, int) else NEVER
        self._level(topic).message = RetainedMessage(topic, octets, payload, expires_at)
        self.count += 1

    def delete(self, topic: str) -> bool:
        """Delete the message of a topic; return whether there was one."""
        level = self._find(topic)
        if level is None or level.message is None:
            return False
        erase(self._host, RETAINED_MESSAGES, digest(topic))
        level.message = None
        self.count -= 1
        self._prune(topic)
        return True

    def close(self) -> None:
        """Delete them all, as the virtual host is deleted."""
        for each in list(self):
            self.delete(each.topic)

    def __iter__(self) -> Iterator[RetainedMessage]:
        """Return all of them, in any order."""
        return (each.message for each in _all_below(self._root, False) if each.message is not None)

    def get(self, topic: str) -> RetainedMessage | None:
        """Return the message of a topic, if it has not expired."""
        level = self._find(topic)
        found = None if level is None else level.message
        return None if found is None or self._is_over(found) else found

    def matching(self, filter_levels: list[str]) -> Iterator[RetainedMessage]:
        """Return the messages whose topics a filter matches, one after the other; those that have expired are deleted.

        Others may come and go meanwhile.
        """
        for level in _matching(self._root, filter_levels, 0):
            found = level.message
            if found is None:
                continue
            if self._is_over(found):
                self.delete(found.topic)
            else:
                yield found

    def message_of(self, retained: RetainedMessage, exchange: str) -> Message:
        """Return a message for a new subscription, with what is left of its time to live."""
        octets = with_flags(retained.octets, retained.octets[0] | RETAINED)
        left_s = retained.expires_at - self._host.broker.clock.wall()
        ttl_ms = None if retained.expires_at == NEVER else max(1, round(left_s * 1000))
        facts = Facts(durable=bool(octets[0] & QOS), ttl_ms=ttl_ms, has_headers=True)
        return Message(ENCODING, exchange, key_of(retained.topic), octets, retained.payload, facts)

    def _is_over(self, retained: RetainedMessage) -> bool:
        return retained.expires_at <= self._host.broker.clock.wall()

    def _level(self, topic: str) -> Level:
        level = self._root
        for name in topic.split("/"):
            if level.below is None:
                level.below = {}
            below = level.below.get(name)
            if below is None:
                below = level.below[name] = Level()
            level = below
        return level

    def _find(self, topic: str) -> Level | None:
        level: Level | None = self._root
        for name in topic.split("/"):
            level = None if level is None or level.below is None else level.below.get(name)
        return level

    def _prune(self, topic: str) -> None:
        """Remove the levels of a topic that lead nowhere now."""
        path: list[tuple[Level, dict[str, Level], str]] = []
        level = self._root
        for name in topic.split("/"):
            assert level.below is not None, "the topic is there"
            path.append((level, level.below, name))
            level = level.below[name]
        for above, levels, name in reversed(path):
            below = levels[name]
            if below.below is not None or below.message is not None:
                return
            del levels[name]
            if not levels:
                above.below = None


def retained_of(host: VirtualHost) -> RetainedMessages:
    """Return the retained messages of a virtual host."""
    return host.guest(RetainedMessages)


def digest(topic: str) -> str:
    """Return the name of a topic's record, which is short, whatever the topic."""
    return blake2b(topic.encode(), digest_size=16).hexdigest()


def _matching(level: Level, filter_levels: list[str], depth: int) -> Iterator[Level]:
    if depth == len(filter_levels):
        yield level
        return
    wanted, levels = filter_levels[depth], level.below
    if wanted == REST:
        yield from _all_below(level, depth == 0)
    elif levels is None:
        return
    elif wanted == ANY_LEVEL:
        found = list(levels.values())
        if not depth:
            found = [below for name, below in levels.items() if not name.startswith("$")]  # MQTT-4.7.2-1
        for below in found:
            yield from _matching(below, filter_levels, depth + 1)
    elif wanted in levels:
        yield from _matching(levels[wanted], filter_levels, depth + 1)


def _all_below(top: Level, is_root: bool) -> Iterator[Level]:
    """Return a level and all below it; of the root of a filter, without topics that begin with `$`."""
    pending = [top]
    while pending:
        level = pending.pop()
        if level.below is not None:
            if level is top and is_root:
                pending += [below for name, below in level.below.items() if not name.startswith("$")]
            else:
                pending += level.below.values()
        yield level
