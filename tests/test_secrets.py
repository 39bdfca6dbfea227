"""A password goes in and never comes out: not in logs, answers, errors, printed records or a node's status."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio

from leveret.config.config import ConfigError, load, parse
from leveret.front_end import TlsFacts
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.broker.amqplain import AmqPlain
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.fields import encode_table
from leveret.security.sasl import STANDARD
from leveret.server.cli import main
from leveret.server.definitions.reader import read_files
from leveret.server.node.assembly import populate, welcome
from leveret.server.node.node import Node
from tests.amqp010 import client as of_010
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer, start_ok
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE, LOOPBACK
from tests.http.desk import Desk

CANARY = "canary-8b1f2c"
CONFIG = f"""\
[[users]]
name = "ann"
password = "{CANARY}"
tags = ["administrator"]
[users.permissions."/"]
configure = ".*"
write = ".*"
read = ".*"
[protocols.amqp091]
mechanisms = ["PLAIN", "AMQPLAIN", "RABBIT-CR-DEMO", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-256"]
[protocols.amqp010]
mechanisms = ["PLAIN", "RABBIT-CR-DEMO", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-256"]
"""


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """Everything logged so far by anybody, tracebacks included."""
    with caplog.at_level(logging.DEBUG):
        yield lambda: caplog.text


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def amqplain(user: str, password: str) -> bytes:
    return encode_table({"LOGIN": user, "PASSWORD": password})[4:]


ATTEMPTS = {
    "PLAIN": ("PLAIN", (plain("ann", CANARY),)),
    "PLAIN, nobody's": ("PLAIN", (plain("bob", CANARY),)),
    "PLAIN, longer": ("PLAIN", (plain("ann", CANARY + "x"),)),
    "PLAIN for another": ("PLAIN", (f"bob\0ann\0{CANARY}".encode(),)),
    "PLAIN with a NUL": ("PLAIN", (f"\0ann\0{CANARY}\0{CANARY}".encode(),)),
    "PLAIN without a NUL": ("PLAIN", (CANARY.encode(),)),
    "PLAIN and not UTF-8": ("PLAIN", (b"\0\xff\0" + CANARY.encode(),)),
    "AMQPLAIN": ("AMQPLAIN", (amqplain("ann", CANARY),)),
    "AMQPLAIN, nobody's": ("AMQPLAIN", (amqplain("bob", CANARY),)),
    "AMQPLAIN without a login": ("AMQPLAIN", (encode_table({"PASSWORD": CANARY})[4:],)),
    "AMQPLAIN cut short": ("AMQPLAIN", (amqplain("ann", CANARY)[:-1],)),
    "AMQPLAIN in a PLAIN response": ("PLAIN", (amqplain("ann", CANARY),)),
    "RABBIT-CR-DEMO": ("RABBIT-CR-DEMO", (b"ann", f"My password is {CANARY}".encode())),
    "RABBIT-CR-DEMO, nobody's": ("RABBIT-CR-DEMO", (b"bob", f"My password is {CANARY}".encode())),
    "RABBIT-CR-DEMO, in other words": ("RABBIT-CR-DEMO", (b"ann", CANARY.encode())),
    "ANONYMOUS": ("ANONYMOUS", (CANARY.encode(),)),
    "EXTERNAL": ("EXTERNAL", (CANARY.encode(),)),
    "SCRAM with the password for a message": ("SCRAM-SHA-256", (CANARY.encode(),)),
    "SCRAM with it in a message": ("SCRAM-SHA-256", (f"n,a={CANARY},n=ann,r=x".encode(),)),
    "SCRAM with it for a proof": ("SCRAM-SHA-256", (b"n,,n=ann,r=x", f"c=biws,r=x,p={CANARY}".encode())),
}
CERTIFIED = attrs.evolve(LOOPBACK, tls=TlsFacts("TLSv1.3", "a cipher", "CN=ann", "ann"))


def test_every_mechanism_is_attempted() -> None:
    assert {name for name, _ in ATTEMPTS.values()} == {each.name for each in (*STANDARD, AmqPlain)}


@pytest.mark.parametrize("capable", [True, False])
@pytest.mark.parametrize(
    "peer_address", [LOOPBACK, ELSEWHERE, CERTIFIED], ids=["here", "elsewhere", "with a certificate"]
)
@pytest.mark.parametrize(("mechanism", "responses"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_login_right_or_wrong_is_not_repeated(
    mechanism: str, responses: tuple[bytes, ...], peer_address, capable: bool, said: Callable[[], str]
) -> None:
    peer = Peer(ClientBench(CONFIG), peer_address)
    peer.start()
    first, *further = responses
    peer.send(0, start_ok(mechanism, first, {"authentication_failure_close": capable}))
    answers = peer.take_bytes()
    for response in further:
        peer.send(0, m.ConnectionSecureOk(response))
        answers += peer.take_bytes()
    peer.drop()
    assert CANARY.encode() not in answers
    assert CANARY not in said() + repr(vars(peer.front)) + peer.front.wire.ended_because


IN_0_10 = {what: attempt for what, attempt in ATTEMPTS.items() if attempt[0] != "AMQPLAIN"}


def said_by(peer: Peer010) -> str:
    return repr(vars(peer.front)) + peer.front.wire.ended_because


def test_every_mechanism_is_attempted_over_0_10() -> None:
    assert {name for name, _ in IN_0_10.values()} == {each.name for each in STANDARD}


@pytest.mark.parametrize("asked", [False, True], ids=["at once", "when asked"])
@pytest.mark.parametrize("peer_address", [LOOPBACK, ELSEWHERE], ids=["here", "elsewhere"])
@pytest.mark.parametrize(("mechanism", "responses"), IN_0_10.values(), ids=IN_0_10)
def test_a_login_over_0_10_right_or_wrong_is_not_repeated(
    mechanism: str, responses: tuple[bytes, ...], peer_address, asked: bool, said: Callable[[], str]
) -> None:
    peer = Peer010(ClientBench(CONFIG), peer_address)
    peer.greet()
    first, *further = [None, *responses] if asked else responses
    peer.control(c.ConnectionStartOk({}, mechanism, first, "en_US"))
    answers = peer.take_bytes()
    for response in further:
        peer.control(c.ConnectionSecureOk(response))
        answers += peer.take_bytes()
    peer.drop()
    assert CANARY.encode() not in answers
    assert CANARY not in said() + said_by(peer)


def test_a_login_over_0_10_is_not_repeated_where_whoever_checks_it_is_out_of_order(said: Callable[[], str]):
    bench = ClientBench(CONFIG)
    bench.broker.access = OutOfOrder(bench.broker.access)  # type: ignore[assignment]
    peer = Peer010(bench)
    peer.greet()
    with pytest.raises(ConnectionError) as caught:
        peer.control(c.ConnectionStartOk({}, "PLAIN", plain("ann", CANARY), "en_US"))
    told = "".join(traceback.format_exception(caught.value)) + said()
    assert CANARY not in told + said_by(peer)
    assert CANARY.encode() not in peer.take_bytes()


START_OK = c.ConnectionStartOk({"password": CANARY}, "PLAIN", plain("ann", CANARY), "en_US").encode()
WRONG_FRAMES = {
    "cut short": of_010.frame(START_OK[:-7]),
    "longer than it says": of_010.frame(START_OK)[:3] + b"\x1c" + of_010.frame(START_OK)[4:],
    "with a map that is too long": of_010.frame(START_OK.replace(b"\x00\x00\x00", b"\x00\x00\xff", 1)),
    "nothing else": CANARY.encode() * 4,
    "on a session": of_010.frame(START_OK, 7),
    "as a command": of_010.frame(START_OK, 0, segment=1),
    "as a secure-ok": of_010.frame(c.ConnectionSecureOk(plain("ann", CANARY)).encode()),
    "twice": of_010.frame(START_OK) * 2,
}


@pytest.mark.parametrize("frames", WRONG_FRAMES.values(), ids=WRONG_FRAMES)
def test_a_login_over_0_10_that_cannot_be_read_is_not_repeated(frames: bytes, said: Callable[[], str]):
    """Neither in hexadecimal."""
    peer = Peer010(ClientBench(CONFIG))
    peer.greet()
    peer.send_bytes(frames)
    answers = peer.take_bytes()
    peer.drop()
    assert CANARY.encode() not in answers
    told = said() + said_by(peer) + answers.decode("latin-1")
    for begin in range(len(CANARY) - 3):
        part = CANARY[begin : begin + 4].encode()
        assert part.hex() not in told
        assert part.hex(" ") not in told


@pytest.mark.parametrize(
    "control",
    [c.ConnectionStartOk({}, "PLAIN", plain("ann", CANARY), "en_US"), c.ConnectionSecureOk(CANARY.encode())],
    ids=lambda control: control.NAME,
)
def test_controls_of_0_10_that_carry_a_response_print_without_it(control: c.Control) -> None:
    assert CANARY not in repr(control) + repr([control]) + str(control)
    octets = control.encode()
    assert CANARY not in repr(c.control_at(octets, 0, len(octets)))


@pytest.mark.parametrize("secret", [CANARY, CANARY + " and wrong"])
@pytest.mark.parametrize("broken", [False, True])
def test_a_new_secret_is_not_repeated(secret: str, broken: bool, said: Callable[[], str]) -> None:
    """Also where whoever checks it is out of order."""
    bench = ClientBench(CONFIG)
    peer = Peer(bench).open("ann", CANARY)
    if broken:
        bench.broker.access = OutOfOrder(bench.broker.access)  # type: ignore[assignment]
    method = m.ConnectionUpdateSecret(secret.encode(), "the old one is a day old")
    peer.send(0, method)
    assert CANARY.encode() not in peer.take_bytes()
    assert CANARY not in said() + repr(method) + peer.front.wire.ended_because


class OutOfOrder:
    def __init__(self, access: object) -> None:
        self._access = access

    def authenticate(self, name: str, password: bytes, place: object = None) -> None:
        raise ConnectionError("the directory does not answer")

    def __getattr__(self, name: str) -> object:
        return getattr(self._access, name)


@pytest.mark.parametrize("name", ["ConnectionStartOk", "ConnectionSecure", "ConnectionSecureOk"])
def test_methods_that_carry_a_response_print_without_it(name: str) -> None:
    made = {
        "ConnectionStartOk": m.ConnectionStartOk({}, "PLAIN", plain("ann", CANARY), "en_US"),
        "ConnectionSecure": m.ConnectionSecure(b"what is your password?"),
        "ConnectionSecureOk": m.ConnectionSecureOk(CANARY.encode()),
    }
    assert CANARY not in repr(made[name])


BASIC = {
    "wrong": f"administrator:{CANARY}",
    "nobody's": f"nobody:{CANARY}",
    "without a colon": CANARY,
    "not for him": f"none:{CANARY}",
}


@pytest.mark.parametrize("credentials", BASIC.values(), ids=BASIC)
def test_http_basic_is_not_repeated(credentials: str, said: Callable[[], str]) -> None:
    response = Desk().ask("/api/status", user=credentials)
    for secret in (CANARY, base64.b64encode(credentials.encode()).decode()):
        assert secret not in response.body.decode() + str(response.headers) + said()


def test_http_credentials_of_another_kind_are_not_repeated(said: Callable[[], str]) -> None:
    for given in (f"Bearer {CANARY}", f"Basic {CANARY}", f"Basic {CANARY} ä"):
        response = Desk().ask("/api/status", Authorization=given)
        assert CANARY not in response.body.decode() + str(response.headers) + said()


def test_a_configuration_prints_without_passwords() -> None:
    config = parse(CONFIG)
    bench = ClientBench(CONFIG)
    kept = bench.broker.access.user("ann")
    assert kept is not None
    assert kept.password is not None
    for thing in (config, config.users, bench.broker.access, kept, kept.password):
        assert CANARY not in repr(thing)
        assert kept.password.text not in repr(thing)


WRONG_CONFIGS = {
    "too long a list": f'[[users]]\nname = "ann"\npassword = ["{CANARY}"]\n',
    "a table": f'[[users]]\nname = "ann"\npassword = {{ is = "{CANARY}" }}\n',
    "a misspelt key": f'[[users]]\nname = "ann"\npasword = "{CANARY}"\n',
    "a hash that is none": f'[[users]]\nname = "ann"\npassword_hash = "{CANARY}"\n',
    "twice": f'[[users]]\nname = "ann"\npassword = "{CANARY}"\npassword_hash = "{CANARY}"\n',
    "no name": f'[[users]]\npassword = "{CANARY}"\n',
    "users that are a table": f'[users]\nann = "{CANARY}"\n',
    "users that are texts": f'users = ["{CANARY}"]\n',
    "a user twice": f'[[users]]\nname = "ann"\npassword = "{CANARY}"\n' * 2,
    "not TOML": f'[[users]]\nname = "ann"\npassword = "{CANARY}\n',
    "not TOML, without quotes": f'[[users]]\nname = "ann"\npassword = {CANARY}\n',
    "a key twice": f'[[users]]\nname = "ann"\npassword = "{CANARY}"\npassword = "{CANARY}"\n',
    "in another section": f'[node]\npassword = "{CANARY}"\n',
    "with an escape": f'[[users]]\nname = "ann"\npassword = "\\q{CANARY}"\n',
}


@pytest.mark.parametrize("text", WRONG_CONFIGS.values(), ids=WRONG_CONFIGS)
def test_a_wrong_configuration_is_told_of_without_passwords(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert CANARY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.problems)
    for arguments in (["check", str(file)], ["check", "--json", str(file)], ["serve", "--config", str(file)]):
        assert main(arguments, {}) != 0
        printed = capsys.readouterr()
        assert CANARY not in printed.out + printed.err


ENVIRONMENT = {
    "a list": {"LEVERET_USERS": f'[{{ name = "ann", password = ["{CANARY}"] }}]'},
    "not TOML": {"LEVERET_USERS": f'[{{ name = "ann", password = "{CANARY}'},
    "a text": {"LEVERET_USERS": CANARY},
}


@pytest.mark.parametrize("environ", ENVIRONMENT.values(), ids=ENVIRONMENT)
def test_a_wrong_variable_is_told_of_without_passwords(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("", environ)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_right_configuration_is_summed_up_without_passwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text(CONFIG)
    for arguments in (["check", str(file)], ["check", "--json", str(file)]):
        assert main(arguments, {}) == 0
        printed = capsys.readouterr()
        assert CANARY not in printed.out + printed.err


DEFINITIONS = {
    "right": {"users": [{"name": "ann", "password": CANARY, "tags": "administrator"}]},
    "a list": {"users": [{"name": "ann", "password": [CANARY]}]},
    "a hash that is none": {"users": [{"name": "ann", "password_hash": CANARY}]},
    "a misspelt key": {"users": [{"name": "ann", "pasword": CANARY}]},
    "an unknown algorithm": {"users": [{"name": "ann", "password": CANARY, "hashing_algorithm": "md5"}]},
    "users that are texts": {"users": [CANARY]},
    "users that are a table": {"users": {"ann": CANARY}},
}


@pytest.mark.parametrize("content", DEFINITIONS.values(), ids=DEFINITIONS)
def test_definitions_right_or_wrong_are_told_of_without_passwords(
    content: object, tmp_path: Path, said: Callable[[], str]
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(content))
    text = ""
    try:
        text = repr(read_files([file]))
        populate(ClientBench().broker, parse({"definitions": {"load": [str(file)]}}))
    except ConfigError as error:
        text += "".join(traceback.format_exception(error))
    assert CANARY not in text + said()


def test_definitions_that_are_not_json_are_told_of_without_passwords(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS["right"])[:-3])
    with pytest.raises(ConfigError) as caught:
        read_files([file])
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.system
def test_a_node_tells_of_itself_and_of_a_reload_without_passwords(said: Callable[[], str]) -> None:
    listen = '[http]\nenabled = false\n[[listeners]]\naddress = "127.0.0.1:0"\n'
    fresh = [parse(listen + CONFIG.replace(CANARY, CANARY + " fresh")), parse(listen + CONFIG)]

    async def test() -> None:
        async with Node(parse(listen + CONFIG), fresh.pop) as node:
            for _ in range(2):
                told = (
                    node.admin.status(),
                    node.admin.plugins(),
                    node.admin.reload(),
                    welcome(node, "here"),
                    node,
                )
                assert CANARY not in repr(told)

    trio.run(test)
    assert CANARY not in said()
