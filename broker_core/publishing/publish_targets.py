"""Targets: the exchanges that a user may publish to, with every check done, remembered while the checks hold.

A target holds as long as neither topology nor permissions change, for every channel or link of that user and protocol
in the virtual host that has logged in with the same scopes. Topic permissions depend on the key: a target that is
`guarded` stands for its own key only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.virtual_host import Remembered

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.exchanges.exchange_type import Exchange
    from leveret.security.scopes import Grants

TARGETS_MAX: Final = 4096  # for each protocol, virtual host and user
UNCHECKED: Final = -1  # the revision of a target that was never checked


class PublishTarget:
    """An exchange that a user may publish to, and the key where the protocol's address names one."""

    __slots__ = ("exchange", "guarded", "key", "revision", "scopes")

    def __init__(
        self, exchange: Exchange, guarded: bool, revision: int, scopes: Grants | None = None, key: str = ""
    ) -> None:
        self.exchange = exchange
        self.key = key
        # There are topic permissions: each further key needs a check of its own (S088).
        self.guarded = guarded
        # `VirtualHost.checks_revision` when it was checked; UNCHECKED: it was not.
        self.revision = revision
        # Of users with these only: two tokens of one name may grant different things.
        self.scopes = scopes

    def is_current(self, client: Client) -> bool:
        """Return whether the checks that were made still hold for a client of this virtual host and user name."""
        return self.revision == client.host.checks_revision and self.scopes is client.user.scopes


@mypyc_attr(native_class=False)
class PublishTargets(Remembered):
    """The targets known for one user in one virtual host, by the name or address that the protocol writes."""

    __slots__ = ("by_name",)

    def __init__(self) -> None:
        self.by_name: dict[bytes | str, PublishTarget] = {}

    def check(self, client: Client, known_as: bytes | str, name: str) -> PublishTarget:
        """Check and remember that a client may publish to an exchange, with any key unless the target is guarded.

        Raises NotFound, AccessRefused (S046, S047, S087).
        """
        return self.remember(known_as, checked_target(client, name))

    def remember(self, known_as: bytes | str, target: PublishTarget) -> PublishTarget:
        """Remember a target under a name, and return it. When there are too many, all others are forgotten."""
        if len(self.by_name) >= TARGETS_MAX:
            self.by_name.clear()
        self.by_name[known_as] = target
        return target


def targets_of(client: Client, protocol: str) -> PublishTargets:
    """Return the targets that all channels of one user, protocol and virtual host share, while one of them lasts."""
    known = client.host.remembered.setdefault((protocol, client.user.name), PublishTargets())
    assert isinstance(known, PublishTargets)
    return known


def current_target(targets: PublishTargets, client: Client, known_as: bytes | str) -> PublishTarget | None:
    """Return the target that is remembered under a name, if the checks that were made of it still hold."""
    target = targets.by_name.get(known_as)
    return target if target is not None and target.is_current(client) else None


def checked_target(client: Client, exchange: str, key: str | None = None) -> PublishTarget:
    """Check that a client may publish to an exchange, and with this key, if there is one; return the target.

    Raises NotFound, AccessRefused (S046, S047, S087, S088).
    """
    target = client.publish_target(exchange, () if key is None else (key,))
    revision = client.host.checks_revision
    return PublishTarget(target, client.guards_topics(target), revision, client.user.scopes, key or "")
