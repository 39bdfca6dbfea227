"""Where the broker is and who asks, once for all jobs: as options of `format("amqp")`, and as an asker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from pipeline.client import Client
from pipeline.options import Options, Use, read_options

ENDPOINT: Final = "http://127.0.0.1:15672"


@attrs.frozen
class Reach:
    """A broker, a virtual host in it, and a user. The password is where docs/spark.md says, and not here."""

    endpoint: str = ENDPOINT
    vhost: str = "/"
    user: str = "guest"
    password_file: str | None = None
    ca_file: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """As `format("amqp")` takes them, for reading and for writing."""
        found = {"endpoints": self.endpoint, "vhost": self.vhost, "username": self.user}
        if self.password_file is not None:
            found["passwordFile"] = self.password_file
        if self.ca_file is not None:
            found["tls.caFile"] = self.ca_file
        return found

    def reading(self, sources: Sequence[str], more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Options of a read of these streams and queues; `more` wins."""
        return {**self.options, "subscribe": ",".join(sources), **(more or {})}

    def checked(self, sources: Sequence[str], more: Mapping[str, str] | None = None) -> Options:
        """The same, as a streaming read takes them. Raises BadOption."""
        return read_options(self.reading(sources, more), Use.STREAM)

    def client(self, retry_s: int | None = None) -> Client:
        """Whom to ask about any stream. Raises PipelineError."""
        more = {} if retry_s is None else {"retrySeconds": str(retry_s)}
        return Client(self.checked(["*"], more))
