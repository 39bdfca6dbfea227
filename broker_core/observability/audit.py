"""The audit log: who did what, from where, and whether he was let. One JSON object a line.

    logins, refusals, changes ── events ──┐
    requests over HTTP that change ───────┴─> Audit ──> a file for nobody else's eyes, or the log

Changes are all there. Of what was refused only so many lines a second are written, and then how many were not: whoever
is refused would fill the disk otherwise. No password is in any of it, no message, and no value of a parameter.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from broker_core.observability.events import Event, Listener
from broker_core.operations import as_json
from broker_core.security.guards import Bucket

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.values import Json, Table, Value

log: Final = logging.getLogger("leveret.audit")

TO_LOG: Final = "log"
PASSED_OVER: Final = ("channel.", "consumer.", "connection.")  # no changes; who logs in is told otherwise
SUCCESS: Final = "user.authentication.success"
FAILURE: Final = "user.authentication.failure"
REFUSED: Final = "permission.refused"
LOGINS: Final = (SUCCESS, FAILURE)
RATE: Final = 50.0  # lines a second that anybody can cause, on average
PATH_MAX: Final = 2048  # characters, of those that are refused may have six thousand
METHOD_MAX: Final = 16
DETAILS_MAX: Final = 4096  # characters; more are left out
# Facts that say where, not what; and such as may be somebody's secret.
ELSEWHERE: Final = frozenset(
    (
        "vhost",
        "value",
        "connection_name",
        "connection_type",
        "peer_host",
        "peer_port",
        "host",
        "port",
        "protocol",
        "error",
        "user_who_performed_action",
    )
)


class AuditFile:
    """A file that is only added to. Raises OSError when it is made, and when it is opened again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._opened()
        self._failed = False

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: str) -> None:
        """What cannot be written is said in the log, once until it can be again: the broker goes on."""
        try:
            os.write(self._file, line.encode() + b"\n")
        except OSError as failure:
            if not self._failed:
                log.error("cannot write to %s: %s", self._path, failure.strerror)
            self._failed = True
        else:
            self._failed = False

    def reopen(self) -> None:
        """The file may have been moved away."""
        fresh = self._opened()
        os.close(self._file)
        self._file = fresh

    def close(self) -> None:
        os.close(self._file)


class Audit(Listener):
    """Writes it. `target`: `log`, or a file's path. Raises OSError."""

    def __init__(self, broker: Broker, target: str) -> None:
        self.target = target
        self.suppressed = 0  # lines about refusals, since one was last written
        self._broker = broker
        self._file = None if target == TO_LOG else AuditFile(target)
        self._bucket = Bucket(RATE, broker.now)

    def on_event(self, event: Event) -> None:
        facts = event.facts
        if event.name in LOGINS or event.name == REFUSED:
            if not self._may_write():
                return
        elif event.name.startswith(PASSED_OVER):
            return
        outcome = "refused" if event.name in (FAILURE, REFUSED) else "ok"
        actor = said(facts.get("user" if event.name == REFUSED else "name"))
        self._write(
            actor if event.name in LOGINS or event.name == REFUSED else event.actor,
            said(facts.get("connection_name")),
            said(facts.get("protocol")),
            event.name,
            object_of(event.name, facts),
            outcome,
            {"vhost": event.virtual_host, "reason": said(facts.get("error")), "details": details(facts)},
        )

    def requested(self, actor: str, peer: str, method: str, path: str, status: int) -> None:
        """A request over HTTP that changes something has been answered."""
        refused = status >= 400
        if refused and not self._may_write():
            return
        more: dict[str, Json] = {"status": status}
        shown = path if len(path) <= PATH_MAX else f"{path[:PATH_MAX]}..."
        self._write(
            actor,
            peer,
            "HTTP",
            f"http.{method[:METHOD_MAX].lower()}",
            shown,
            "refused" if refused else "ok",
            more,
        )

    def _may_write(self) -> bool:
        if not self._bucket.take(RATE, self._broker.now):
            self.suppressed += 1
            return False
        if self.suppressed:
            suppressed, self.suppressed = self.suppressed, 0
            self._write("", "", "", "audit.suppressed", "", "refused", {"count": suppressed})
        return True

    def _write(
        self,
        actor: str,
        peer: str,
        protocol: str,
        action: str,
        object_: str,
        outcome: str,
        more: dict[str, Json],
    ) -> None:
        if not peer:
            peer, protocol = self._fed()
        wall = datetime.fromtimestamp(self._broker.clock.wall(), UTC)
        line: dict[str, Json] = {
            "time": wall.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "actor": actor,
            "peer": peer,
            "protocol": protocol,
            "action": action,
            "object": object_,
            "outcome": outcome,
            **{name: value for name, value in more.items() if value not in ("", None)},
        }
        text = json.dumps(line)
        if self._file is None:
            log.info(text)
        else:
            self._file.write(text)

    def _fed(self) -> tuple[str, str]:
        """Whose input is being worked off, and what he speaks."""
        operations = self._broker.operations
        fed = None if operations is None else operations.fed
        if fed is None or fed.front is None:
            return "", ""
        facts = fed.front.facts()
        return fed.peer.name, "HTTP" if facts is None else facts.protocol

    def reopen(self) -> None:
        """Raises OSError; then it goes on with the file that it has."""
        if self._file is not None:
            self._file.reopen()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def said(value: Value) -> str:
    return value if isinstance(value, str) else ""


def object_of(action: str, facts: Table) -> str:
    """What it was done to, in a word."""
    if "source_name" in facts:
        return f"{said(facts['source_name'])} -> {said(facts.get('destination_name'))}"
    if action == REFUSED:
        return said(facts.get("object"))
    return said(facts.get("name", facts.get("user", facts.get("username"))))


def details(facts: Table) -> Json:
    """What else there is to know; None if that is nothing, or too much."""
    told = {name: as_json(value) for name, value in facts.items() if name not in ELSEWHERE}
    return told if len(json.dumps(told)) <= DETAILS_MAX and told.keys() - {"name"} else None
