"""What people have written about a virtual host. It means nothing to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from broker_core.virtual_host import VirtualHost


@attrs.frozen
class Description:
    """A sentence, and words to find it by."""

    text: str = ""
    tags: tuple[str, ...] = ()


NOTHING: Final = Description()


def describe(host: VirtualHost, description: Description) -> None:
    """From now on, show this of a virtual host."""
    if description == host.description:
        return
    host.description = description
    if host.broker.catalogue is not None:
        host.broker.catalogue.keep_virtual_host(host)
