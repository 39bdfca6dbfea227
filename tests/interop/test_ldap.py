"""Real clients whose passwords and groups a directory of OpenLDAP knows."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pika
import pika.exceptions
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from leveret.clock import ManualClock
from leveret.config.config import ConfigError, parse
from leveret.config.ldap_auth import LdapAuthSettings
from leveret.errors import LimitReached
from leveret.security.access import Access
from leveret.security.password_checks import Waiting
from leveret.security.users import User
from tests.harness.directory import GROUPS, PEOPLE, SLAPD, Slapd
from tests.interop.conftest import RunningNode, Start, missing
from tests.tls.pki import Pki

pytestmark = pytest.mark.interop

if not SLAPD.exists():
    missing("slapd", "run `make test`, or as root: apt-get install slapd")
try:
    from ldap.ldapobject import SimpleLDAPObject

    from leveret.security.ldap_directory import Directory, DirectoryError, DirectoryUser
    from leveret.security.ldap_users import RUNNING_MAX, LdapUsers
except ModuleNotFoundError:
    missing("python-ldap", "run `make test`, or pip install -e '.[ldap]'")

PATTERN: Final = f'user_dn = "uid={{username}},{PEOPLE}"\n'
ACCOUNT: Final = f'bind_dn = "uid=search,{PEOPLE}"\nbind_password = "hush-search"\n'
LOOKUP: Final = f'lookup_base = "{PEOPLE}"\n'
GROUPED: Final = f'group_base = "{GROUPS}"\n'
GRANTED: Final = f"""
[[auth_ldap.groups]]
dn = "CN=Operators, {GROUPS}"
tags = ["monitoring", "management"]
virtual_hosts = ["/"]
configure = "^mine$"
write = "^(mine|amq\\\\.default)$"
read = "^mine$"
[[auth_ldap.groups]]
dn = "cn={{vhost}}-users,{GROUPS}"
read = ".*"
"""


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, pki: Pki) -> Iterator[Slapd]:
    with Slapd(tmp_path_factory.mktemp("ldap"), pki) as found:
        yield found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, pki: Pki) -> Iterator[Slapd]:
    """A directory in which only one account sees groups."""
    with Slapd(tmp_path_factory.mktemp("closed"), pki, searchers_only=True) as found:
        yield found


def settings(urls: list[str], more: str) -> str:
    return (
        '[http]\nenabled = true\naddress = "127.0.0.1:0"\n[security]\nbackends = ["internal", "ldap"]\n'
        + "".join(f'[[virtual_hosts]]\nname = "{name}"\n' for name in ("/", "blue", "red"))
        + '[[users]]\nname = "guest"\npassword = "guest"\n'
        + f"[auth_ldap]\nservers = {urls}\n{more}"
    )


def asked(urls: list[str], more: str) -> Directory:
    return Directory(parse(settings(urls, more)).auth_ldap)


def over_pika(node: RunningNode, name: str, host: str = "/", password: str = "") -> pika.BlockingConnection:
    parameters = pika.URLParameters(node.url)
    parameters.credentials = pika.PlainCredentials(name, password or f"hush-{name}")
    parameters.virtual_host = host
    return pika.BlockingConnection(parameters)


def over_http(node: RunningNode, path: str, name: str = "ann") -> int:
    request = urllib.request.Request(f"http://{node.node.addresses[-1]}{path}")
    encoded = base64.b64encode(f"{name}:hush-{name}".encode()).decode()
    request.add_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(request) as found:
            return int(found.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_groups_say_what_their_members_may_do(
    node_with: Start, directory: Slapd, pki: Pki, caplog: pytest.LogCaptureFixture
):
    node = node_with(settings([directory.secure_url], f'tls.ca = "{pki.ca}"\n{PATTERN}{GROUPED}{GRANTED}'))
    connection = over_pika(node, "ann")
    channel = connection.channel()
    channel.queue_declare("mine")
    channel.basic_publish("", "mine", b"x")
    assert channel.basic_get("mine", auto_ack=True)[2] == b"x"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="refused for user 'ann'"):
        channel.queue_declare("theirs")
    connection.close()
    blue = over_pika(node, "ann", "blue")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"configure access .* refused"):
        blue.channel().queue_declare("mine")
    blue.close()
    for name, host in (("ann", "red"), ("bob", "/")):
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
            over_pika(node, name, host)
    for name, password in (("ann", "hush-bob"), ("nobody", "hush"), ("*", "hush-ann")):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            over_pika(node, name, password=password)
    assert over_http(node, "/api/overview") == HTTPStatus.OK
    assert over_http(node, "/api/users") == HTTPStatus.UNAUTHORIZED
    assert over_http(node, "/api/overview", "bob") == HTTPStatus.UNAUTHORIZED
    assert "hush" not in caplog.text


def test_without_permissions_of_groups_those_here_count(node_with: Start, directory: Slapd):
    accounts = (
        '[[users]]\nname = "bob"\npermissions = { "red" = { configure = ".*", write = "", read = "" } }\n'
    )
    node = node_with(accounts + settings([directory.url], PATTERN).replace("[[users]]", "[[users]]", 1))
    url = node.url.replace("guest:guest@", "").removesuffix("/%2F")
    BlockingConnection(
        url, user="bob", password="hush-bob", allowed_mechs="PLAIN", virtual_host="vhost:red", timeout=60
    ).close()
    with pytest.raises(ConnectionException):
        BlockingConnection(url, user="bob", password="hush-ann", allowed_mechs="PLAIN", timeout=60)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        over_pika(node, "ann", "red")


ANN: Final = DirectoryUser(f"uid=ann,{PEOPLE}", (f"cn=operators,{GROUPS}", f"cn=blue-users,{GROUPS}"))


@pytest.mark.parametrize("how", [PATTERN, PATTERN + ACCOUNT, LOOKUP + ACCOUNT])
def test_a_user_is_found_by_a_pattern_or_a_search(directory: Slapd, how: str):
    found = asked([directory.url], how + GROUPED)
    assert found.user("ann", "hush-ann") == ANN
    assert found.user("bob", "hush-bob") == DirectoryUser(f"uid=bob,{PEOPLE}", ())
    for name, password in (
        ("ann", "hush-bob"),
        ("ann", ""),
        ("", "hush-ann"),
        ("*", "hush-ann"),
        ("ann)(uid=*", "hush-ann"),
        (f"ann,{PEOPLE}", "hush-ann"),
        ("ann\0", "hush-ann"),
        ("ann", "hush-ann\0"),
        ("a" * 300, "hush-ann"),
    ):
        assert found.user(name, password) is None, (name, password)


@pytest.mark.parametrize("how", [PATTERN, PATTERN + ACCOUNT, LOOKUP + ACCOUNT])
def test_an_unknown_name_costs_the_directory_what_a_wrong_password_does(
    directory: Slapd, how: str, monkeypatch: pytest.MonkeyPatch
):
    asked_for: list[str] = []

    class Counted(SimpleLDAPObject):
        def simple_bind(self, *given: object, **more: object) -> object:
            asked_for.append("bind")
            return super().simple_bind(*given, **more)

        def search_ext(self, *given: object, **more: object) -> object:
            asked_for.append("search")
            return super().search_ext(*given, **more)

    monkeypatch.setattr("leveret.security.ldap_directory.ldap.initialize", Counted)
    found = asked([directory.url], how + GROUPED)

    def cost(name: str, password: str) -> list[str]:
        asked_for.clear()
        assert found.user(name, password) is None
        return list(asked_for)

    assert cost("nobody", "hush") == cost("ann", "hush") == cost("ann)(uid=*", "hush")


def test_groups_that_only_one_account_sees_are_seen_by_that(closed: Slapd):
    assert asked([closed.url], PATTERN + ACCOUNT + GROUPED).user("ann", "hush-ann") == ANN
    with pytest.raises(DirectoryError, match="No such object"):
        asked([closed.url], PATTERN + GROUPED).user("ann", "hush-ann")


def test_passwords_go_over_tls_to_a_server_with_a_certificate_that_is_trusted(directory: Slapd, pki: Pki):
    begun = f'start_tls = true\ntls.ca = "{pki.ca}"\n{PATTERN}'
    assert asked([directory.url], begun).user("ann", "hush-ann") is not None
    wrong = f'tls.ca = "{pki.wrong_ca}"\n{PATTERN}'
    for url, more in ((directory.secure_url, wrong), (directory.url, "start_tls = true\n" + wrong)):
        with pytest.raises(DirectoryError):
            asked([url], more).user("ann", "hush-ann")


def test_a_directory_that_asks_for_a_certificate_gets_that_of_the_settings(tmp_path: Path, pki: Pki):
    certificate, private_key = pki.client()
    own = f'tls = {{ ca = "{pki.ca}", certificate = "{certificate}", key = "{private_key}" }}\n{PATTERN}'
    with Slapd(tmp_path, pki, certified_only=True) as strict:
        assert asked([strict.secure_url], own).user("ann", "hush-ann") is not None
        with pytest.raises(DirectoryError):
            asked([strict.secure_url], f'tls.ca = "{pki.ca}"\n{PATTERN}').user("ann", "hush-ann")


def test_a_server_that_is_away_is_passed_over_and_without_any_there_is_no_answer(
    node_with: Start, directory: Slapd, caplog: pytest.LogCaptureFixture
):
    away = "ldap://localhost:1"
    assert asked([away, directory.url], PATTERN).user("ann", "hush-ann") is not None
    node = node_with(settings([away], PATTERN))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        over_pika(node, "ann")
    assert (
        "login of user 'ann': no answer from the server: ldap://localhost:1: Can't contact LDAP"
        in caplog.text
    )
    assert "hush" not in caplog.text


def test_an_account_that_may_not_search_is_no_answer(directory: Slapd):
    wrong = ACCOUNT.replace("hush-search", "hush-wrong")
    with pytest.raises(DirectoryError, match="the account that searches is refused: Invalid credentials"):
        asked([directory.url], LOOKUP + wrong).user("ann", "hush-ann")


def test_a_slow_directory_has_few_threads_and_the_others_wait(directory: Slapd):
    access, under_way = Access(), []
    access.off_thread = lambda work, then: under_way.append((work, then))
    users = LdapUsers(parse(settings([directory.url], PATTERN)).auth_ldap, ManualClock(), access, b"key")
    waiting = [users.check("ann", b"hush-%d" % number) for number in range(19)]
    waiting.append(users.check("ann", b"hush-ann"))
    assert len(under_way) == RUNNING_MAX
    with pytest.raises(LimitReached):
        users.check("ann", b"one too many because of one place")
    while under_way:
        work, then = under_way.pop(0)
        then(work())
        assert len(under_way) <= RUNNING_MAX
    found = [each.user for each in waiting if isinstance(each, Waiting)]
    assert [user.name for user in found if user is not None] == ["ann"]
    assert len(found) == 20
    assert isinstance(users.check("ann", b"hush-ann"), User), "it is remembered"


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ("", "servers"),
        ('servers = ["ldap://ldap.example"]\n' + PATTERN, "servers[0]"),
        ('servers = ["http://localhost"]\n' + PATTERN, "servers[0]"),
        ('servers = ["ldaps://a:b@localhost"]\n' + PATTERN, "servers[0]"),
        ('servers = ["ldaps://a"]\n' + LOOKUP, "user_dn"),
        ('servers = ["ldaps://a"]\n' + LOOKUP + 'bind_dn = "x"', "bind_password"),
        (
            'servers = ["ldaps://a"]\n' + PATTERN + '[[auth_ldap.groups]]\ndn = "x"\ntags = ["y"]',
            "group_base",
        ),
        ('servers = ["ldaps://a"]\n' + PATTERN + GROUPED + '[[auth_ldap.groups]]\ndn = "x"', "groups[0].dn"),
        (
            'servers = ["ldaps://a"]\n'
            + PATTERN
            + GROUPED
            + '[[auth_ldap.groups]]\ndn = "{vhost}"\ntags = ["y"]',
            "groups[0].tags",
        ),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(more: str, where: str):
    with pytest.raises(ConfigError) as refused:
        parse('[security]\nbackends = ["ldap"]\n[auth_ldap]\n' + more)
    assert f"auth_ldap.{where}" in [each.where for each in refused.value.problems]
    assert LdapAuthSettings().servers == ()
