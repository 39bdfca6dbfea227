"""Users about whom an HTTP server decides, in the form of RabbitMQ's `rabbitmq_auth_backend_http`.

    POST user_path       username=shop&password=...                    ─>   allow [TAG ...] | deny   (status 200, 201)
    POST vhost_path      username=shop&vhost=/&ip=192.0.2.7            ─>   allow | deny
    POST resource_path   username=shop&vhost=/&resource=queue&name=q&permission=read
    POST topic_path      username=shop&vhost=/&resource=topic&name=amq.topic&permission=write&routing_key=eu.fr

The server says whether the password is right, and which tags the user has. What the user may do, it says where it is
asked that; else it is in the permissions of the account of that name here, as the limits always are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlencode

from leveret.config.http_auth import HttpAuthSettings
from leveret.security.http_requests import HttpRequest, NoResponse, Outcome
from leveret.security.remote_logins import HttpLogins, NoAnswer, admitted
from leveret.security.remote_permissions import (
    TOPIC,
    VIRTUAL_HOST,
    Question,
    RemoteGrants,
    RemotePermissions,
)
from leveret.security.users import User

if TYPE_CHECKING:
    from leveret.clock import Clock, Timers
    from leveret.security.users import Accounts

log: Final = logging.getLogger("leveret.security")

ANSWERED: Final = (200, 201)
ANSWER_MAX: Final = 4096  # bytes
TAGS_MAX: Final = 50
FORM: Final[tuple[tuple[str, str], ...]] = (("Content-Type", "application/x-www-form-urlencoded"),)
Fields: TypeAlias = "Sequence[tuple[str, bytes]]"


class HttpUsers(HttpLogins):
    """The users of one server."""

    def __init__(
        self, settings: HttpAuthSettings, clock: Clock, timers: Timers, access: Accounts, key: bytes
    ) -> None:
        super().__init__(clock, access.fetch, key, settings.cache_s, settings.cache_refusals)
        self.settings = settings
        self.permissions: HttpPermissions | None = None  # None: they are those of the accounts here
        if settings.asks_permissions:
            self.permissions = HttpPermissions(settings, clock, timers, access)
        self._access = access

    def request(self, name: str, secret: bytes) -> HttpRequest:
        assert self.settings.user_path is not None, "only then it is made"
        fields = (("username", name.encode("utf-8", "replace")), ("password", secret))
        return request(self.settings, self.settings.user_path, fields)

    def decided(self, name: str, outcome: Outcome) -> User | None:
        allowed, tags = decision(outcome)
        if not allowed:
            return None
        grants = None if self.permissions is None else RemoteGrants(self.permissions, name)
        return admitted(self._access, name, tags, grants)


class HttpPermissions(RemotePermissions):
    """The permissions that one server knows."""

    def __init__(self, settings: HttpAuthSettings, clock: Clock, timers: Timers, access: Accounts) -> None:
        super().__init__(access, clock, timers, settings.cache_s, settings.cache_refusals)
        self._settings = settings

    def applies(self, about: str) -> bool:
        return about != TOPIC or self._settings.topic_path is not None

    def ask(self, question: Question, then: Callable[[bool | None], None]) -> None:
        def answered(outcome: Outcome) -> None:
            try:
                allowed, _ = decision(outcome)
            except NoAnswer as why:
                log.warning("refused, as there is no answer from the server: %s: %s", question.shown, why)
                then(None)
            else:
                then(allowed)

        path, fields = self._asked(question)
        self._access.fetch(request(self._settings, path, fields), answered)

    def _asked(self, question: Question) -> tuple[str, Fields]:
        """Return where to ask a question, and in which form."""
        settings = self._settings
        fields: list[tuple[str, bytes]] = []

        def add(name: str, value: str) -> None:
            fields.append((name, value.encode("utf-8", "surrogateescape")))

        add("username", question.user)
        add("vhost", question.virtual_host)
        if question.about == VIRTUAL_HOST:
            add("ip", question.address)
            path = settings.vhost_path
        else:
            add("resource", question.about)
            add("name", question.name)
            add("permission", question.permission)
            path = settings.resource_path
        if question.about == TOPIC:
            add("routing_key", question.key)
            path = settings.topic_path
        assert path is not None, "only then it is asked"
        return path, fields


def request(settings: HttpAuthSettings, url: str, fields: Fields) -> HttpRequest:
    """Return a request with these fields, as a form or in the URL."""
    encoded = urlencode(fields)
    method, headers, body = "POST", FORM, encoded.encode()
    if settings.http_method == "get":
        joint = "&" if "?" in url else "?"
        url, method, headers, body = f"{url}{joint}{encoded}", "GET", (), b""
    return HttpRequest(url, method, headers, body, settings.timeout_s, ANSWER_MAX, settings.tls)


def decision(outcome: Outcome) -> tuple[bool, list[str]]:
    """Return whether a server has allowed what it was asked, and the words after that. Raises NoAnswer."""
    if isinstance(outcome, NoResponse):
        raise NoAnswer(outcome.reason)
    if outcome.status not in ANSWERED:
        raise NoAnswer(f"the status is {outcome.status}")
    answer, *words = outcome.body.decode(errors="replace").lower().split()[: TAGS_MAX + 1] or [""]
    if answer not in ("allow", "deny"):
        raise NoAnswer("it says neither allow nor deny")
    return answer == "allow", words
