"""Real clients with tokens for passwords: pika and Proton come in, renew, and are sent away when it is over."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from leveret.server.cli import main
from tests.harness.web import Seen, WebServer
from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, missing, need_command, wait_until
from tests.security.issuer import public_jwk, settings, token, write_keys
from tests.tls.pki import Pki

pytestmark = pytest.mark.interop

HERE = Path(__file__).parent
SECONDS = 3  # that a short token is good for: enough to come in on a busy machine


@pytest.fixture
def node(tmp_path: Path, node_with: Start) -> RunningNode:
    return node_with(settings(write_keys(tmp_path), "leeway_s = 0"))


def good_for(seconds: float, **claims: object) -> str:
    return token(exp=time.time() + seconds, iat=None, **claims)


def over_pika(node: RunningNode, given: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(node.url)
    parameters.credentials = pika.PlainCredentials("", given)
    return pika.BlockingConnection(parameters)


def over_proton(node: RunningNode, given: str) -> BlockingConnection:
    url = node.url.replace("guest:guest@", "").removesuffix("/%2F")
    return BlockingConnection(url, user="shop", password=given, allowed_mechs="PLAIN", timeout=60)


def test_pika_comes_in_with_a_token_and_does_what_its_scopes_say(node: RunningNode):
    connection = over_pika(node, good_for(600, scope="leveret.configure:*/mine"))
    channel = connection.channel()
    channel.queue_declare("mine")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="refused for user 'shop'"):
        channel.queue_declare("theirs")
    connection.close()


def test_pika_is_told_what_it_is_told_of_a_wrong_password(node: RunningNode):
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="Login was refused"):
        over_pika(node, good_for(-1))


def test_pika_stays_with_a_fresh_token_and_goes_when_that_is_over(node: RunningNode):
    connection = over_pika(node, good_for(SECONDS))
    connection.update_secret(good_for(2 * SECONDS), "it was time")
    connection.process_data_events(SECONDS + 0.5)
    assert connection.is_open
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="credential expired"):
        connection.process_data_events(60)


def test_proton_comes_in_with_a_token_and_goes_when_it_is_over(node: RunningNode):
    connection = over_proton(node, good_for(SECONDS))
    with pytest.raises(ConnectionException, match="credential expired"):
        connection.wait(lambda: False, timeout=60)


def test_proton_does_not_come_in_with_a_token_for_others(node: RunningNode):
    with pytest.raises(ConnectionException, match=r"Authentication failed|PLAIN"):
        over_proton(node, good_for(600, aud="other"))


# Keys from the issuer, over TLS.


class Published:
    """An issuer that publishes keys, and a document that says where."""

    def __init__(self, folder: Path) -> None:
        pki = Pki(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self.web = WebServer({}, context)
        document = {"issuer": self.web.url, "jwks_uri": f"{self.web.url}/keys"}
        self.web.pages["/.well-known/openid-configuration"] = json.dumps(document).encode()
        self.ca = pki.ca
        self.publish("RS256")

    def publish(self, *algorithms: str) -> None:
        keys = [public_jwk(each) for each in algorithms]
        self.web.pages["/keys"] = json.dumps({"keys": keys}).encode()

    @property
    def settings(self) -> str:
        return (
            f'[oauth]\ndiscovery = true\nissuer = "{self.web.url}"\ntls.ca = "{self.ca}"\n'
            'resource_server_id = "leveret"\nunknown_key_interval_s = 1\n'
        )

    def token(self, algorithm: str = "RS256", **claims: object) -> str:
        return token(algorithm, **{"exp": time.time() + 600, "iat": None, "iss": self.web.url, **claims})


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    found = Published(tmp_path)
    with found.web:
        yield found


def test_keys_come_from_the_issuer_rotate_and_go_on_while_it_is_away(
    node_with: Start, published: Published, caplog: pytest.LogCaptureFixture
):
    node = node_with(published.settings)
    over_pika(node, published.token()).close()
    over_proton(node, published.token()).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        over_pika(node, published.token(iss="https://other.example"))
    assert len(published.web.asked_for("/keys")) == 1

    published.publish("ES256")
    wait_until(lambda: comes_in(node, published.token("ES256")), "the new key is there")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        over_pika(node, published.token("RS256"))

    published.web.pages["/keys"] = 503
    wait_until(lambda: asked_in_vain(node, published), "the issuer was asked again")
    over_pika(node, published.token("ES256")).close()
    assert "no keys: the status is 503" in caplog.text
    assert published.token()[:20] not in caplog.text


def test_two_issuers_each_let_their_own_users_in(node_with: Start, published: Published):
    pages = {"/keys": json.dumps({"keys": [public_jwk("ES256")]}).encode()}
    with WebServer(pages) as partners:
        node = node_with(
            f'{published.settings}[oauth.providers.partners]\nissuer = "{partners.url}"\n'
            f'jwks_url = "{partners.url}/keys"\nresource_server_id = "shared"\n'
        )
        theirs = {"iss": partners.url, "aud": "shared", "scope": "shared.configure:*/mine"}
        over_pika(node, published.token()).close()
        over_proton(node, published.token("ES256", **theirs, sub="partner")).close()
        channel = over_pika(node, published.token("ES256", **theirs, sub="partner")).channel()
        channel.queue_declare("mine")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="refused for user 'partner'"):
            channel.queue_declare("others")
        channel.connection.close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            over_pika(node, published.token("RS256", **theirs))


def comes_in(node: RunningNode, given: str) -> bool:
    try:
        over_pika(node, given).close()
    except pika.exceptions.ProbableAuthenticationError:
        return False
    return True


def asked_in_vain(node: RunningNode, published: Published) -> bool:
    comes_in(node, published.token("RS256"))
    tokens = node.node.broker.access.tokens
    return tokens is not None and tokens.asked_sources()[0].failed > 0


def test_an_issuer_with_another_certificate_is_not_believed(
    node_with: Start, published: Published, caplog: pytest.LogCaptureFixture
):
    node = node_with("\n".join(line for line in published.settings.splitlines() if "tls.ca" not in line))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        over_pika(node, published.token())
    assert "its certificate is not trusted" in caplog.text
    assert published.web.asked == []


def test_metrics_tell_of_the_keys(node_with: Start, published: Published):
    node = node_with(published.settings + '[http]\nenabled = true\naddress = "127.0.0.1:0"\n')
    over_pika(node, published.token()).close()
    address = node.node.addresses[-1]
    asked = urllib.request.Request(f"http://{address}/metrics")
    asked.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    with urllib.request.urlopen(asked) as answer:
        shown = answer.read().decode()
    assert "leveret_oauth_keys_fetched_total 1" in shown
    assert "leveret_oauth_fetches_failed_total 0" in shown
    assert "leveret_oauth_keys_age_seconds" in shown


# OAUTHBEARER and XOAUTH2.

# A client that answers no challenge is given up after three seconds, not ten.
OFFERED = """
limits.handshake_timeout_s = 3
protocols.amqp091.mechanisms = ["PLAIN", "XOAUTH2", "OAUTHBEARER"]
protocols.amqp10.mechanisms = ["XOAUTH2", "OAUTHBEARER", "PLAIN"]
"""
RHEA = """
const [host, port, token] = process.argv.slice(1);
const connection = require('rhea').connect({host, port, username: 'shop', token, reconnect: false});
connection.on('connection_open', () => { console.log('open'); connection.close(); });
connection.on('disconnected', () => console.log('disconnected'));
connection.on('connection_error', (context) => console.log('refused'));
"""


class PikaBearer:
    """Credentials of pika for these mechanisms."""

    def __init__(self, mechanism: str, given: str) -> None:
        self.TYPE = mechanism
        self.given = given

    def response_for(self, start: object) -> tuple[str, bytes]:
        head = b"user=shop" if self.TYPE == "XOAUTH2" else b"n,,"
        return self.TYPE, head + b"\x01auth=Bearer " + self.given.encode() + b"\x01\x01"

    def erase_credentials(self) -> None:
        pass


@pytest.fixture
def offering(tmp_path: Path, node_with: Start) -> RunningNode:
    return node_with(OFFERED + settings(write_keys(tmp_path)))


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
def test_pika_shows_a_token_as_such(
    offering: RunningNode, mechanism: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(pika.credentials, "VALID_TYPES", [*pika.credentials.VALID_TYPES, PikaBearer])
    parameters = pika.URLParameters(offering.url)
    parameters._credentials = PikaBearer(mechanism, good_for(600))
    pika.BlockingConnection(parameters).close()
    parameters._credentials = PikaBearer(mechanism, good_for(-60))
    with pytest.raises(pika.exceptions.AMQPError):  # pika answers no challenges
        pika.BlockingConnection(parameters)
    assert "login refused: user '" in caplog.text


def test_rhea_shows_a_token_as_such(offering: RunningNode):
    command = need_command("node", "nodejs npm")
    if not (HERE / "node_modules" / "rhea").is_dir():
        missing("rhea", "run `make test`, or npm ci --prefix tests/interop")

    def said(given: str) -> list[str]:
        ran = subprocess.run(
            [command, "-e", RHEA, "127.0.0.1", str(offering.port), given],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=HERE,
        )
        return ran.stdout.split()

    assert said(good_for(600))[0] == "open"
    assert "open" not in said(good_for(-60))


def test_opaque_tokens_are_what_the_issuer_says_until_they_are_forgotten(
    node_with: Start, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    def meaning(seen: Seen) -> bytes:
        active = seen.fields["token"] in good and seen.headers["Authorization"] == "Basic bm9kZTpodXNo"
        claims = {"active": active, "sub": "shop", "aud": "leveret", "exp": time.time() + 600}
        return json.dumps({**claims, "scope": "leveret.configure:*/* leveret.tag:administrator"}).encode()

    good = {"opaque-1", "opaque-2"}
    with WebServer({"/introspect": meaning}) as issuer:
        node = node_with(
            OFFERED
            + f'[oauth]\nresource_server_id = "leveret"\nintrospection_url = "{issuer.url}/introspect"\n'
            'introspection_client_id = "node"\nintrospection_client_secret = "hush"\n'
            '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
        )
        url = f"http://{node.node.addresses[-1]}"
        connection = over_pika(node, "opaque-1")
        connection.channel().queue_declare("q")
        connection.update_secret("opaque-2", "it was time")
        connection.close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            over_pika(node, "opaque-3")
        asked = urllib.request.Request(f"{url}/api/whoami", headers={"Authorization": "Bearer opaque-1"})
        with urllib.request.urlopen(asked) as answer:
            assert json.load(answer)["name"] == "shop"
        assert len(issuer.asked) == 3

        good.clear()
        over_pika(node, "opaque-1").close()
        assert main(["logins", "forget", "--url", url], {}) == 0
        assert "tokens" in capsys.readouterr().out
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            over_pika(node, "opaque-1")
    assert "opaque-" not in caplog.text
    assert "hush" not in caplog.text
