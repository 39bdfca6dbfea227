"""Files and settings to contexts, and certificates of clients to names of users."""

from __future__ import annotations

import logging
import shutil
import ssl
import subprocess

import pytest

from leveret.config.config import ConfigError, parse
from leveret.config.tls import LOGIN_FROM
from leveret.front_end import TlsFacts
from leveret.server import cli
from leveret.server.node.start_check import rehearse
from leveret.server.node.tls import distinguished_name, login

from .pki import Pki
from .test_tls_socket import Ends, certificates

CANARY = "correct-horse-7"


def told(settings: dict[str, object]) -> dict[str, str]:
    """Where -> the whole sentence, as `leveret check` prints it."""
    with pytest.raises(ConfigError) as caught:
        rehearse(parse({"listeners": [{"address": "127.0.0.1:5671", "tls": settings}]}))
    assert CANARY not in str(caught.value)
    return {problem.where: str(problem) for problem in caught.value.problems}


LISTENER = "listeners[0].tls"


# Settings.


def test_what_is_right_is_rehearsed_without_a_word(pki: Pki):
    rehearse(parse({"listeners": [{"address": "127.0.0.1:5671", "tls": pki.asking()}]}))


def test_a_required_certificate_and_plain_connections_exclude_each_other(pki: Pki):
    with pytest.raises(
        ConfigError, match=r"tls\.required: found false, accepted: true, as client_certificate"
    ):
        parse({"listeners": [{"address": "127.0.0.1:0", "tls": pki.asking(required=False)}]})
    rehearse(
        parse({"listeners": [{"address": "127.0.0.1:0", "tls": pki.asking("optional", required=False)}]})
    )


def test_tls_of_the_control_endpoint_is_rehearsed_too(pki: Pki):
    pki.serve("localhost", stem="other")
    settings = pki.settings(key=str(pki.folder / "other.key"))
    with pytest.raises(ConfigError, match=r"^http\.tls\.certificate: .*key values mismatch"):
        rehearse(parse({"http": {"tls": settings}}))


def test_relative_names_start_at_the_folder_of_the_settings(pki: Pki):
    settings = {"certificate": "server.pem", "key": "server.key"}
    rehearse(parse({"listeners": [{"address": "127.0.0.1:0", "tls": settings}]}, folder=pki.folder))


def test_files_that_are_not_there_are_all_named_at_once(pki: Pki):
    folder = pki.folder
    found = told(
        {
            "certificate": str(folder / "a.pem"),
            "key": str(folder / "b.key"),
            "ca": str(folder / "c.pem"),
            "client_certificate": "required",
            "key_password_file": str(folder / "d"),
        }
    )
    assert list(found) == [f"{LISTENER}.{name}" for name in ("key_password_file", "certificate", "key", "ca")]
    assert found[f"{LISTENER}.key"] == (
        f'{LISTENER}.key: found "{folder}/b.key" (no such file or directory), '
        "accepted: a private key in a file that can be read"
    )


def test_files_that_hold_something_else_are_named(pki: Pki):
    (pki.folder / "empty").touch()
    (pki.folder / "binary").write_bytes(b"\xff\xfe")
    (pki.folder / "prose").write_text("once upon a time")
    found = told(pki.settings(certificate=str(pki.folder / "empty"), key=str(pki.folder / "binary")))
    assert "(it is empty)" in found[f"{LISTENER}.certificate"]
    assert "(it is not text)" in found[f"{LISTENER}.key"]
    found = told(pki.asking(ca=str(pki.folder / "prose")))
    assert "prose" in found[f"{LISTENER}.ca"]
    found = told(pki.settings(certificate=str(pki.folder / "prose")))
    assert list(found) == [f"{LISTENER}.certificate"]


def test_problems_of_other_names_are_told_with_the_name(pki: Pki):
    found = told(pki.settings(server_names={"b.example": {"certificate": "/missing", "key": "/missing"}}))
    assert f'{LISTENER}.server_names."b.example".key' in found


CONTRADICTIONS = [
    ({"client_certificate": "required"}, "ca", 'a file, as client_certificate is "required"'),
    ({"ca": "ca.pem"}, "client_certificate", '"optional" or "required", as there is a ca'),
    ({"key_password": CANARY, "key_password_file": "f"}, "key_password_file", "one of the two"),
    ({"key_password": 7}, "key_password", "a string that is not empty"),
    ({"login_from": "serial"}, "login_from", " or ".join(f'"{name}"' for name in LOGIN_FROM)),
    ({"minimum_version": "1.1"}, "minimum_version", '"1.2" or "1.3"'),
]


@pytest.mark.parametrize(("more", "where", "accepted"), CONTRADICTIONS)
def test_settings_that_make_no_sense_are_refused(more: dict[str, object], where: str, accepted: str):
    settings = {"certificate": "c.pem", "key": "c.key", **more}
    with pytest.raises(ConfigError) as caught:
        parse({"listeners": [{"address": "127.0.0.1:0", "tls": settings}]})
    assert [(p.where, p.accepted) for p in caught.value.problems] == [(f"listeners[0].tls.{where}", accepted)]
    assert CANARY not in str(caught.value)


NETWORKS = [
    ("10.0.0.0/8", True),
    ("192.0.2.1", True),
    ("fd00::/8", True),
    ("10.0.0.1/8", False),
    ("any", False),
]


@pytest.mark.parametrize(("network", "right"), NETWORKS)
def test_proxies_are_named_by_network(network: str, right: bool):
    settings = {"listeners": [{"address": "127.0.0.1:0", "proxy_protocol": True, "proxy_from": [network]}]}
    if right:
        parse(settings)
        return
    with pytest.raises(ConfigError, match=r"proxy_from\[0\]: found .*, accepted: an address or a network"):
        parse(settings)


# Keys with passwords.


@pytest.fixture
def locked(pki: Pki) -> Pki:
    """The server's key, with a password."""
    need = shutil.which("openssl")
    if need is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    key = pki.folder / "server.key"
    command = [
        need,
        "pkey",
        "-in",
        key,
        "-out",
        key.with_suffix(".locked"),
        "-aes128",
        "-passout",
        f"pass:{CANARY}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    key.with_suffix(".locked").rename(key)
    return pki


def test_a_key_is_opened_with_its_password(locked: Pki):
    certificates(locked.settings(key_password=CANARY))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_password_may_be_in_a_file(locked: Pki, end: str):
    (locked.folder / "password").write_text(CANARY + end)
    certificates(locked.settings(key_password_file=str(locked.folder / "password")))


def test_without_the_right_password_nobody_asks_at_the_terminal(locked: Pki):
    assert told(locked.settings())[f"{LISTENER}.key"].endswith(
        'server.key" (it is encrypted), accepted: a private key that is not, or its password in `key_password_file`'
    )
    assert "with its password" in told(locked.settings(key_password="wrong"))[f"{LISTENER}.certificate"]


def test_a_certificate_and_a_key_that_are_mixed_up_are_told_as_such(pki: Pki):
    right = pki.settings()
    mixed = told(right | {"certificate": right["key"], "key": right["certificate"]})
    assert "no certificate is in it" in mixed[f"{LISTENER}.certificate"]
    assert "no private key is in it" in told(right | {"key": right["certificate"]})[f"{LISTENER}.key"]


def test_a_password_is_not_printed_with_its_record(pki: Pki):
    assert CANARY not in repr(certificates(pki.settings(key_password=CANARY)).settings)


# Names, and certificates that change.


def shown(ends: Ends) -> set[str]:
    """The names of the certificate that the server showed."""
    certificate = ends.client.getpeercert()
    assert certificate is not None
    return {value for _, value in certificate["subjectAltName"]}  # type: ignore[misc]


@pytest.fixture
def named(pki: Pki) -> dict[str, object]:
    """The settings of a server with two certificates."""
    pki.serve("b.example", stem="b")
    files = {"certificate": str(pki.folder / "b.pem"), "key": str(pki.folder / "b.key")}
    return pki.asking("optional", server_names={"b.example": files})


@pytest.mark.parametrize(("name", "expected"), [("b.example", "b.example"), ("B.Example", "b.example")])
def test_a_name_gets_its_certificate(pki: Pki, named: dict[str, object], name: str, expected: str):
    assert expected in shown(Ends(certificates(named), pki.trusting(), name).shake_hands())


@pytest.mark.parametrize("name", ["c.example", None])
def test_another_name_or_none_gets_the_first(pki: Pki, named: dict[str, object], name: str | None):
    context = pki.trusting()
    context.check_hostname = False
    assert "localhost" in shown(Ends(certificates(named), context, name).shake_hands())


def test_clients_are_verified_under_every_name(pki: Pki, named: dict[str, object]):
    ends = Ends(certificates(named), pki.trusting(pki.client()), "b.example").shake_hands()
    assert (ends.facts().subject or "").startswith("CN=shop")
    with pytest.raises(ssl.SSLCertVerificationError):
        Ends(certificates(named), pki.trusting(pki.client(trusted=False)), "b.example").shake_hands()


def test_new_connections_get_the_new_certificate_and_old_ones_go_on(pki: Pki):
    server, context = certificates(pki.settings()), pki.trusting()
    before = Ends(server, context).shake_hands()
    pki.serve("localhost", "new.example")
    assert server.reload()
    assert "new.example" in shown(Ends(server, context).shake_hands())
    before.line.incoming.append(before.say(b"still here"))
    assert before.secured.recv(100) == b"still here"


def test_a_handshake_that_has_begun_ends_with_the_certificate_it_began_with(pki: Pki):
    server = certificates(pki.settings())
    ends = Ends(server, pki.trusting())
    pki.serve("new.example")
    server.reload()
    assert "localhost" in shown(ends.shake_hands())


def test_a_certificate_that_cannot_be_read_leaves_the_old_one(pki: Pki, caplog: pytest.LogCaptureFixture):
    server = certificates(pki.settings())
    (pki.folder / "server.pem").write_text("nothing of the kind")
    with caplog.at_level(logging.ERROR, "leveret"):
        assert not server.reload()
    assert "certificates not reloaded, those from before stay: listeners[0].tls.certificate" in caplog.text
    assert "localhost" in shown(Ends(server, pki.trusting()).shake_hands())


# Clients' certificates.


def test_a_client_without_a_certificate_may_come_where_it_is_optional(pki: Pki):
    facts = Ends(certificates(pki.asking("optional")), pki.trusting()).shake_hands().facts()
    assert facts == TlsFacts(facts.version, facts.cipher, None, None)


def test_a_certificate_that_nobody_asked_for_says_nothing(pki: Pki):
    facts = Ends(certificates(pki.settings()), pki.trusting(pki.client())).shake_hands().facts()
    assert (facts.subject, facts.login) == (None, None)


@pytest.mark.parametrize("how", ["optional", "required"])
@pytest.mark.parametrize("wrong", ["trusted", "expired"])
def test_a_certificate_that_is_not_in_order_is_refused(pki: Pki, how: str, wrong: str):
    client = pki.client(trusted=wrong != "trusted", expired=wrong == "expired")
    with pytest.raises(ssl.SSLCertVerificationError):
        Ends(certificates(pki.asking(how)), pki.trusting(client)).shake_hands()


def test_who_has_none_where_it_is_required_is_refused(pki: Pki):
    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        Ends(certificates(pki.asking()), pki.trusting()).shake_hands()


def test_a_server_s_certificate_is_none_for_a_client_of_another_ca(pki: Pki):
    with pytest.raises(ssl.SSLCertVerificationError):
        Ends(certificates(pki.settings()), ssl.create_default_context(cafile=pki.wrong_ca)).shake_hands()


SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "Hare, Inc."),),
    (("organizationalUnitName", "#1"),),
    (("commonName", "shop"), ("emailAddress", " a b ")),
)
CERTIFICATE = {
    "subject": SUBJECT,
    "subjectAltName": (
        ("DNS", "a.example"),
        ("DNS", "b.example"),
        ("email", "shop@example.org"),
        ("IP Address", "192.0.2.7"),
    ),
}


def test_a_distinguished_name_is_written_as_rfc_4514_has_it():
    assert distinguished_name(CERTIFICATE) == r"CN=shop+emailAddress=\ a b\ ,OU=\#1,O=Hare\, Inc.,C=DE"


NAMES = [
    ("common_name", "shop"),
    ("distinguished_name", r"CN=shop+emailAddress=\ a b\ ,OU=\#1,O=Hare\, Inc.,C=DE"),
    ("san_dns", "a.example"),
    ("san_email", "shop@example.org"),
    ("san_ip", "192.0.2.7"),
    ("san_uri", None),
]


@pytest.mark.parametrize(("source", "name"), NAMES)
def test_the_user_s_name_is_the_part_that_was_chosen(source: str, name: str | None):
    assert login(CERTIFICATE, source) == name


def test_two_common_names_are_nobody_s():
    assert login({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, "common_name") is None


def test_a_certificate_without_a_subject_is_nobody_s():
    assert [login({}, source) for source in LOGIN_FROM] == [None] * len(LOGIN_FROM)


@pytest.mark.parametrize(("source", "name"), [("common_name", "shop"), ("san_email", "shop@example.org")])
def test_a_handshake_tells_who_the_client_is(pki: Pki, source: str, name: str):
    server = certificates(pki.asking(login_from=source))
    facts = Ends(server, pki.trusting(pki.client())).shake_hands().facts()
    assert (facts.login, facts.version) == (name, "TLSv1.3")
    assert facts.cipher.startswith("TLS_")


# What people are told.


def test_a_check_says_where_there_is_tls_and_shows_no_password(pki: Pki, capsys: pytest.CaptureFixture[str]):
    file = pki.folder / "leveret.toml"
    tls = f'{{ certificate = "server.pem", key = "server.key", key_password = "{CANARY}" }}'
    file.write_text(
        f'listeners = [{{ address = "127.0.0.1:5671", proxy_protocol = true, tls = {tls} }}]\nhttp.tls = {tls}\n'
    )
    assert cli.main(["check", str(file)], {}) == cli.DONE
    told = capsys.readouterr().out
    assert "127.0.0.1:5671 (with TLS; behind proxies)" in told
    assert "https://127.0.0.1:15672" in told
    (pki.folder / "server.key").write_text("none")
    assert cli.main(["check", str(file)], {}) == cli.REFUSED
    assert CANARY not in told + "".join(capsys.readouterr())
