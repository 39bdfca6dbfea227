"""The retained messages of a virtual host: the last one of each topic, kept in the store, and found by filters.

Topics are in order, so that a filter with wildcards looks only at those that begin as it does, some at a time. Each
message is a record of the protocol besides, from which it comes back at a start. An empty payload deletes
(MQTT-3.3.1-6 and 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from leveret.clock import NEVER
from leveret.guests import Guest
from leveret.message import Facts, Message
from leveret.protocols.mqtt.broker.encoding import ENCODING, QOS, RETAINED, with_flags
from leveret.protocols.mqtt.broker.ordered_topics import OrderedTopics
from leveret.protocols.mqtt.broker.records import RETAINED as RETAINED_MESSAGES
from leveret.protocols.mqtt.broker.records import ProtocolRecord, erase, write
from leveret.protocols.mqtt.broker.topics import ANY_LEVEL, REST, key_of, matches
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.reason_codes import QUOTA_EXCEEDED

if TYPE_CHECKING:
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost

PASSED_MAX: Final = 32  # topics that a filter does not match, in 30 us
AT_ONCE: Final = 64  # topics that are taken from the order


class RetainedMessage:
    """One retained message. `octets` is what is kept of its PUBLISH, as in `encoding`."""

    __slots__ = ("expires_at", "octets", "payload", "topic")

    def __init__(self, topic: str, octets: bytes, payload: bytes, expires_at: float) -> None:
        self.topic = topic
        self.octets = octets
        self.payload = payload
        self.expires_at = expires_at  # seconds since 1970-01-01 UTC


class RetainedMessages(Guest):
    """The retained messages of one virtual host."""

    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._by_topic: dict[str, RetainedMessage] = {}
        self._topics = OrderedTopics()
        self._octets = b""  # of the last one that was restored: most are alike

    @property
    def count(self) -> int:
        """The number of retained messages."""
        return len(self._by_topic)

    def require_room(self, topic: str, count_max: int) -> None:
        """Raise MqttError 0x97 if a topic has no message, and there are so many already."""
        if self.count >= count_max and topic not in self._by_topic:
            raise MqttError(QUOTA_EXCEEDED, f"there are {self.count} retained messages already")

    def retain(self, topic: str, octets: bytes, payload: bytes, ttl_ms: int | None) -> None:
        """Put a message in place of the one that its topic had, if it had one."""
        before = self._by_topic.get(topic)
        if before is not None:
            topic = before.topic  # one object, which the order has, too
        wall = self._host.broker.clock.wall()
        expires_at = NEVER if ttl_ms is None else wall + ttl_ms / 1000
        self._put(RetainedMessage(topic, octets, payload, expires_at))
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
        if octets == self._octets:
            octets = self._octets
        self._octets = octets
        self._put(RetainedMessage(topic, octets, payload, expires_at))

    def _put(self, message: RetainedMessage) -> None:
        topic = message.topic
        if topic not in self._by_topic:
            self._topics.add(topic)
        self._by_topic[topic] = message

    def delete(self, topic: str) -> bool:
        """Delete the message of a topic; return whether there was one."""
        if self._by_topic.pop(topic, None) is None:
            return False
        self._topics.remove(topic)
        erase(self._host, RETAINED_MESSAGES, digest(topic))
        return True

    def close(self) -> None:
        """Delete them all, as the virtual host is deleted."""
        for each in list(self):
            self.delete(each.topic)

    def __iter__(self) -> Iterator[RetainedMessage]:
        """Return all of them, in the order of their topics. Others may come and go meanwhile."""
        for topic in self._in_order(""):
            found = self._by_topic.get(topic)
            if found is not None:
                yield found

    def get(self, topic: str) -> RetainedMessage | None:
        """Return the message of a topic, if it has not expired."""
        found = self._by_topic.get(topic)
        return None if found is None or self._is_over(found) else found

    def matching(self, filter_levels: list[str]) -> Iterator[RetainedMessage | None]:
        """Return the messages whose topics a filter matches, one after the other; those that have expired are deleted.

        None stands for `PASSED_MAX` topics that it does not match, so that each item is little work. Others may come
        and go meanwhile.
        """
        passed = 0
        for topic in self._candidates(filter_levels):
            found = self._by_topic.get(topic)
            if found is not None and matches(filter_levels, topic.split("/")):
                if not self._is_over(found):
                    yield found
                    continue
                self.delete(topic)
            passed += 1
            if passed % PASSED_MAX == 0:
                yield None

    def _candidates(self, filter_levels: list[str]) -> Iterator[str]:
        """Return the topics that begin as a filter does, until its first wildcard."""
        plain = list(takewhile(lambda level: level not in (ANY_LEVEL, REST), filter_levels))
        start = "/".join(plain)
        if len(plain) == len(filter_levels):
            yield start
            return
        if plain:
            if filter_levels[len(plain)] == REST:  # which the level above matches, too
                yield start
            start += "/"
        yield from self._in_order(start)

    def _in_order(self, start: str) -> Iterator[str]:
        """Return the topics that begin with `start`, in their order."""
        at = start
        while topics := self._topics.since(at, AT_ONCE):
            for topic in topics:
                if not topic.startswith(start):
                    return
                yield topic
            at = topics[-1] + "\0"  # no topic is between them

    def message_of(self, retained: RetainedMessage, exchange: str) -> Message:
        """Return a message for a new subscription, with what is left of its time to live."""
        octets = with_flags(retained.octets, retained.octets[0] | RETAINED)
        left_s = retained.expires_at - self._host.broker.clock.wall()
        ttl_ms = None if retained.expires_at == NEVER else max(1, round(left_s * 1000))
        facts = Facts(durable=bool(octets[0] & QOS), ttl_ms=ttl_ms, has_headers=True)
        return Message(ENCODING, exchange, key_of(retained.topic), octets, retained.payload, facts)

    def _is_over(self, retained: RetainedMessage) -> bool:
        return retained.expires_at <= self._host.broker.clock.wall()


def retained_of(host: VirtualHost) -> RetainedMessages:
    """Return the retained messages of a virtual host."""
    return host.guest(RetainedMessages)


def digest(topic: str) -> str:
    """Return the name of a topic's record, which is short, whatever the topic."""
    return blake2b(topic.encode(), digest_size=16).hexdigest()
