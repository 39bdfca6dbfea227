"""Topics and routing keys: the same words with other separators, and which filters match which topics.

    MQTT    a/b.c/+/#       topic or filter: levels between `/`
    core    a.b/c.*.#       routing key or binding key: words between `.`

The separators change places, so that each topic has one key and each key one topic: `a/b` is `a.b`, as in RabbitMQ,
and a dot within a level is a slash within a word. `+` of a filter is `*` of a binding key. A binding may match more
than its filter does (`*` is a character like others in MQTT, and topics that begin with `$` are not matched by
wildcards): so a topic is compared with the filters once more when a message is delivered.
"""

from __future__ import annotations

from typing import Final

from leveret.limits import NAME_MAX

SWAPPED: Final = str.maketrans("/.", "./")
OF_FILTER: Final = str.maketrans("/.+", "./*")
ANY_LEVEL: Final = "+"
REST: Final = "#"


def key_of(topic: str) -> str:
    """Return the routing key of a topic."""
    return topic.translate(SWAPPED)


def topic_of(key: str) -> str:
    """Return the topic of a routing key. It may be one that MQTT does not allow: see `can_be_topic`."""
    return key.translate(SWAPPED)


def binding_key_of(topic_filter: str) -> str:
    """Return the binding key of a topic filter."""
    return topic_filter.translate(OF_FILTER)


def fits(topic: str) -> bool:
    """Return whether a topic or a filter is short enough to be a key in every protocol: 255 bytes."""
    return len(topic) <= NAME_MAX // 4 or len(topic.encode()) <= NAME_MAX


def can_be_topic(topic: str) -> bool:
    """Return whether MQTT allows this as the topic of a message (MQTT-4.7.1-1, MQTT-4.7.3-1, MQTT-4.7.3-2)."""
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        return False
    return topic.isascii() or is_utf8(topic)


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as a key of bytes that are not UTF-8 has them
        return False
    return True


def matches(filter_levels: list[str], topic_levels: list[str]) -> bool:
    """Return whether a filter matches a topic, each given as its levels (MQTT-4.7.1-2 to 4.7.2-1)."""
    if topic_levels[0][:1] == "$" and filter_levels[0] in (ANY_LEVEL, REST):
        return False
    for place, level in enumerate(filter_levels):
        if level == REST:
            return True
        if place == len(topic_levels) or level not in (ANY_LEVEL, topic_levels[place]):
            return False
    return len(filter_levels) == len(topic_levels)
