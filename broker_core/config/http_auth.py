"""The section about an HTTP server that says whose passwords are right."""

from __future__ import annotations

from pathlib import Path

import attrs

from broker_core.config.records import Record, key
from broker_core.config.types import FilePath, Flag, OneOf, Whole
from broker_core.config.urls import HttpUrl


@attrs.frozen(kw_only=True)
class HttpAuthSettings(Record):
    """A server that checks names and passwords, as RabbitMQ's `rabbitmq_auth_backend_http` asks it, where
    `security.backends` names `http`.
    """

    user_path: str | None = key(
        HttpUrl(), "The URL that is asked about a name and a password.", None, reload=True
    )
    http_method: str = key(
        OneOf("post", "get"),
        "Whether name and password are sent as a form, or in the URL, where servers often log them.",
        "post",
        reload=True,
    )
    ca_file: Path | None = key(
        FilePath(),
        "The CAs that the server's certificate may have, in PEM; without it those of the system.",
        None,
        reload=True,
    )
    timeout_s: int = key(Whole(1, 60), "Seconds that the server has for an answer.", 5, reload=True)
    cache_s: int = key(
        Whole(0, 86_400), "Seconds that an answer is remembered; 0: it is not.", 60, reload=True
    )
    cache_refusals: bool = key(Flag(), "Whether refusals are remembered, too.", False, reload=True)
