"""What the node asks over HTTP: real servers, good and bad, with and without TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from leveret.config.config import parse
from leveret.config.tls import PeerTlsSettings
from leveret.security.http_requests import HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.server.node import http_client
from leveret.server.node.node import Node
from tests.harness.web import Seen, WebServer
from tests.tls.pki import Pki

pytestmark = pytest.mark.system

NODE: Final = '[[listeners]]\naddress = "127.0.0.1:0"\n[http]\nenabled = false\n'
BROKEN: Final = "the connection was broken off, or it does not speak HTTP"
TOO_LONG: Final = "the request or its response breaks the rules of HTTP, or is too long"
LATE_S: Final = 60  # for what should happen soon


def outcomes(*requests: HttpRequest, together: bool = False) -> list[Outcome]:
    """Ask with one node, one after the other unless they are sent together."""
    found: list[Outcome] = []
    all_ended: list[trio.Event] = []

    async def main() -> None:
        async with Node(parse(NODE)) as node:
            for number, request in enumerate(requests, start=1):
                ended = trio.Event()

                def then(outcome: Outcome, ended: trio.Event = ended) -> None:
                    found.append(outcome)
                    ended.set()

                node.broker.access.fetch(request, then)
                assert len(found) < number, "never before the request has returned"
                if not together:
                    with trio.fail_after(LATE_S):
                        await ended.wait()
                all_ended.append(ended)
            with trio.fail_after(LATE_S):
                for ended in all_ended:
                    await ended.wait()

    trio.run(main)
    return found


@contextlib.contextmanager
def rude(answer: bytes) -> Iterator[str]:
    """A server that reads once, says something and hangs up; without an answer it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = listening.accept()
                    connected.recv(4096)
                    if answer:
                        with connected:
                            connected.sendall(answer)
                    else:
                        silent.append(connected)

        silent: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in silent:
            each.close()


def test_a_connection_serves_one_request_after_the_other():
    def said(seen: Seen) -> bytes:
        return f"{seen.method} {dict(seen.fields)} {seen.headers['X-Own']}".encode()

    with WebServer({"/a": said}) as server:
        own = (("X-Own", "7"),)
        form = (*own, ("Content-Type", "application/x-www-form-urlencoded"))
        get = HttpRequest(server.url + "/a?q=1", headers=own)
        post = HttpRequest(server.url + "/a", "POST", form, b"q=2")
        assert outcomes(get, post) == [
            HttpResponse(200, b"GET {'q': '1'} 7"),
            HttpResponse(200, b"POST {'q': '2'} 7"),
        ]
        assert len({each.port for each in server.asked}) == 1


def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with rude(answer) as url:
        assert outcomes(HttpRequest(url), HttpRequest(url)) == [HttpResponse(200, b"ok")] * 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-x\r\n", BROKEN),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
            BROKEN,
        ),
        (
            b"HTTP/1.1 200 OK\r\n\r\n" + bytes(200),
            TOO_LONG,
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 60_000,
            TOO_LONG,
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,
            TOO_LONG,
        ),
        (b"", "no response in 0.1 s"),
    ],
)
def test_a_bad_server_gives_no_response(answer: bytes, reason: str):
    with rude(answer) as url:
        timeout_s = 0.1 if not answer else LATE_S
        assert outcomes(HttpRequest(url, timeout_s=timeout_s, size_max=100)) == [NoResponse(reason)]


def test_where_nobody_listens_and_what_is_no_host():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    [refused] = outcomes(HttpRequest(f"http://127.0.0.1:{port}/"))
    assert isinstance(refused, NoResponse)
    assert str(port) not in refused.reason


def test_a_redirect_is_an_answer_that_is_not_followed():
    with WebServer({"/": 302}) as server:
        assert outcomes(HttpRequest(server.url + "/")) == [HttpResponse(302, b"")]


def test_many_requests_wait_in_line_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_client, "REQUESTS_MAX", 2)
    monkeypatch.setattr(http_client, "LINE_MAX", 30)
    with WebServer({"/": b"ok"}) as server:
        found = outcomes(*[HttpRequest(server.url + "/", timeout_s=LATE_S)] * 40, together=True)
    assert found.count(HttpResponse(200, b"ok")) == 30
    assert found.count(NoResponse("too many requests are under way")) == 10


def test_the_certificate_has_to_be_one_of_the_cas_in_the_file(tmp_path: Path):
    pki = Pki(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with WebServer({"/": b"ok"}, context) as server:
        url = server.url + "/"
        found = outcomes(
            HttpRequest(url, tls=PeerTlsSettings(ca=pki.ca)),
            HttpRequest(url, tls=PeerTlsSettings(ca=pki.ca)),
            HttpRequest(url, tls=PeerTlsSettings(ca=pki.wrong_ca)),
            HttpRequest(url),
            HttpRequest(url.replace("localhost", "127.0.0.2"), tls=PeerTlsSettings(ca=pki.ca)),
            HttpRequest(url, tls=PeerTlsSettings(ca=tmp_path / "missing.pem")),
        )
    assert found[:2] == [HttpResponse(200, b"ok")] * 2
    reasons = [each.reason for each in found[2:] if isinstance(each, NoResponse)]
    assert len(reasons) == 4
    assert all(each.startswith("its certificate is not trusted") for each in reasons[:2]), reasons
    assert "No such file" in reasons[3]
    assert len(server.asked) == 2


def test_a_server_that_asks_for_a_certificate_gets_that_of_the_settings(tmp_path: Path):
    pki = Pki(tmp_path)
    certificate, private_key = pki.client()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.load_verify_locations(pki.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    own = PeerTlsSettings(ca=pki.ca, certificate=certificate, private_key=private_key)
    with WebServer({"/": b"ok"}, context) as server:
        url = server.url + "/"
        found = outcomes(HttpRequest(url, tls=own), HttpRequest(url, tls=PeerTlsSettings(ca=pki.ca)))
    assert found == [HttpResponse(200, b"ok"), NoResponse(BROKEN)]


def test_a_server_with_an_older_version_of_tls_than_the_settings_accept_is_not_asked(tmp_path: Path):
    pki = Pki(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    accepted = [PeerTlsSettings(ca=pki.ca, minimum_version=each) for each in ("1.2", "1.3")]
    with WebServer({"/": b"ok"}, context) as server:
        found = outcomes(*(HttpRequest(server.url + "/", tls=each) for each in accepted))
    assert found == [HttpResponse(200, b"ok"), NoResponse(BROKEN)]
