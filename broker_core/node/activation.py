"""Listening sockets that whoever started this process has opened for it, as systemd does (sd_listen_fds(3)).

The environment says how many there are, for which process, and what they are called; they follow standard error. A
listener takes those that have its name or its address, and opens its own where there is none.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, MutableMapping
from typing import Final, TypeAlias

from broker_core.config.types import Address

Where: TypeAlias = "tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]"  # as `socket` has it

FIRST: Final = 3  # the number of the first socket
COUNT_MAX: Final = 1024  # more than anybody means
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Handed:
    """Sockets with their names, each until somebody takes it."""

    __slots__ = ("_sockets",)

    def __init__(self, sockets: Iterable[tuple[str, socket.socket]] = ()) -> None:
        self._sockets = list(sockets)

    def named(self, name: str) -> list[socket.socket]:
        """Take all that are called so."""
        return self._taken([each for each in self._sockets if each[0] == name])

    def at(self, family: int, where: Where) -> list[socket.socket]:
        """Take all that listen there: one, or several with SO_REUSEPORT."""
        host_and_port = where[:2]
        return self._taken(
            [each for each in self._sockets if each[1].family == family and _where(each[1]) == host_and_port]
        )

    def _taken(self, found: list[tuple[str, socket.socket]]) -> list[socket.socket]:
        self._sockets = [each for each in self._sockets if each not in found]
        return [each for _, each in found]

    def refuse_the_rest(self) -> None:
        """Whoever connects to one that nobody accepts from would wait for ever. Raises OSError if there is one."""
        for name, left in self._sockets:
            told = f"was handed a socket for {Address(*_where(left))}, called '{name}', but no listener is for it"
            raise OSError(errno.EINVAL, told)

    def close(self) -> None:
        for _, left in self._sockets:
            left.close()
        self._sockets.clear()


def handed_over(environ: MutableMapping[str, str], process: int, first: int = FIRST) -> Handed:
    """The sockets that are meant for the process of that number, whose children are to know nothing of them.

    Raises OSError if one of them is not a TCP socket that listens.
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
    tcp = listener.family in (socket.AF_INET, socket.AF_INET6) and listener.type == socket.SOCK_STREAM
    if not tcp or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.detach()
        raise OSError(errno.EINVAL, f"was handed descriptor {number}, which is not a TCP socket that listens")
    listener.setblocking(False)
    listener.set_inheritable(False)
    return listener


def _where(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return host, port
