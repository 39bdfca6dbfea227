"""Talk to the service manager that started a node, such as systemd.

The manager may have opened sockets for the node to listen on (sd_listen_fds(3)). The environment says how many there
are, for which process, and what they are called; they follow standard error. A listener takes those that have its name
or its address, and opens its own where there is none. The node reports that it is ready, reloads, stops, and is alive
(sd_notify(3)).
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Iterable, MutableMapping
from typing import Final, TypeAlias

from leveret.config.types import Address, AnyAddress, UnixAddress

log: Final = logging.getLogger("leveret.node")

Where: TypeAlias = (  # as `socket` has it
    "tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes] | str | bytes"
)

FIRST: Final = 3  # the descriptor of the first socket
FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
COUNT_MAX: Final = 1024  # a larger number is a mistake
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
MICROSECONDS: Final = 1_000_000
FEEDS: Final = 2  # how often to feed the watchdog within its timeout


class Handed:
    """The sockets that the service manager handed over and that no listener has taken yet, with their names."""

    __slots__ = ("_sockets",)

    def __init__(self, sockets: Iterable[tuple[str, socket.socket]] = ()) -> None:
        self._sockets = list(sockets)

    def named(self, name: str) -> list[socket.socket]:
        """Take all sockets of that name."""
        return self._taken([each for each in self._sockets if each[0] == name])

    def at(self, family: int, where: Where) -> list[socket.socket]:
        """Take all sockets that listen on an address: one, or several with SO_REUSEPORT."""
        wanted = where[:2] if isinstance(where, tuple) else where
        return self._taken(
            [each for each in self._sockets if each[1].family == family and _where(each[1]) == wanted]
        )

    def _taken(self, found: list[tuple[str, socket.socket]]) -> list[socket.socket]:
        self._sockets = [each for each in self._sockets if each not in found]
        return [each for _, each in found]

    def refuse_the_rest(self) -> None:
        """Raise OSError if a socket is left: clients that connect to it would wait for ever."""
        for name, left in self._sockets:
            told = f"was handed a socket for {address_of(left)}, called '{name}', but no listener is for it"
            raise OSError(errno.EINVAL, told)

    def close(self) -> None:
        for _, left in self._sockets:
            left.close()
        self._sockets.clear()


def handed_over(environ: MutableMapping[str, str], process: int, first: int = FIRST) -> Handed:
    """Return the sockets that are meant for this process, and remove the variables: children must not see them.

    Raises OSError if one of them is not a socket of TCP or a Unix domain that listens.
    """
    meant_for, count, names = (environ.pop(variable, "") for variable in VARIABLES)
    if meant_for != str(process):
        return Handed()
    if not count.isdecimal() or int(count) > COUNT_MAX:
        raise OSError(errno.EINVAL, f"LISTEN_FDS is '{count}', which is not a number of sockets")
    numbers = range(first, first + int(count))
    called = names.split(":") if names else []
    called += ["unknown"] * (len(numbers) - len(called))
    return Handed([(name, _listening(number)) for name, number in zip(called, numbers, strict=False)])


def _listening(number: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=number)
    except OSError as failure:
        raise OSError(failure.errno, f"was handed descriptor {number}: {failure.strerror}") from None
    is_stream = listener.family in FAMILIES and listener.type == socket.SOCK_STREAM
    if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.detach()
        raise OSError(
            errno.EINVAL, f"was handed descriptor {number}, which is not a TCP or Unix socket that listens"
        )
    listener.setblocking(False)
    listener.set_inheritable(False)
    return listener


def _where(listener: socket.socket) -> tuple[str, int] | str | bytes:
    name = listener.getsockname()
    if isinstance(name, str | bytes):
        return name
    host, port = name[:2]
    return host, port


def address_of(listener: socket.socket) -> AnyAddress:
    """Return the address on which a socket listens."""
    where = _where(listener)
    return Address(*where) if isinstance(where, tuple) else UnixAddress.named(where)


class Notifier:
    """Reports a node's state to the service manager, if there is one. A message that cannot be sent is ignored."""

    __slots__ = ("_address", "_socket", "feed_every_s")

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        """`address` is a path, or an abstract name after `@`. `watchdog_s` is the watchdog's timeout, in seconds."""
        self.feed_every_s = None if watchdog_s is None else watchdog_s / FEEDS
        self._address = address if address is None or address[0] != "@" else "\0" + address[1:]
        self._socket: socket.socket | None = None
        if address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Report a reload, with the time that `Type=notify-reload` needs; `ready` has to follow."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._tell(f"STOPPING=1\nSTATUS={status}")

    def feed(self) -> None:
        """Feed the watchdog, which restarts a node that stops calling this."""
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
    """Return a notifier for the address in the environment, and remove the variables: children must not see them."""
    address = environ.pop("NOTIFY_SOCKET", "")
    waits, watched = (environ.pop(variable, "") for variable in ("WATCHDOG_USEC", "WATCHDOG_PID"))
    fed = waits.isdecimal() and int(waits) > 0 and watched in ("", str(process))
    if not address.startswith(("/", "@")) or len(address) == 1:
        return Notifier()
    return Notifier(address, int(waits) / MICROSECONDS if fed else None)
