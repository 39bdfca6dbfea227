"""The sections of the protocols: records like those of `sections.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import attrs

from leveret.config.records import R, Record, RecordOf, key, keys_of
from leveret.config.types import (
    FREE_TABLE,
    GIB,
    KIB,
    MIB,
    REFUSED,
    Flag,
    ListOf,
    Octets,
    Place,
    Problem,
    TableOf,
    Text,
    Whole,
    printed,
)
from leveret.values import Table

NO_TABLES: Final[Mapping[str, Table]] = {}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Amqp091Settings(Record):
    """AMQP 0-9-1. New values hold for connections opened afterwards."""

    renamed: ClassVar[Mapping[str, str]] = {"frame_min": ".compat.frame_min_size"}

    enabled: bool = key(
        Flag(),
        "Serve this protocol. False where no client speaks it.",
        True,
    )
    frame_max: int = key(
        Octets(4 * KIB, 16 * MIB),
        "The largest frame, offered to clients and enforced. More for large bodies, which then need fewer frames.",
        128 * KIB,
        reload=True,
    )
    initial_frame_max: int = key(
        Octets(4 * KIB, MIB),
        "The largest frame before a user has logged in. More for long tokens and tickets, by which users log in.",
        8 * KIB,
        reload=True,
    )
    channel_max: int = key(
        Whole(1, 65535),
        "The most channels on one connection. More for programs with a channel for each of many tasks.",
        2047,
        reload=True,
    )
    heartbeat_s: int = key(
        Whole(0, 65535),
        "Seconds between heartbeats, as suggested to clients; 0 suggests none. Fewer where lost clients have to be "
        "noticed sooner.",
        60,
        reload=True,
    )
    mechanisms: tuple[str, ...] = key(
        ListOf(Text("the name of a SASL mechanism", r"[A-Z0-9_-]{1,20}"), least=1),
        "The SASL mechanisms offered, in this order; ANONYMOUS is left out while there is no anonymous user, EXTERNAL "
        "(by the client's certificate) without one, OAUTHBEARER and XOAUTH2 without `[oauth]`, GSSAPI without "
        "`[kerberos]`. More for other ways to log in, fewer where some are too weak.",
        ("PLAIN", "AMQPLAIN", "ANONYMOUS"),
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AddressesSettings(Record):
    """The addresses that links may name. Always version 2: `/exchanges/:exchange/:key` and `/queues/:queue`."""

    v1: bool | None = key(
        Flag(),
        "Allow addresses of version 1 as well (`/exchange/...`, `/queue/...`, a bare name); without it "
        "`compat.address_v1` holds (false). True for programs that were written for RabbitMQ 3.",
        None,
        reload=True,
    )
    nodes: bool = key(
        Flag(),
        "Look up an address without `/` in front as the name of a queue or an exchange, or as `exchange/key`, as "
        "Apache Qpid does. True for programs that were written for it.",
        False,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Amqp10Settings(Record):
    """AMQP 1.0. New values hold for connections opened afterwards."""

    enabled: bool = key(
        Flag(),
        "Serve this protocol. False where no client speaks it.",
        True,
    )
    frame_max: int = key(
        Octets(512, 16 * MIB),
        "The largest frame, announced to clients and enforced. More for large messages, which then need fewer frames.",
        128 * KIB,
        reload=True,
    )
    initial_frame_max: int = key(
        Octets(512, MIB),
        "The largest frame before a connection is open. More for long tokens and tickets, by which users log in.",
        8 * KIB,
        reload=True,
    )
    session_max: int = key(
        Whole(1, 65536),
        "The most sessions on one connection. More for programs with a session for each of many tasks.",
        64,
        reload=True,
    )
    link_max: int = key(
        Whole(1, 65536),
        "The most links of one session. More for programs with many senders and receivers in one session.",
        256,
        reload=True,
    )
    idle_timeout_s: int = key(
        Whole(0, 65535),
        "Seconds without a frame after which a client is disconnected, at the latest half as many later; 0: never. "
        "Half of it is announced. Fewer where lost clients have to be noticed sooner.",
        60,
        reload=True,
    )
    link_credit: int = key(
        Whole(1, 65535),
        "Messages that one link may have on their way to the broker, or not yet confirmed. More for publishers that "
        "are far away.",
        170,
        reload=True,
    )
    incoming_window: int = key(
        Whole(1, 65535),
        "Transfers that one session may have on their way to the broker. More for publishers that are far away, with "
        "many links.",
        400,
        reload=True,
    )
    mechanisms: tuple[str, ...] = key(
        ListOf(Text("the name of a SASL mechanism", r"[A-Z0-9_-]{1,20}"), least=1),
        "The SASL mechanisms offered, in this order; ANONYMOUS is left out while there is no anonymous user, EXTERNAL "
        "(by the client's certificate) without one, OAUTHBEARER and XOAUTH2 without `[oauth]`, GSSAPI without "
        "`[kerberos]`. More for other ways to log in, fewer where some are too weak.",
        ("PLAIN", "ANONYMOUS"),
        reload=True,
    )
    link_timeout_max_s: int = key(
        Whole(0, 604_800),
        "The most seconds that unsettled deliveries are kept, if their receiver asked for that, after its link is "
        "gone; 0: none. More for receivers that come back after longer.",
        300,
        reload=True,
    )
    addresses: AddressesSettings = key(RecordOf(AddressesSettings), "Addresses.", AddressesSettings())


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Amqp010Settings(Record):
    """AMQP 0-10, an experiment. New values hold for connections opened afterwards."""

    enabled: bool = key(
        Flag(),
        "Serve this protocol. True for clients that speak no other, such as old ones of Apache Qpid.",
        False,
    )
    frame_max: int = key(
        Octets(4 * KIB, 64 * KIB - 1),
        "The largest frame that is sent; frames of up to 65535 bytes are accepted whatever was agreed. Hardly ever "
        "less: a message then needs more frames.",
        64 * KIB - 1,
        reload=True,
    )
    session_max: int = key(
        Whole(1, 65535),
        "The most sessions attached on one connection. More for programs with a session for each of many tasks.",
        256,
        reload=True,
    )
    heartbeat_s: int = key(
        Whole(0, 65535),
        "The longest interval between heartbeats, in seconds, that is suggested to clients. Fewer where lost clients "
        "have to be noticed sooner.",
        120,
        reload=True,
    )
    mechanisms: tuple[str, ...] = key(
        ListOf(Text("the name of a SASL mechanism", r"[A-Z0-9_-]{1,20}"), least=1),
        "The SASL mechanisms offered, in this order; ANONYMOUS is left out while there is no anonymous user, EXTERNAL "
        "(by the client's certificate) without one, OAUTHBEARER and XOAUTH2 without `[oauth]`, GSSAPI without "
        "`[kerberos]`. More for other ways to log in, fewer where some are too weak.",
        ("PLAIN", "ANONYMOUS"),
        reload=True,
    )
    session_timeout_max_s: int = key(
        Whole(0, 604_800),
        "The most seconds that a session is kept, if its client asked for that, after its connection is gone; 0: "
        "none. More for clients that come back after longer.",
        300,
        reload=True,
    )
    detached_sessions_max: int = key(
        Whole(0, 65535),
        "The most sessions kept for one user; one more ends the one that was detached first. More where many clients "
        "log in by one name.",
        64,
        reload=True,
    )
    replay_size_max: int = key(
        Octets(64 * KIB, GIB),
        "The most unacknowledged bytes of one session that are kept to be sent again. More for clients with many or "
        "large messages on their way.",
        16 * MIB,
        reload=True,
    )
    strict_names: bool = key(
        Flag(),
        "Refuse names of new exchanges and queues that the draft of 2007 does not allow: exchanges have letters, "
        "digits and underscores only, queues begin with one of these. True where a broker that does so has the same "
        "names.",
        False,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ProtocolsSettings(Record):
    """One table for each protocol."""

    amqp091: Amqp091Settings = key(RecordOf(Amqp091Settings), "AMQP 0-9-1.", Amqp091Settings())
    amqp10: Amqp10Settings = key(RecordOf(Amqp10Settings), "AMQP 1.0.", Amqp10Settings())
    amqp010: Amqp010Settings = key(RecordOf(Amqp010Settings), "AMQP 0-10.", Amqp010Settings())
    others: Mapping[str, Table] = key(
        TableOf(FREE_TABLE, "a table for each protocol"),
        "Protocols of plug-ins: `enabled`, and whatever keys each of them documents.",
        NO_TABLES,
        rest=True,
    )

    def enabled(self, name: str) -> bool:
        """Return whether a protocol is to be served; a protocol that is not mentioned is."""
        ours = {
            "amqp091": self.amqp091.enabled,
            "amqp10": self.amqp10.enabled,
            "amqp010": self.amqp010.enabled,
        }
        return ours[name] if name in ours else self.others.get(name, {}).get("enabled", True) is True

    def mechanisms(self) -> dict[str, tuple[str, ...]]:
        """Return the SASL mechanisms that each protocol's table names, by the protocol's name."""
        found = {
            "amqp091": self.amqp091.mechanisms,
            "amqp10": self.amqp10.mechanisms,
            "amqp010": self.amqp010.mechanisms,
        }
        for name, table in self.others.items():
            named = table.get("mechanisms")
            if isinstance(named, list | tuple):
                found[name] = tuple(each for each in named if isinstance(each, str))
        return found

    def of(self, name: str, record: type[R]) -> R:
        """Return the settings of a protocol that declares them (`Protocol.settings`), with defaults: some 10 us.

        Raises ValueError for settings that a start would have refused.
        """
        problems: list[Problem] = []
        found = self._read(name, record, problems)
        if problems or found is None:
            raise ValueError("; ".join(map(str, problems)))
        return found

    def problems(self, name: str, record: type[Record]) -> list[Problem]:
        """Return what is wrong in the table of a protocol that declares its settings."""
        problems: list[Problem] = []
        self._read(name, record, problems)
        return problems

    def _read(self, name: str, record: type[R], problems: list[Problem]) -> R | None:
        table = self.others.get(name, {})
        if "enabled" not in keys_of(record):  # it is every protocol's, and has been read
            table = {key: value for key, value in table.items() if key != "enabled"}
        found = RecordOf(record).read(table, Place(problems, "protocols").at(name))
        return None if found is REFUSED else found

    def contradictions(self) -> Iterator[Problem]:
        for name, table in self.others.items():
            if not isinstance(table.get("enabled", True), bool):
                yield Problem(f"{name}.enabled", printed(table["enabled"]), Flag.accepted)
