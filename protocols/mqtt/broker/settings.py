"""The settings of MQTT: the table `[protocols.mqtt]`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from leveret.config.records import Record, key
from leveret.config.types import KIB, MIB, Duration, ListOf, Octets, TableOf, Text, Whole


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MqttSettings(Record):
    """The table `[protocols.mqtt]`. New values hold for connections opened afterwards."""

    exchange: str = key(
        Text("the name of a topic exchange"),
        "The topic exchange to which clients publish, and to which their subscriptions are bound. Another to keep "
        "devices apart from what uses that one over AMQP.",
        "amq.topic",
    )
    virtual_host: str = key(
        Text("the name of a virtual host, or an empty string", r"(?s).*"),
        "The virtual host of clients for which neither their user name (`vhost:user`), nor their certificate, nor the "
        "listener says one; empty: the first one of the configuration.",
        "",
    )
    certificate_virtual_hosts: Mapping[str, str] = key(
        TableOf(Text("the name of a virtual host"), "a table with a virtual host for each name"),
        "The virtual hosts of clients by the user name in their certificates, however they log in. Set it for devices "
        "that cannot name one.",
        {},
    )
    mechanisms: tuple[str, ...] = key(
        ListOf(Text("the name of a SASL mechanism", r"[A-Z0-9_-]{1,20}"), least=1),
        "The ways to log in: PLAIN is user name and password of CONNECT, ANONYMOUS is neither, EXTERNAL the client's "
        "certificate; all of them are authentication methods of version 5. More for other ways to log in, fewer where "
        "some are too weak.",
        ("PLAIN", "ANONYMOUS"),
    )
    packet_size_max: int = key(
        Octets(KIB, 256 * MIB),
        "The largest packet that is taken from a client, in bytes. More for clients that send larger messages.",
        16 * MIB,
    )
    connect_size_max: int = key(
        Octets(64, MIB),
        "The largest packet before a client has logged in, in bytes. More for clients with large wills, or long "
        "tokens for passwords.",
        64 * KIB,
    )
    connect_timeout_s: float = key(
        Duration(1, 600),
        "How long a client may take until it has logged in. More for devices on slow networks.",
        10.0,
    )
    keep_alive_max_s: int = key(
        Whole(0, 65535),
        "The longest keep-alive that a client of version 5 may have, in seconds; 0: any. One of version 3.1.1 keeps "
        "its own. A number where lost clients have to be noticed sooner.",
        0,
    )
    session_expiry_max_s: int = key(
        Whole(0, 0xFFFFFFFE),
        "The most seconds that a session is kept without a connection, also of clients of version 3.1.1, which name "
        "no time. More for devices that are away for longer.",
        86_400,
    )
    receive_maximum: int = key(
        Whole(1, 65535),
        "Messages with QoS 1 and 2 that a client may send before they are acknowledged; one of version 3.1.1 is not "
        "told. More for fast publishers that are far away.",
        1024,
    )
    in_flight_max: int = key(
        Whole(1, 65535),
        "The most messages with QoS 1 and 2 on their way to one client; it may ask for fewer. More for fast "
        "subscribers that are far away.",
        1024,
    )
    waiting_max: int = key(
        Whole(1, 100_000_000),
        "The most messages of QoS 0 that wait for one client; the oldest are dropped then. More for subscribers that "
        "stall for longer, fewer where many would fill the memory.",
        20_000,
    )
    topic_alias_max: int = key(
        Whole(0, 65535),
        "Topic aliases that a client may use, and that are used towards it. More for clients that publish to more "
        "long topics again and again.",
        64,
    )
    subscriptions_max: int = key(
        Whole(1, 100_000),
        "The most subscriptions of one session. More for gateways that subscribe for many devices.",
        1000,
    )
    retained_max: int = key(
        Whole(0, 10_000_000),
        "The most retained messages of a virtual host. More where more topics keep their last message.",
        100_000,
    )
    retained_size_max: int = key(
        Octets(0, 256 * MIB),
        "The largest payload of a message that is retained, in bytes; larger ones are refused if they are to be "
        "retained. More where what is retained is larger.",
        MIB,
    )
