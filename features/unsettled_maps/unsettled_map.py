"""The deliveries that a link has not settled, as they are on disk, so that its peer can come back after a restart.

    attach ──> created ──note, unnote──> with each commit ──link closed, or nobody came back──> ended
                                          └──a start──> restored ──the peer comes back──> goes on

A front-end keeps one for a link whose peer asks for that (AMQP 1.0 part 3, section 3.5.5: `unsettled-state`). It is an
object in the store, with a log of its own that has notes and no messages: a number for each delivery tag. A note is in
one commit with the message or the settlement that it is about, so that both are there after a crash, or neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.catalogue import UNSETTLED_MAP
from leveret.guests import Guest
from leveret.queues.stream_log import Log, MemoryLog

if TYPE_CHECKING:
    from leveret.durable.journal import Journal
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost

LinkNames: TypeAlias = tuple[str, str, str, str]
"""The role of the peer (`sender` or `receiver`), the user (empty: none), the container, and the link's name."""

NAMES_MAX: Final = 512  # bytes of all names together: they are a key in the store


class UnsettledMaps(Guest):
    """The maps of a virtual host."""

    def __init__(self, host: VirtualHost) -> None:
        self.found: dict[LinkNames, UnsettledMap] = {}

    def user_deleted(self, name: str) -> None:
        """Remove the maps of a user's links from the store, in the commit with which the user goes."""
        for unsettled in [each for each in self.found.values() if each.names[1] == name]:
            unsettled.end()

    def close(self) -> None:
        """Remove the maps from the store, as the virtual host is deleted."""
        for unsettled in list(self.found.values()):
            unsettled.end()


def unsettled_maps_of(host: VirtualHost) -> dict[LinkNames, UnsettledMap]:
    """Return the maps of a virtual host by the names of their links."""
    return host.guest(UnsettledMaps).found


class UnsettledMap:
    """The unsettled deliveries of one link: a number for each delivery tag, which the front-end gives a meaning."""

    __slots__ = ("_log", "ended", "host", "names", "number", "terms")

    def __init__(self, host: VirtualHost, names: LinkNames, terms: Table) -> None:
        self.host = host
        self.names = names
        self.terms = terms  # of the terminus, as the front-end needs them at a start
        self.number = 0  # in the store
        self.ended = False
        self._log: Log = MemoryLog()

    @property
    def stored_as(self) -> tuple[str, ...]:
        return UNSETTLED_MAP, self.host.name, *self.names

    @property
    def described(self) -> str:
        """The map as texts in the log name it."""
        role, user, container, link = self.names
        return f"unsettled deliveries of {role} '{link}' of container '{container}', user '{user}'"

    def keep_in(self, journal: Journal, number: int) -> None:
        """Keep the map in the store, under this number."""
        self.number = number
        self._log = journal.open_log(number, self.described, lambda: None)

    def note(self, tag: bytes, number: int) -> None:
        """Note a delivery in the open commit, unless it is noted already, or the map has ended."""
        name = tag.hex()
        if not self.ended and self._log.sequences.get(name) != number:
            self._log.note(name, number)

    def unnote(self, tag: bytes) -> None:
        """Forget a delivery in the open commit."""
        if not self.ended:
            self._log.unnote(tag.hex())

    @property
    def notes(self) -> dict[bytes, int]:
        """The numbers by delivery tag. Raises ValueError if a tag is none, which is damage."""
        return {bytes.fromhex(tag): number for tag, number in self._log.sequences.items()}

    def change(self, terms: Table) -> None:
        """Replace the terms."""
        if terms != self.terms:
            self.terms = terms
            self._keep()

    def _keep(self) -> None:
        catalogue = self.host.broker.catalogue
        assert catalogue is not None, "it is for nodes with a store"
        catalogue.keep(self)

    def end(self) -> None:
        """Remove all of it from the store, in the open commit."""
        if self.ended:
            return
        self.ended = True
        del unsettled_maps_of(self.host)[self.names]
        catalogue = self.host.broker.catalogue
        if catalogue is not None:
            catalogue.forget(self)
        self._log.end()


def can_be_kept(host: VirtualHost, names: LinkNames) -> bool:
    """Return whether there is a store for the map of a link with these names, which are a user's and fit into it."""
    size = sum(len(name.encode()) for name in names)
    return host.broker.catalogue is not None and bool(names[1]) and size <= NAMES_MAX


def unsettled_map(host: VirtualHost, names: LinkNames, terms: Table) -> UnsettledMap:
    """Return the map of the link with these names, created if there is none. It has these terms now."""
    maps = unsettled_maps_of(host)
    found = maps.get(names)
    if found is None:
        found = maps[names] = UnsettledMap(host, names, terms)
        found._keep()
    else:
        found.change(terms)
    return found
