"""Topic names and topic filters, MQTT 5 section 4.7 and 4.8.2: which are allowed, and which are shared. No state."""

from __future__ import annotations

from typing import Final

from leveret.protocols.mqtt.codec.errors import MqttError, ProtocolError
from leveret.protocols.mqtt.codec.reason_codes import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID

SHARE: Final = "$share/"


def check_topic_name(name: str) -> None:
    """Raise MqttError 0x90 for a topic name that is empty or has wildcards."""
    if not name:
        raise MqttError(TOPIC_NAME_INVALID, "a topic name is empty")
    if "+" in name or "#" in name:
        raise MqttError(TOPIC_NAME_INVALID, "a topic name contains wildcards")


def check_topic_filter(topic_filter: str) -> None:
    """Raise MqttError 0x8F for a topic filter that is empty, or whose wildcards are not whole levels, `#` the last."""
    if not topic_filter:
        raise MqttError(TOPIC_FILTER_INVALID, "a topic filter is empty")
    if "#" not in topic_filter and "+" not in topic_filter:
        return
    levels = topic_filter.split("/")
    last = len(levels) - 1
    for place, level in enumerate(levels):
        if "#" in level and (level != "#" or place != last):
            raise MqttError(TOPIC_FILTER_INVALID, "# is not the last level of a topic filter")
        if "+" in level and level != "+":
            raise MqttError(TOPIC_FILTER_INVALID, "+ is not a whole level of a topic filter")


def shared(topic_filter: str) -> tuple[str, str] | None:
    """Return the share name and the filter of a shared subscription, or None if it is none.

    Raises MqttError 0x8F if there is no share name, or no filter, or the share name contains wildcards.
    """
    if not topic_filter.startswith(SHARE):
        return None
    name, slash, inner = topic_filter[len(SHARE) :].partition("/")
    if not name or "+" in name or "#" in name:
        raise MqttError(TOPIC_FILTER_INVALID, "a shared subscription has no valid share name")
    if not slash or not inner:
        raise MqttError(TOPIC_FILTER_INVALID, "a shared subscription has no topic filter")
    return name, inner


def check_response_topic(name: str) -> None:
    """Raise ProtocolError for a response topic that is empty or has wildcards (section 3.3.2.3.5)."""
    if not name or "+" in name or "#" in name:
        raise ProtocolError("a response topic is empty, or contains wildcards")
