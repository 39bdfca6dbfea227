"""The section about an HTTP server that says whose passwords are right, and what users may do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import ClassVar

import attrs

from leveret.config.records import Record, RecordOf, key
from leveret.config.tls import SYSTEM, PeerTlsSettings
from leveret.config.types import Flag, OneOf, Problem, Whole
from leveret.config.urls import HttpUrl


def remembered_s() -> int:
    """Return the setting of a section about a server: how long its answers are remembered, in seconds."""
    return key(
        Whole(0, 86_400),
        "Seconds that an answer is remembered; 0: it is not. Fewer where changes have to hold sooner, more to ask "
        "less often.",
        60,
        reload=True,
    )


def remembered_refusals() -> bool:
    """Return the setting of such a section: whether refusals are remembered, too."""
    return key(
        Flag(),
        "Whether refusals are remembered, too. True where clients that are refused keep asking.",
        False,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class HttpAuthSettings(Record):
    """A server that checks names and passwords, as RabbitMQ's `rabbitmq_auth_backend_http` asks it, where
    `security.backends` names `http`. With a `vhost_path` and a `resource_path` it is also asked what these users may
    do, instead of the permissions here; that needs the extra `permissions`: `pip install "leveret[permissions]"`.
    """

    renamed: ClassVar[Mapping[str, str]] = {"ca_file": "tls.ca"}

    user_path: str | None = key(
        HttpUrl(), "The URL that is asked about a name and a password.", None, reload=True
    )
    vhost_path: str | None = key(
        HttpUrl(), "The URL that is asked whether a user may enter a virtual host.", None, reload=True
    )
    resource_path: str | None = key(
        HttpUrl(),
        "The URL that is asked whether a user may configure, write to or read from an exchange or queue.",
        None,
        reload=True,
    )
    topic_path: str | None = key(
        HttpUrl(),
        "The URL that is asked about each routing key on a topic exchange; without it, every key is allowed.",
        None,
        reload=True,
    )
    http_method: str = key(
        OneOf("post", "get"),
        "Whether name and password are sent as a form, or in the URL, where servers often log them. The latter for "
        "servers that take nothing else.",
        "post",
        reload=True,
    )
    tls: PeerTlsSettings = key(RecordOf(PeerTlsSettings), "TLS with the server.", SYSTEM)
    timeout_s: int = key(
        Whole(1, 60),
        "Seconds that the server has for an answer. More for a slow one, on which logins wait.",
        5,
        reload=True,
    )
    cache_s: int = remembered_s()
    cache_refusals: bool = remembered_refusals()

    @property
    def asks_permissions(self) -> bool:
        """True if the server is asked what users may do."""
        return self.resource_path is not None

    def contradictions(self) -> Iterator[Problem]:
        if (self.vhost_path is None) != (self.resource_path is None):
            missing = "vhost_path" if self.vhost_path is None else "resource_path"
            yield Problem(missing, "nothing", "a URL, as the server is asked for permissions")
        elif self.topic_path is not None and not self.asks_permissions:
            yield Problem("resource_path", "nothing", "a URL, as the server is asked for permissions")
        if self.asks_permissions and find_spec("greenlet") is None:
            yield Problem(
                "resource_path", "a URL, but no greenlet", 'the extra: pip install "leveret[permissions]"'
            )
