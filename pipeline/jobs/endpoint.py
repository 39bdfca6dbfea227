"""The connection of all jobs to a broker: as options of `format("amqp")`, and as clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from leveret.pipeline.client import Client
from leveret.pipeline.options import Connection, Options, Use, read_options

ENDPOINT: Final = "http://127.0.0.1:15672"
NAMES: Final = frozenset(field.metadata["name"].lower() for field in attrs.fields(Connection))


@attrs.frozen
class BrokerEndpoint:
    """A broker, a virtual host in it, and a user. The password is not here, but where docs/spark.md says."""

    endpoint: str = ENDPOINT
    vhost: str = "/"
    user: str = "guest"
    password_file: str | None = None
    ca_file: str | None = None
    more: Mapping[str, str] = {}  # any options of `leveret.pipeline.options.Connection`

    @property
    def options(self) -> dict[str, str]:
        """The options of `format("amqp")`, for reading and for writing."""
        found = {"endpoints": self.endpoint, "vhost": self.vhost, "username": self.user}
        if self.password_file is not None:
            found["passwordFile"] = self.password_file
        if self.ca_file is not None:
            found["tls.caFile"] = self.ca_file
        return {**found, **self.more}

    def reading(self, sources: Sequence[str], more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the options of a read of these streams and queues; `more` overrides them."""
        return {**self.options, "subscribe": ",".join(sources), **(more or {})}

    def checked(self, sources: Sequence[str], more: Mapping[str, str] | None = None) -> Options:
        """Return the same options, checked for a streaming read. Raises BadOption."""
        return read_options(self.reading(sources, more), Use.STREAM)

    def quick(self, retry_s: int = 5) -> Options:
        """Return options for requests that a person waits for. Raises BadOption."""
        return read_options({"retrySeconds": str(retry_s), **self.reading(["*"])}, Use.STREAM)

    def client(self) -> Client:
        """Return a client for such requests. Raises PipelineError."""
        return Client(self.quick())


def is_about_connection(option: str) -> bool:
    return option.lower() in NAMES
