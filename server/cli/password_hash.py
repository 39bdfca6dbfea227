"""`leveret hash-password`: from a password on standard input, or typed twice, to its hash for a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from leveret.server.cli.command_parser import Add, Environ
from leveret.server.cli.exit_codes import DONE, failed

EXAMPLES: Final = """\
examples:
  leveret hash-password                         asks for the password, twice
  leveret hash-password < password-file         reads its first line
  leveret hash-password --rabbitmq              in the format of RabbitMQ

It prints the `password_hash` of a user for a configuration or definitions file; the `hashing_algorithm` there is
`argon2id`, or `rabbit_password_hashing_sha256` with --rabbitmq.
"""


def add(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parser.set_defaults(command=hash_password)
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--rabbitmq",
        action="store_true",
        help="print a salted SHA-256, for RabbitMQ: much cheaper to guess",
    )


def hash_password(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.security.passwords import Hashing

    try:
        password = _typed() if sys.stdin.isatty() else _read()
    except ValueError as error:
        return failed(str(error))
    print(Hashing("rabbitmq" if options.rabbitmq else "argon2id").kept(password).text)
    return DONE


def _read() -> bytes:
    """Return the first line as bytes: it need not be text. Raises ValueError if it is empty."""
    password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    if not password:
        raise ValueError("there is no password in the first line of standard input")
    return password


def _typed() -> bytes:
    from getpass import getpass

    password = getpass("Password: ")
    if not password:
        raise ValueError("the password is empty")
    if getpass("Repeat the password: ") != password:
        raise ValueError("the passwords differ")
    return password.encode()


ADD: Final[Mapping[str, Add]] = {"hash-password": add}
