"""Hints at our own options, for names that the connectors of Kafka and RabbitMQ have, and for what is no option."""

from __future__ import annotations

from typing import Final

WHERE: Final = (
    "say where the broker is with the option endpoints: the URL of its management address, such as"
    " http://localhost:15672, not that of AMQP"
)
NO_GROUPS: Final = (
    "there are no groups of readers: a query goes on at its checkpoint, and one that reads queues is named with"
    " readerName"
)
SOURCES: Final = "name streams and queues with the option subscribe"
TARGET: Final = "say where rows go with the options exchange and routingKey"
KAFKAS: Final = "kafka."  # begins the names of options of Kafka's client

OF_BOTH: Final = {
    "password": "a password in an option would be visible to all who see the query; use passwordFile or the"
    " environment variable LEVERET_PASSWORD",
    **dict.fromkeys(
        ("bootstrap.servers", "kafka.bootstrap.servers", "host", "hostname", "port", "uri", "url"), WHERE
    ),
    **dict.fromkeys(("addresses", "server", "servers", "broker", "brokers"), WHERE),
    **dict.fromkeys(("group", "groupid", "group.id", "groupidprefix", "kafka.group.id"), NO_GROUPS),
    "user": "name the user with the option username",
    **dict.fromkeys(("virtualhost", "virtual_host"), "name the virtual host with the option vhost"),
}
READING: Final = {
    **OF_BOTH,
    "path": "load() takes no path; name the streams with subscribe",
    **dict.fromkeys(("topic", "topics"), f"there are no topics: {SOURCES}"),
    **dict.fromkeys(("queue", "queues", "queuename", "stream", "streams"), SOURCES),
    "exchange": f"an exchange is written to; {SOURCES}",
}
WRITING: Final = {
    **OF_BOTH,
    "path": f"save() and start() take no path; {TARGET}",
    "topic": f"there are no topics; {TARGET}",
    **dict.fromkeys(("queue", "queuename"), f"{TARGET}; the exchange '' routes by queue name"),
    "subscribe": f"subscribe is for reading; {TARGET}",
}
