"""What a node tells the service manager that started it: that it is ready, reloads, ends, and lives (sd_notify(3))."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import MutableMapping
from typing import Final

log: Final = logging.getLogger("leveret.node")

MICROSECONDS: Final = 1_000_000
FEEDS: Final = 2  # of the watchdog in the time that it waits


class Notifier:
    """Tells whoever listens at an address, if anybody does. A message that cannot be sent is nobody's harm."""

    __slots__ = ("_address", "_socket", "feed_every_s")

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        """An address is a path, or a name after `@`. `watchdog_s` is how long a node may be silent, in seconds."""
        self.feed_every_s = None if watchdog_s is None else watchdog_s / FEEDS
        self._address = address if address is None or address[0] != "@" else "\0" + address[1:]
        self._socket: socket.socket | None = None
        if address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The time is for `Type=notify-reload`, which waits for the `ready` that follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._tell(f"STOPPING=1\nSTATUS={status}")

    def feed(self) -> None:
        """The watchdog, which restarts a node that does not come round to this."""
        self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if self._socket is None or self._address is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as failure:
            log.debug("the service manager does not listen: %s", failure.strerror)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def notifier(environ: MutableMapping[str, str], process: int) -> Notifier:
    """For whom the environment names. Children of this process are to know nothing of it."""
    address = environ.pop("NOTIFY_SOCKET", "")
    waits, watched = (environ.pop(variable, "") for variable in ("WATCHDOG_USEC", "WATCHDOG_PID"))
    fed = waits.isdecimal() and int(waits) > 0 and watched in ("", str(process))
    if not address.startswith(("/", "@")) or len(address) == 1:
        return Notifier()
    return Notifier(address, int(waits) / MICROSECONDS if fed else None)
