"""HTTP requests to the broker, with retries at all endpoints.

An asker keeps one connection. Failures that may be temporary (a refused or broken connection, a busy broker) are
retried at the next endpoint, after growing pauses. So every request must be repeatable.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlencode, urlsplit

import attrs

from leveret.pipeline.errors import BadOption, PipelineError, Unreachable

UNAUTHORIZED: Final = 401
SOON: Final = frozenset((408, 429, 502, 503, 504))  # statuses that may be temporary
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
TEXT_MAX: Final = 16 << 20  # bytes of an answer other than blocks
TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
PASSWORD_MAX: Final = 64 << 10


class Reach(Protocol):
    """Options that say where the broker is, and the user to log in as."""

    @property
    def endpoints(self) -> tuple[str, ...]: ...
    @property
    def username(self) -> str: ...
    @property
    def password_file(self) -> str | None: ...
    @property
    def ca_file(self) -> str | None: ...
    @property
    def cert_file(self) -> str | None: ...
    @property
    def key_file(self) -> str | None: ...
    @property
    def minimum_version(self) -> str: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def retry_s(self) -> float: ...


@attrs.frozen
class Answer:
    """An answer to a request. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    octets: bytes

    @property
    def reason(self) -> str:
        """The broker's reason for a refusal, or the beginning of the body if it gives none."""
        try:
            content = json.loads(self.octets)
            return str(content.get("reason") or content.get("error") or "no reason given")[:1000]
        except (ValueError, RecursionError, AttributeError):
            if self.headers.get("content-type", "").startswith("text/html"):
                return "a page of HTML, as no broker gives: is there a proxy in front of it?"
            return self.octets[:200].decode("utf-8", "backslashreplace") or "no reason given"


def password_of(options: Reach, environ: Mapping[str, str]) -> str:
    """Return the password from its file or the environment. Raises BadOption."""
    if options.password_file is None:
        return environ.get("LEVERET_PASSWORD", "guest")
    try:
        with Path(options.password_file).open("rb") as file:
            line = file.read(PASSWORD_MAX).partition(b"\n")[0]
        return line.rstrip(b"\r").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(
            f"option passwordFile: '{options.password_file}' cannot be read here ({error});"
            " it must be there on the driver and on every executor"
        ) from None


def trust_of(options: Reach) -> ssl.SSLContext:
    """Return a TLS context with the certificates to trust and the one to present. Raises BadOption."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise BadOption(f"option tls.caFile: '{options.ca_file}' cannot be used here ({error})") from None
    context.minimum_version = TLS_VERSIONS[options.minimum_version]
    if options.cert_file is None:
        if options.key_file is not None:
            raise BadOption("option tls.keyFile needs tls.certFile, the certificate of that key")
        return context
    try:
        # Without this, OpenSSL would ask at the terminal for the password of a key.
        context.load_cert_chain(options.cert_file, options.key_file, password=lambda: "")
    except (OSError, ValueError) as error:
        shown = options.cert_file + (f"' with tls.keyFile '{options.key_file}" if options.key_file else "")
        raise BadOption(
            f"option tls.certFile: '{shown}' cannot be used here ({error}); it needs a key without a password"
        ) from None
    return context


def speaks_amqp(answer: Answer) -> bool:
    """Return whether this is what a port for AMQP says to HTTP; other brokers answer with a header of AMQP."""
    is_text = answer.headers.get("content-type", "").startswith("text/plain")
    return answer.status == 400 and is_text and answer.octets.startswith(b"This port speaks AMQP")


def hint_at(error: Exception, url: str) -> str:
    """Return what to look at where TLS is expected at one end only, or a certificate is; empty for other troubles."""
    text = str(error).lower().replace("_", " ")
    if isinstance(error, ssl.SSLError) and "certificate required" in text:
        return "; the broker wants a certificate: see the options tls.certFile and tls.keyFile"
    if isinstance(error, ssl.SSLError) and ("wrong version number" in text or "record layer failure" in text):
        return "; this port does not speak TLS: the endpoint may be an http URL"
    if url.startswith("http:") and isinstance(error, ConnectionResetError | http.client.BadStatusLine):
        return "; if the port speaks TLS, the endpoint is an https URL"
    return ""


class BrokerClient:
    """Makes requests to one broker. Not to be shared by threads."""

    def __init__(
        self,
        options: Reach,
        password: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a client. Without `password` it is read from where the options say, and again if it is refused."""
        self._options = options
        self._is_given = password is not None
        self._headers = self._authorization(
            password_of(options, os.environ) if password is None else password
        )
        self._sleep = sleep
        self._now = now
        self._endpoint = 0  # index
        self._connection: http.client.HTTPConnection | None = None

    def _authorization(self, password: str) -> dict[str, str]:
        credentials = base64.b64encode(f"{self._options.username}:{password}".encode()).decode()
        return {"Authorization": f"Basic {credentials}"}

    def _has_another(self) -> bool:
        """Read the password again, and return whether it is another: a file may hold a token that is renewed."""
        before = self._headers
        if not self._is_given:
            self._headers = self._authorization(password_of(self._options, os.environ))
        return self._headers != before

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def url(self) -> str:
        """The URL of the endpoint that was asked last."""
        return self._options.endpoints[self._endpoint]

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
        content_type: str = "application/octet-stream",
        most: int = TEXT_MAX,
    ) -> Answer:
        """Return the answer, of at most `most` bytes; statuses of `SOON` are retried. Raises PipelineError."""
        target = path + ("?" + urlencode(query) if query else "")
        kind = {} if body is None else {"Content-Type": content_type}
        give_up = self._now() + self._options.retry_s
        pause = PAUSE_S
        while True:
            try:
                answer = self._asked_once(method, target, body, {**self._headers, **kind}, most)
                if speaks_amqp(answer):
                    raise self._wrong_port()
                if answer.status == UNAUTHORIZED and self._has_another():
                    continue
                if answer.status not in SOON:
                    return answer
                trouble = f"it answers {answer.status}: {answer.reason}"
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, http.client.BadStatusLine) and str(error).startswith("AMQP"):
                    raise self._wrong_port() from None
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise Unreachable(
                        f"{self.url}: {error.verify_message}; see the option tls.caFile"
                    ) from None
                trouble = (str(error) or type(error).__name__) + hint_at(error, self.url)
            self.close()
            if self._now() + pause > give_up:
                raise Unreachable(
                    f"no broker answers at {', '.join(self._options.endpoints)} (option endpoints), asked for"
                    f" {self._options.retry_s} s (option retrySeconds); the last trouble at {self.url}: {trouble}"
                )
            self._endpoint = (self._endpoint + 1) % len(self._options.endpoints)
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    def _wrong_port(self) -> Unreachable:
        self.close()
        parts = urlsplit(self.url)
        return Unreachable(
            f"{parts.netloc} speaks AMQP, not HTTP: the endpoint is the management address, such as"
            f" {parts.scheme}://{parts.hostname}:15672 (option endpoints)"
        )

    def _asked_once(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], most: int
    ) -> Answer:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connected()
        connection.request(method, urlsplit(self.url).path + target, body, dict(headers))
        response = connection.getresponse()
        if (response.length or 0) > most:
            self.close()
            raise PipelineError(f"{self.url} answers with {response.length} bytes, where {most} are the most")
        octets = response.read(most + 1) if response.length is None else response.read()
        if len(octets) > most:
            self.close()
            raise PipelineError(f"{self.url} answers with more than {most} bytes")
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, octets)

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._options.timeout_s)
        context = trust_of(self._options)
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=self._options.timeout_s, context=context
        )
