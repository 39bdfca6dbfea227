"""A cache of the exchanges that a user may publish to: the checks that do not depend on the routing key.

An entry holds as long as neither topology nor permissions change, for every channel of that user and protocol in the
virtual host whose user has logged in with the same scopes. Topic permissions, which depend on the key, are not cached.
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


class PublishTarget:
    """An exchange that a user may publish to, as long as both revisions are current."""

    __slots__ = ("access_revision", "exchange", "guarded", "revision", "scopes")

    def __init__(
        self, exchange: Exchange, guarded: bool, access_revision: int, scopes: Grants | None = None
    ) -> None:
        self.exchange = exchange
        self.guarded = guarded  # there are topic permissions: each key needs a check of its own (S088)
        self.revision = exchange.virtual_host.revision
        self.access_revision = access_revision
        self.scopes = scopes  # for users with these only: two tokens of one name may grant different things


@mypyc_attr(native_class=False)
class PublishTargets(Remembered):
    """The targets known for one user in one virtual host, by the exchange's name as the protocol writes it."""

    __slots__ = ("by_name",)

    def __init__(self) -> None:
        self.by_name: dict[bytes | str, PublishTarget] = {}

    def check(self, client: Client, known_as: bytes | str, name: str) -> PublishTarget:
        """Check and cache that a client may publish there. Raises NotFound, AccessRefused (S046, S047, S087)."""
        exchange = client.publish_target(name)
        guarded, revision = client.guards_topics(exchange), client.broker.access.revision
        found = PublishTarget(exchange, guarded, revision, client.user.scopes)
        if len(self.by_name) >= TARGETS_MAX:
            self.by_name.clear()
        self.by_name[known_as] = found
        return found


def targets_of(client: Client, protocol: str) -> PublishTargets:
    """Return the targets that all channels of one user, protocol and virtual host share, while one of them lasts."""
    known = client.host.remembered.setdefault((protocol, client.user.name), PublishTargets())
    assert isinstance(known, PublishTargets)
    return known
