"""The subscriptions of a session: their options, and which of them a topic matches.

Subscriptions stand in groups, one for each queue of the session: those of QoS 0, those of QoS 1 and 2, and each shared
one by itself. A message that comes from a queue is compared with the subscriptions of its group alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from leveret.protocols.mqtt.broker.topics import binding_key_of, matches
from leveret.protocols.mqtt.codec.packets import Subscription
from leveret.protocols.mqtt.codec.topics import shared

if TYPE_CHECKING:
    from leveret.values import Table

MATCHED_MAX: Final = 1024  # topics whose matches are remembered


@attrs.frozen
class Match:
    """The joint options of all subscriptions that a topic matches."""

    qos: int
    retain_as_published: bool
    no_local: bool  # all of them ask for that
    identifiers: tuple[int, ...]


class Subscribed:
    """One subscription of a session."""

    __slots__ = ("identifier", "levels", "no_local", "qos", "retain_as_published", "share", "topic_filter")

    def __init__(self, asked: Subscription, identifier: int = 0) -> None:
        self.topic_filter = asked.topic_filter  # as the client wrote it, with `$share`
        found = shared(asked.topic_filter)
        self.share = None if found is None else found[0]
        self.levels = (asked.topic_filter if found is None else found[1]).split("/")
        self.qos = asked.qos
        self.no_local = asked.no_local
        self.retain_as_published = asked.retain_as_published
        self.identifier = identifier  # 0: none

    @property
    def own_filter(self) -> str:
        """The filter without the share name."""
        return "/".join(self.levels)

    @property
    def binding_key(self) -> str:
        return binding_key_of(self.own_filter)

    def match(self) -> Match:
        """Return its options as those of a match."""
        identifiers = (self.identifier,) if self.identifier else ()
        return Match(self.qos, self.retain_as_published, self.no_local, identifiers)

    def as_table(self) -> Table:
        """Return what is kept of it in a record."""
        return {
            "filter": self.topic_filter,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "identifier": self.identifier,
        }


def subscribed_from(table: object) -> Subscribed:
    """Return a subscription from its record. Raises ValueError if that is damaged, or MqttError."""
    if not isinstance(table, dict):
        raise ValueError("a subscription is no table")
    topic_filter, qos, identifier = table.get("filter"), table.get("qos"), table.get("identifier")
    if not isinstance(topic_filter, str) or not isinstance(qos, int) or not isinstance(identifier, int):
        raise ValueError("a subscription has no filter, QoS or identifier")
    asked = Subscription(
        topic_filter, qos, table.get("no_local") is True, table.get("retain_as_published") is True
    )
    return Subscribed(asked, identifier)


class Group:
    """The subscriptions behind one queue of a session."""

    __slots__ = ("_matched", "by_filter", "is_shared", "queue_name", "revision")

    def __init__(self, queue_name: str, is_shared: bool) -> None:
        self.queue_name = queue_name
        self.is_shared = is_shared  # other sessions take messages from the same queue
        self.revision = 0  # rises with each change
        self.by_filter: dict[str, Subscribed] = {}
        self._matched: dict[str, Match | None] | None = None  # None: nothing is remembered

    @property
    def only(self) -> Subscribed:
        """The one subscription of a group that has one."""
        return next(iter(self.by_filter.values()))

    def put(self, subscribed: Subscribed) -> None:
        """Add a subscription, in place of one with the same filter."""
        self.by_filter[subscribed.topic_filter] = subscribed
        self._changed()

    def remove(self, topic_filter: str) -> None:
        self.by_filter.pop(topic_filter, None)
        self._changed()

    def _changed(self) -> None:
        self._matched = None
        self.revision += 1

    def match(self, topic: str) -> Match | None:
        """Return the joint options of the subscriptions that match, or None if there are none."""
        matched = self._matched
        if matched is None or len(matched) >= MATCHED_MAX:
            matched = self._matched = {}
        elif topic in matched:
            return matched[topic]
        levels = topic.split("/")
        found = [each for each in self.by_filter.values() if matches(each.levels, levels)]
        match = matched[topic] = _joined(found)
        return match


def _joined(found: list[Subscribed]) -> Match | None:
    if len(found) <= 1:
        return found[0].match() if found else None
    return Match(
        max(each.qos for each in found),
        any(each.retain_as_published for each in found),
        all(each.no_local for each in found),
        tuple(each.identifier for each in found if each.identifier),
    )
