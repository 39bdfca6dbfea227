"""`leveret hash-password`: what goes in never comes out, and what comes out lets in who knows it."""

from __future__ import annotations

import getpass
import io
from collections.abc import Callable

import pytest

from leveret.broker import Broker
from leveret.config.config import parse
from leveret.security.passwords import PasswordHash
from leveret.server import cli
from leveret.server.cli import password_hash
from leveret.server.node.assembly import populate
from tests.harness.passwords import authenticate_password

CANARY = "canary-8b1f2c"
Feed = Callable[[bytes], None]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """What is on standard input, which is no terminal."""

    def put(octets: bytes) -> None:
        monkeypatch.setattr(password_hash.sys, "stdin", io.TextIOWrapper(io.BytesIO(octets)))

    return put


@pytest.mark.parametrize(
    ("arguments", "algorithm"), [([], "argon2id"), (["--rabbitmq"], "rabbit_password_hashing_sha256")]
)
def test_the_hash_may_stand_in_a_configuration(
    arguments: list[str], algorithm: str, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(CANARY.encode() + b"\nmore\n")
    assert cli.main(["hash-password", *arguments], {}) == 0
    printed = capsys.readouterr().out
    assert CANARY not in printed
    assert PasswordHash.parse(printed.strip(), None).algorithm == algorithm
    broker = Broker()
    populate(broker, parse({"users": [{"name": "ann", "password_hash": printed.strip()}]}))
    assert authenticate_password(broker.access, "ann", CANARY) is broker.access.user("ann")
    assert authenticate_password(broker.access, "ann", CANARY + "\n") is None


def test_a_password_need_not_be_text(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed(b"\xff\xfe\r\n")
    assert cli.main(["hash-password", "--rabbitmq"], {}) == 0
    assert PasswordHash.parse(capsys.readouterr().out.strip()).matches(b"\xff\xfe")


@pytest.mark.parametrize("octets", [b"", b"\n", b"\r\nsecond line"])
def test_an_empty_password_is_refused(octets: bytes, feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed(octets)
    assert cli.main(["hash-password"], {}) == 1
    assert "no password" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "code"), [([CANARY, CANARY], 0), ([CANARY, "another"], 1), (["", ""], 1)])
def test_a_person_types_it_twice(
    typed: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(typed)
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(password_hash.sys, "stdin", terminal)
    monkeypatch.setattr(getpass, "getpass", lambda _: next(answers))
    assert cli.main(["hash-password", "--rabbitmq"], {}) == code
    told = capsys.readouterr()
    assert CANARY not in told.out + told.err
