"""One pipeline of the configuration file: a process that archives to a table, and is started again when it ends.

    starting ── it tells what there is to read ──> running ── it ends ──> terminated ── after a while ──> starting

The process is an ordinary client of this node's HTTP endpoint: `leveret pipeline archive ... --continuous`. It ends by
itself when its standard input does, so it does not outlive a node that was killed. What it tells goes to the log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from leveret.config.tls import SYSTEM
from leveret.features.transfers.transfer import START_S, delay_s
from leveret.operations import Listening, Program

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.config.sections import PipelineEntry
    from leveret.config.tls import PeerTlsSettings

log: Final = logging.getLogger("leveret.pipeline")

STARTING, RUNNING, TERMINATED = "starting", "running", "terminated"
HTTP: Final = "http"
RESTART_S: Final = 1.0  # until a process that has ended is started again; it doubles up to a minute
STEADY_S: Final = 60.0  # a process that has run so long has not failed at once
TOLD: Final = "archive: "  # how lines of its progress begin
ERROR: Final = "leveret: "  # how the line begins that says why it ends
NO_ENDPOINT: Final = "this node has no listener for http over TCP: name an endpoint"
LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def endpoint_at(listeners: Iterable[Listening]) -> str | None:
    """Return the URL of the node's own HTTP endpoint, one without TLS if there is one; None if there is none."""
    found = [each for each in listeners if HTTP in each.protocols and each.port]
    found.sort(key=lambda each: not each.plain)
    for each in found:
        host = LOOPBACK.get(each.host, each.host)
        shown = f"[{host}]" if ":" in host else host
        return f"{HTTP if each.plain else 'https'}://{shown}:{each.port}"
    return None


def words_of(entry: PipelineEntry, endpoint: str) -> Iterator[str]:
    """Yield the arguments of the process. A password is in none of them, only the name of its file."""
    yield from (sys.executable, "-m", "leveret", "pipeline", "archive", "--continuous", "--with-input")
    given = {
        "name": entry.title,
        "engine": "pyarrow",
        "endpoint": endpoint,
        "vhost": entry.virtual_host,
        "user": entry.user,
        "password-file": entry.password_file,
        "ca-file": entry.tls.ca,
        "every": f"{round(entry.every * 1000)}ms",
        "batch": entry.batch,
        "format": entry.format,
        "catalog": entry.catalog,
        "decode": entry.decode,
        "schema": entry.schema,
        "message": entry.message,
        "registry": entry.registry,
        "registry-user": entry.registry_user,
        "registry-password-file": entry.registry_password_file,
        "registry-token-file": entry.registry_token_file,
        "registry-ca-file": entry.registry_ca_file,
        "decode-prefix": entry.decode_prefix,
        "undecoded": entry.undecoded,
        "starting": entry.starting,
        "partition-by": ",".join(entry.partition_by) or "none",
        "reader": entry.reader,
        "checkpoint": entry.checkpoint,
    }
    for name, value in given.items():
        if value is not None:
            yield f"--{name}={value}"
    if entry.without_body:
        yield "--without-body"
    for name, option in {**_of_tls(entry.tls), **entry.options}.items():
        yield f"--option={name}={_text(option)}"
    yield from ("--", *entry.sources, entry.target)


def _of_tls(tls: PeerTlsSettings) -> dict[str, object]:
    """Return the options of the source for TLS that differ from its own, besides the certificates to trust."""
    version = None if tls.minimum_version == SYSTEM.minimum_version else tls.minimum_version
    given = {"certFile": tls.certificate, "keyFile": tls.private_key, "minimumVersion": version}
    return {f"tls.{name}": value for name, value in given.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class SupervisedPipeline(Program):
    """A pipeline, and the process that does its work."""

    def __init__(self, broker: Broker, entry: PipelineEntry) -> None:
        self.entry = entry
        self.state = STARTING
        self.changed_at = broker.clock.wall()  # seconds since the epoch
        self.starts = 0
        self._broker = broker
        self._end: Callable[[], None] | None = None  # has the process end
        self._timer: Timer | None = None
        self._failures = 0  # in a row
        self._since = 0.0  # when the process was started
        self._is_stopped = False
        self._before: SupervisedPipeline | None = None  # it waits for the process of this one to end
        self._successor: SupervisedPipeline | None = None
        self._last_error = ""
        self._reason = ""

    @property
    def described(self) -> str:
        return f"pipeline '{self.entry.title}' in vhost '{self.entry.virtual_host}'"

    @property
    def reason(self) -> str:
        """The reason why it has ended the last time, until it runs again."""
        return "" if self.state == RUNNING else self._reason

    def begin(self) -> None:
        """Start soon: at the start of a node, when it listens."""
        self._before = None
        if self._is_stopped:
            return
        self._timer = self._broker.timers.at(self._broker.now + START_S, self.start)

    def start(self, now: float) -> None:
        self._timer = None
        self._set(STARTING)
        operations = self._broker.operations
        endpoint = self.entry.endpoint
        if endpoint is None and operations is not None:
            endpoint = endpoint_at(operations.listeners())
        if operations is None or endpoint is None:
            self.on_end(NO_ENDPOINT)
            return
        self._since, self._last_error = now, ""
        self.starts += 1
        self.arguments = tuple(words_of(self.entry, endpoint))
        self._end = operations.launch(self)

    def stop(self) -> None:
        """Have the process end after its micro-batch, and start no other."""
        self._is_stopped = True
        self._broker.timers.cancel(self._timer)
        self._timer = None
        if self._end is not None:
            self._end()

    def begin_after(self, before: SupervisedPipeline) -> None:
        """Begin once the process of a stopped pipeline to the same table has ended: it holds the checkpoint."""
        if before._before is not None:  # which has not begun either
            before = before._before
        if before._end is None:
            self.begin()
        else:
            self._before, before._successor = before, self

    def on_line(self, line: str) -> None:
        if line.startswith(ERROR):
            self._last_error = line.removeprefix(ERROR)
            return
        if line.startswith(TOLD) and self.state == STARTING:
            self._set(RUNNING)
        log.info("%s: %s", self.described, line.removeprefix(TOLD))

    def on_end(self, how: str) -> None:
        self._end = None
        if self._is_stopped:
            log.info("%s has ended", self.described)
            if self._successor is not None:
                self._successor.begin()
            return
        now = self._broker.now
        self._failures = 1 if now - self._since >= STEADY_S else self._failures + 1
        self._reason, wait_s = self._last_error or how, delay_s(RESTART_S, self._failures)
        self._set(TERMINATED)
        log.warning("%s has ended, and begins again in %g s: %s", self.described, wait_s, self._reason)
        self._timer = self._broker.timers.at(now + wait_s, self.start)

    def _set(self, state: str) -> None:
        self.state = state
        self.changed_at = self._broker.clock.wall()
