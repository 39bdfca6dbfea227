"""A client of a node's HTTP API: JSON in and out, Basic authentication."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import attrs

TIMEOUT_S: Final = 10.0
HOLDS: Final = "Leveret-Holds"
NO_HEADERS: Final[Mapping[str, str]] = {}


class Unreachable(Exception):  # noqa: N818 - a condition, not a mistake
    """Raised if there is no answer, if the answer is not from a node, or if the node refuses the login."""


@attrs.frozen
class Answer:
    """The node's response: the status, the text as it came, and its JSON content."""

    status: int
    text: str
    content: object
    holds: str = ""  # how long a change holds, if not for good

    @property
    def refused(self) -> bool:
        return self.status >= 400

    @property
    def reason(self) -> str:
        """The reason of a refusal in the node's words: `reason` (or `error`) and each of `problems` on a line."""
        content = self.content if isinstance(self.content, Mapping) else {}
        problems = content.get("problems")
        answer = content.get("reason") or content.get("error") or f"the node answered {self.status}"
        if isinstance(answer, list):  # RabbitMQ's `["no_such_user", "shop"]`
            answer = ": ".join([str(each) for each in answer]).replace("_", " ", str(answer[:1]).count("_"))
        # as in RabbitMQ's `Validation failed`, and what did
        lines = [str(answer).strip().replace("\n\n", ": ")]
        lines += [str(problem) for problem in (problems if isinstance(problems, list) else ())]
        return "\n".join(dict.fromkeys(lines))  # the reason may be the first of the problems

    @property
    def lacks_right(self) -> bool:
        """True if the user is authenticated but not permitted; RabbitMQ's API answers 401 for that as well."""
        return isinstance(self.content, Mapping) and self.content.get("error") == "not_authorised"

    @property
    def partly_failed(self) -> bool:
        """True if the request succeeded in part: the node names what it left unchanged."""
        content = self.content if isinstance(self.content, Mapping) else {}
        return bool(content.get("refused") or content.get("problems"))


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix domain socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """`path` is the path of a socket, or an abstract name after a NUL."""
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def unix_path(url: str) -> str:
    """Return what to connect to for `unix:/PATH` or `unix:@NAME`; empty if the URL is another."""
    path = url.removeprefix("unix:")
    if path == url or not path.startswith(("/", "@")):
        return ""
    return "\0" + path[1:] if path.startswith("@") else path


class ControlClient:
    """A client of the endpoint at `url`, which may be `unix:/PATH`, as `user`.

    In a `with` statement it keeps one connection.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self._socket_path = unix_path(url)
        self._address = urlsplit(
            "http://localhost" if self._socket_path else url if "//" in url else f"http://{url}"
        )
        # to be shown: no password
        self._url = url.replace(f"{self._address.netloc.rpartition('@')[0]}@", "", 1)
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json, */*;q=0.1"}
        self._user = user
        self._keeps = False
        self._kept: http.client.HTTPConnection | None = None

    def __enter__(self) -> ControlClient:
        self._keeps = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._keeps = False
        self.close()

    def ask(
        self,
        method: str,
        path: str,
        timeout_s: float | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """Send a request with a JSON `body`, and return the answer. Raises Unreachable unless the node answers."""
        more = {"Content-Type": "application/json"} if body is not None else {}
        target, sent = self._address.path.rstrip("/") + path, {**self._headers, **more, **headers}
        try:
            status, text, holds = self._exchanged(method, target, timeout_s or TIMEOUT_S, body, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(
                f"no node answers at {self._url} ({reason}); is `leveret serve` running?"
            ) from None
        finally:
            if not self._keeps:
                self.close()
        answer = Answer(status, text.rstrip(), self._content(text), holds)
        if status == 401 and not answer.lacks_right:
            raise Unreachable(f"{self._url} does not let '{self._user}' in: wrong user or password")
        return answer

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _exchanged(
        self, method: str, target: str, timeout_s: float, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str, str]:
        """Send a request over the kept connection, and again over a new one if the node has closed that meanwhile.

        A POST is never repeated: it always gets a new connection.
        """
        if method == "POST":
            self.close()
        kept, self._kept = self._kept, None
        if kept is not None:
            try:
                return self._told(kept, method, target, timeout_s, body, headers)
            except (ConnectionError, http.client.BadStatusLine):
                kept.close()
        return self._told(self._connection(timeout_s), method, target, timeout_s, body, headers)

    def _told(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        timeout_s: float,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, str, str]:
        self._kept = connection
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request(method, target, body, headers=dict(headers))
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        return response.status, text, response.getheader(HOLDS, "")

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._socket_path:
            return UnixConnection(self._socket_path, timeout_s)
        if "@" in self._address.netloc:  # other users of the machine can read arguments
            raise Unreachable(
                f"{self._url} is to be named without a login: that is --user NAME, and --password-file FILE or "
                "the variable LEVERET_PASSWORD"
            )
        scheme, host = self._address.scheme, self._address.hostname
        try:
            port = self._address.port
        except ValueError:  # its text quotes the URL, perhaps a part of a password
            host = port = None
        if scheme not in ("http", "https") or not host:
            raise Unreachable(f"{self._url} is not a URL such as http://127.0.0.1:15672 or unix:/PATH")
        if scheme == "https":
            return http.client.HTTPSConnection(host, port or 15671, timeout=timeout_s)
        return http.client.HTTPConnection(host, port or 15672, timeout=timeout_s)

    def _content(self, text: str) -> object:
        try:
            return json.loads(text) if text else {}
        except ValueError:
            raise Unreachable(f"{self._url} is not the control endpoint of a node") from None
