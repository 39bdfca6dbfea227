"""`leveret hash-password`: a password on standard input, or typed twice, to what may stand in a file for it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from broker_core.cli.command_parser import Add, Environ
from broker_core.cli.exit_codes import DONE, failed

EXAMPLES: Final = """\
examples:
  leveret hash-password                         asks for the password, twice
  leveret hash-password < password-file         reads its first line
  leveret hash-password --rabbitmq              in the format of RabbitMQ

What it prints is the `password_hash` of a user in a configuration or definitions file; the `hashing_algorithm` there is
`argon2id`, or `rabbit_password_hashing_sha256` with --rabbitmq.
"""


def add(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parser.set_defaults(command=hash_password)
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--rabbitmq",
        action="store_true",
        help="a salted SHA-256, for a node of RabbitMQ: much cheaper to guess",
    )


def hash_password(options: argparse.Namespace, environ: Environ) -> int:
    from broker_core.security.passwords import Hashing

    try:
        password = _typed() if sys.stdin.isatty() else _read()
    except ValueError as error:
        return failed(str(error))
    print(Hashing("rabbitmq" if options.rabbitmq else "argon2id").kept(password).text)
    return DONE


def _read() -> bytes:
    """The first line, as octets: it need not be text. Raises ValueError."""
    password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    if not password:
        raise ValueError("there is no password in the first line of standard input")
    return password


def _typed() -> bytes:
    from getpass import getpass

    password = getpass("Password: ")
    if not password:
        raise ValueError("an empty password is nobody's")
    if getpass("The same again: ") != password:
        raise ValueError("these were two different passwords")
    return password.encode()


ADD: Final[Mapping[str, Add]] = {"hash-password": add}
