"""A small issuer (OpenID Connect) in a thread: it lets everybody in at once, and checks what a page has to prove."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.security.issuer import token

CLIENT: Final = "leveret-page"
LATE_S: Final = 60


class Issuer:
    """What it was asked, and what it answers."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}  # of the last login
        self.user = "shop"
        self.renewals = 0
        self.lasts_s = 600  # its tokens
        self.in_fragment = True  # whether codes come behind the `#`
        self.refuses = False
        self.forges = False  # the state
        self.omits = False  # its name, which its document promises (RFC 9207)
        self.pretends = False  # to be another issuer
        self.renews = threading.Event()  # cleared: who asks for another token waits
        self.renews.set()
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def metadata(self) -> dict[str, object]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "authorization_response_iss_parameter_supported": True,
            **({"response_modes_supported": ["query", "fragment"]} if self.in_fragment else {}),
        }

    def redirect(self, query: dict[str, str]) -> str:
        """Return where a browser that asks to log in is sent."""
        self.asked = query
        code = secrets.token_urlsafe()
        self._codes[code] = query
        answer = {"error": "access_denied"} if self.refuses else {"code": code}
        state = "forged" if self.forges else query["state"]
        sign = "#" if query.get("response_mode") == "fragment" else "?"
        name = {} if self.omits else {"iss": "https://other.example" if self.pretends else self.url}
        return query["redirect_uri"] + sign + urlencode({**answer, "state": state, **name})

    def exchanged(self, form: dict[str, str]) -> dict[str, object] | None:
        """Return the tokens for a code or a renewal; None if the client has not proved what it must."""
        if form["grant_type"] == "refresh_token":
            self.renewals += 1
            self.renews.wait(LATE_S)
            return self._tokens() if form["refresh_token"] == "again" else None
        asked = self._codes.pop(form["code"], None)
        if asked is None or form["client_id"] != asked["client_id"] != CLIENT:
            return None
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        proves = urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        return self._tokens() if proves and form["redirect_uri"] == asked["redirect_uri"] else None

    def _tokens(self) -> dict[str, object]:
        now = int(time.time())
        access = token(
            iss=self.url,
            sub=self.user,
            iat=now,
            exp=now + self.lasts_s,
            jti=secrets.token_hex(),
            scope="leveret.tag:administrator",
        )
        return {"access_token": access, "token_type": "Bearer", "refresh_token": "again"}


def handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, content: object = None, location: str = "") -> None:
            self.send_response(status)
            self.send_header("Access-Control-Allow-Origin", "*")
            if location:
                self.send_header("Location", location)
            body = json.dumps(content).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                self.answer(302, location=issuer.redirect(dict(parse_qsl(parts.query))))
            else:
                self.answer(200, issuer.metadata())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found = issuer.exchanged(dict(parse_qsl(body)))
            self.answer(400 if found is None else 200, found or {"error": "invalid_grant"})

    return Handler
