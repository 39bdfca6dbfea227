"""Where a user may publish to: what no key matters to is checked once for each exchange, and remembered.

It holds as long as neither topology nor permissions change, for every channel of that user and protocol in the virtual
host. What permissions on topics say of a key is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from broker_core.virtual_host import Remembered

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.exchanges.exchange import Exchange

TARGETS_MAX: Final = 4096  # remembered for a protocol, virtual host and user


class Target:
    """An exchange that a user may publish to, as long as both revisions are those of now."""

    __slots__ = ("access_revision", "exchange", "guarded", "revision")

    def __init__(self, exchange: Exchange, guarded: bool, access_revision: int) -> None:
        self.exchange = exchange
        self.guarded = guarded  # topic permissions: each key needs a check of its own (S088)
        self.revision = exchange.virtual_host.revision
        self.access_revision = access_revision


@mypyc_attr(native_class=False)
class Targets(Remembered):
    """The targets known for one user in one virtual host, by the exchange's name as the protocol has it."""

    __slots__ = ("by_name",)

    def __init__(self) -> None:
        self.by_name: dict[bytes | str, Target] = {}

    def check(self, client: Client, known_as: bytes | str, name: str) -> Target:
        """Find out, and remember under that name. Raises what the checks raise (S046, S047, S087)."""
        exchange = client.publish_target(name)
        found = Target(exchange, client.guards_topics(exchange), client.broker.access.revision)
        if len(self.by_name) >= TARGETS_MAX:
            self.by_name.clear()
        self.by_name[known_as] = found
        return found


def targets_of(client: Client, protocol: str) -> Targets:
    """What one channel has found out holds for every channel of that user there, as long as there is one."""
    known = client.host.remembered.setdefault((protocol, client.user.name), Targets())
    assert isinstance(known, Targets)
    return known
