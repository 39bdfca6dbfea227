"""Names and passwords about which an HTTP server decides, in the form of RabbitMQ's `rabbitmq_auth_backend_http`.

    POST user_path   username=shop&password=...   ─>   allow [TAG ...] | deny      (status 200 or 201)

The server says whether the password is right, and which tags the user has. What the user may do, and how much, is in
the permissions and limits of the account of that name here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from broker_core.config.http_auth import HttpAuthSettings
from broker_core.security.access import User
from broker_core.security.http_requests import HttpRequest, NoResponse, Outcome
from broker_core.security.remote_logins import NoAnswer, RemoteLogins

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.security.access import Access

ANSWERED: Final = (200, 201)
ANSWER_MAX: Final = 4096  # bytes
TAGS_MAX: Final = 50
FORM: Final = (("Content-Type", "application/x-www-form-urlencoded"),)


class HttpUsers(RemoteLogins):
    """The users of one server."""

    def __init__(self, settings: HttpAuthSettings, clock: Clock, access: Access, key: bytes) -> None:
        super().__init__(clock, access.fetch, key, settings.cache_s, settings.cache_refusals)
        self.settings = settings
        self._access = access

    def request(self, name: str, secret: bytes) -> HttpRequest:
        said = self.settings
        assert said.user_path is not None, "only then it is made"
        fields = urlencode({"username": name.encode("utf-8", "replace"), "password": secret})
        if said.http_method == "get":
            joint = "&" if "?" in said.user_path else "?"
            return self._request(f"{said.user_path}{joint}{fields}", "GET")
        return self._request(said.user_path, "POST", FORM, fields.encode())

    def _request(
        self, url: str, method: str, headers: tuple[tuple[str, str], ...] = (), body: bytes = b""
    ) -> HttpRequest:
        said = self.settings
        return HttpRequest(url, method, headers, body, said.timeout_s, ANSWER_MAX, said.ca_file)

    def decided(self, name: str, outcome: Outcome) -> User | None:
        if isinstance(outcome, NoResponse):
            raise NoAnswer(outcome.reason)
        if outcome.status not in ANSWERED:
            raise NoAnswer(f"the status is {outcome.status}")
        answer, *tags = outcome.body.decode(errors="replace").lower().split()[: TAGS_MAX + 1] or [""]
        if answer == "deny":
            return None
        if answer != "allow":
            raise NoAnswer("it says neither allow nor deny")
        account = self._access.user(name)
        return User(name, tags) if account is None else User(name, tags, limits=account.limits)
