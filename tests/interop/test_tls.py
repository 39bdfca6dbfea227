"""Clients over TLS as their users set them up: who the server is, and who the client is by a certificate of its own."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika import exceptions
from pika.credentials import ExternalCredentials
from proton import SSLDomain
from proton.utils import BlockingConnection

from leveret.server.cli.control_client import ControlClient
from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, need_command, wait_until
from tests.interop.proton_peer import data
from tests.tls.pki import Pki, toml

pytestmark = pytest.mark.interop

USERS = """
protocols.amqp091.mechanisms = ["PLAIN", "EXTERNAL"]
protocols.amqp10.mechanisms = ["PLAIN", "EXTERNAL"]

[[users]]
name = "guest"
password = "guest"
tags = ["administrator"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }

[[users]]
name = "shop"
permissions."/" = { configure = ".*", write = ".*", read = ".*" }
"""
MIB = 1 << 20
GUEST = pika.PlainCredentials("guest", "guest")
Serve = Callable[..., RunningNode]


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def serve(pki: Pki, node_with: Start) -> Serve:
    """A node with TLS, and a user who has no password."""

    def serve(how: str = "none", **more: object) -> RunningNode:
        tls = pki.settings(**more) if how == "none" else pki.asking(how, login_from="common_name", **more)
        listeners = f'listeners = [{{ address = "127.0.0.1:0", tls = {toml(tls)} }}]'
        http = f'http = {{ enabled = true, address = "127.0.0.1:0", tls = {toml(pki.settings())} }}'
        return node_with(f"{listeners}\n{http}\n{USERS}")

    return serve


# pika.


def over_pika(
    node: RunningNode, context: ssl.SSLContext, credentials: object = GUEST, name: str = "localhost"
) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", node.port, credentials=credentials, ssl_options=pika.SSLOptions(context, name)
    )
    return pika.BlockingConnection(parameters)


def test_pika_publishes_and_consumes_large_and_small(pki: Pki, serve: Serve):
    with over_pika(serve(), pki.trusting()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        sent = [b"", b"small", bytes(5 * MIB), *(b"%d" % number for number in range(500))]
        for body in sent:
            channel.basic_publish("", "q", body)
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in sent] == sent


def test_pika_comes_with_tls_and_without_it_on_one_port(pki: Pki, node_with: Start):
    """EXTERNAL is for those that came with a certificate; without TLS the same user needs a password."""
    tls = toml(pki.asking("optional", login_from="common_name"))[:-1] + ", required = false }"
    node = node_with(f'listeners = [{{ address = "127.0.0.1:0", tls = {tls} }}]\n{USERS}')
    with over_pika(node, pki.trusting(pki.client()), ExternalCredentials()) as connection:
        connection.channel().queue_declare("q")
    plain = pika.ConnectionParameters("127.0.0.1", node.port, credentials=GUEST)
    with pika.BlockingConnection(plain) as connection:
        channel = connection.channel()
        channel.basic_publish("", "q", b"in clear")
        assert channel.basic_get("q", auto_ack=True)[2] == b"in clear"
    plain = pika.ConnectionParameters("127.0.0.1", node.port, credentials=ExternalCredentials())
    with pytest.raises(exceptions.AMQPConnectionError):
        pika.BlockingConnection(plain)


def test_pika_takes_the_url_of_the_node(pki: Pki, serve: Serve):
    parameters = pika.URLParameters(serve().url)
    parameters.ssl_options = pika.SSLOptions(pki.trusting())
    pika.BlockingConnection(parameters).close()


def test_pika_does_not_take_a_server_of_another_ca(pki: Pki, serve: Serve):
    node = serve()
    with pytest.raises(ssl.SSLCertVerificationError):
        over_pika(node, ssl.create_default_context(cafile=pki.wrong_ca))
    over_pika(node, pki.trusting()).close()


def test_pika_does_not_take_a_server_of_another_name(pki: Pki, serve: Serve):
    with pytest.raises(ssl.SSLCertVerificationError):
        over_pika(serve(), pki.trusting(), name="elsewhere.example")


@pytest.mark.parametrize("how", ["optional", "required"])
def test_pika_logs_in_by_its_certificate(pki: Pki, serve: Serve, how: str):
    node = serve(how)
    with over_pika(node, pki.trusting(pki.client("shop")), ExternalCredentials()) as connection:
        connection.channel().queue_declare("q")
        assert node.call(lambda: [client.user.name for client in node.node.broker.clients]) == ["shop"]


def test_pika_with_a_certificate_may_use_a_password(pki: Pki, serve: Serve):
    over_pika(serve("required"), pki.trusting(pki.client("shop"))).close()


def test_a_certificate_of_nobody_logs_in_nobody(pki: Pki, serve: Serve, caplog: pytest.LogCaptureFixture):
    with pytest.raises(exceptions.ProbableAuthenticationError):
        over_pika(serve("required"), pki.trusting(pki.client("stranger")), ExternalCredentials())
    assert "login refused: the certificate names 'stranger', which is not a user" in caplog.text


def test_without_a_certificate_external_is_not_offered(pki: Pki, serve: Serve):
    with pytest.raises(exceptions.AMQPConnectionError):
        over_pika(serve("optional"), pki.trusting(), ExternalCredentials())


@pytest.mark.parametrize("wrong", ["none", "another CA", "expired"])
def test_pika_with_a_certificate_that_is_not_in_order_does_not_come_in(pki: Pki, serve: Serve, wrong: str):
    certificate = pki.client(trusted=wrong != "another CA", expired=wrong == "expired")
    node = serve("required")
    with pytest.raises(exceptions.AMQPConnectionError):
        over_pika(node, pki.trusting(None if wrong == "none" else certificate), ExternalCredentials())
    assert node.clients() == 0


def test_pika_without_tls_is_named_in_the_log(pki: Pki, serve: Serve, caplog: pytest.LogCaptureFixture):
    with pytest.raises(exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", serve().port))
    assert "TLS is spoken here, detected AMQP 0-9-1 without TLS" in caplog.text


def test_pika_with_tls_on_a_plain_port_is_named_in_the_log(
    pki: Pki, node: RunningNode, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(ssl.SSLError, match="alert protocol version"):
        over_pika(node, pki.trusting())
    wait_until(lambda: "refused, detected TLS" in caplog.text, "the log names what it was")


def test_clients_come_through_a_proxy_that_says_who_they_are(pki: Pki, node_with: Start):
    """A proxy's work, done by hand: the header, then what the client says."""
    tls = toml(pki.settings())
    node = node_with(f'listeners = [{{ address = "127.0.0.1:0", proxy_protocol = true, tls = {tls} }}]')
    with socket.create_connection(("127.0.0.1", node.port), TIMEOUT_S) as plain:
        plain.sendall(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5671\r\n")
        with pki.trusting().wrap_socket(plain, server_hostname="localhost") as secured:
            secured.sendall(b"AMQP\0\0\x09\x01")
            assert secured.recv(1) == b"\x01"  # connection.start


# Qpid Proton.


def domain(pki: Pki, certificate: tuple[Path, Path] | None = None, ca: Path | None = None) -> SSLDomain:
    made = SSLDomain(SSLDomain.MODE_CLIENT)
    made.set_trusted_ca_db(str(ca or pki.ca))
    made.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if certificate is not None:
        made.set_credentials(str(certificate[0]), str(certificate[1]), None)
    return made


def over_proton(node: RunningNode, secured: SSLDomain, **options: object) -> BlockingConnection:
    login = {"user": "guest", "password": "guest", "allowed_mechs": "PLAIN", "reconnect": False}
    return BlockingConnection(
        f"amqps://localhost:{node.port}",
        timeout=TIMEOUT_S,
        virtual_host="localhost",
        ssl_domain=secured,
        **{**login, **options},
    )


def test_proton_sends_and_receives(pki: Pki, serve: Serve):
    node = serve()
    node.declare("q")
    connection = over_proton(node, domain(pki))
    connection.create_sender("/queues/q").send(data(bytes(2 * MIB)))
    assert bytes(connection.create_receiver("/queues/q").receive().body) == bytes(2 * MIB)
    connection.close()


def test_proton_logs_in_by_its_certificate(pki: Pki, serve: Serve):
    node = serve("required")
    connection = over_proton(
        node, domain(pki, pki.client("shop")), user=None, password=None, allowed_mechs="EXTERNAL"
    )
    assert node.call(lambda: [client.user.name for client in node.node.broker.clients]) == ["shop"]
    connection.close()


@pytest.mark.parametrize("wrong", ["server", "client"])
def test_proton_takes_and_gives_no_certificate_of_another_ca(pki: Pki, serve: Serve, wrong: str):
    certificate = pki.client(trusted=wrong != "client")
    secured = domain(pki, certificate, pki.wrong_ca if wrong == "server" else None)
    node = serve("required")
    with pytest.raises(Exception, match=r"(?i)certificate|alert|closed|disconnected"):
        over_proton(node, secured)
    assert node.clients() == 0


# The control endpoint.


def control_address(node: RunningNode) -> str:
    return node.call(lambda: node.node.addresses[-1])


def asked(node: RunningNode, ca: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """curl's question to the control endpoint by the name that is in its certificate."""
    port = control_address(node).rpartition(":")[2]
    command = [need_command("curl", "curl"), "-sS", "--cacert", str(ca), "-u", "guest:guest", *options]
    return subprocess.run(
        [
            *command,
            f"https://localhost:{port}/api/leveret/status",
            "--resolve",
            f"localhost:{port}:127.0.0.1",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("version", ["--tls-max=1.2", "--tlsv1.3"])
def test_curl_reads_the_status(pki: Pki, serve: Serve, version: str):
    done = asked(serve(), pki.ca, *version.split("="))
    assert '"connections"' in done.stdout, done.stderr


def test_curl_does_not_take_a_server_of_another_ca(pki: Pki, serve: Serve):
    assert "certificate" in asked(serve(), pki.wrong_ca).stderr


def test_the_command_line_asks_over_tls(pki: Pki, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(pki.ca))
    client = ControlClient(f"https://{control_address(serve())}", "guest", "guest")
    assert client.ask("GET", "/api/leveret/status").status == 200


def test_plain_http_on_a_tls_port_is_named_in_the_log(
    pki: Pki, serve: Serve, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "leveret")
    host, port = control_address(serve()).split(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert plain.recv(1000) == b""
    assert "TLS is spoken here, detected HTTP without TLS" in caplog.text
