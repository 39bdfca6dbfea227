"""The audit log: the actor, origin, object and outcome of each administrative action, as one JSON object a line.

    logins, refusals, changes ── events ──┐
    requests over HTTP that change ───────┴─> Audit ──> a file that only its owner can read, or the log

Every change is logged. Of refusals only `RATE` lines a second are written, followed by the number of those left out:
otherwise a refused client could fill the disk. No line contains a password, a message, or the value of a parameter.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.guests import Guest
from leveret.observability.events import Event, EventListener
from leveret.observability.strict_json import strict
from leveret.security.guards import Bucket
from leveret.values import as_json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.values import Json, Table, Value

log: Final = logging.getLogger("leveret.audit")

TO_LOG: Final = "log"
PASSED_OVER: Final = ("channel.", "consumer.", "connection.")  # no changes; logins have events of their own
SUCCESS: Final = "user.authentication.success"
FAILURE: Final = "user.authentication.failure"
REFUSED: Final = "permission.refused"
LOGINS: Final = (SUCCESS, FAILURE)
RATE: Final = 50.0  # lines a second that any client can cause, on average
PATH_MAX: Final = 2048  # characters shown; a refused path may have 6000
METHOD_MAX: Final = 16
DETAILS_MAX: Final = 4096  # characters; more are left out
# Facts of the place, which the line has elsewhere, and facts that may be secret.
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
    """An append-only file. Raises OSError if it cannot be opened, at first or again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._opened()
        self._failed = False

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: str) -> None:
        """Append a line. A failure is logged, once until writing succeeds again: the broker goes on."""
        try:
            os.write(self._file, line.encode() + b"\n")
        except OSError as failure:
            if not self._failed:
                log.error("cannot write to %s: %s", self._path, failure.strerror)
            self._failed = True
        else:
            self._failed = False

    def reopen(self) -> None:
        """Open the path again, after the file was rotated away. Raises OSError, and then keeps the open file."""
        fresh = self._opened()
        os.close(self._file)
        self._file = fresh

    def close(self) -> None:
        os.close(self._file)


class Audit(EventListener, Guest):
    """Writes the audit log. `target` is `log` or a file's path. Raises OSError if the file cannot be opened."""

    rank: ClassVar[int] = 90  # what other guests do at the end is in it

    def __init__(self, broker: Broker, target: str) -> None:
        self.target = target
        self.suppressed = 0  # lines about refusals that were left out since the last one
        self._broker = broker
        self._file = None if target == TO_LOG else AuditFile(target)
        self._bucket = Bucket(RATE, broker.now)
        broker.events.listeners.append(self)

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
        """Log an HTTP request that changes something; called when it has been answered."""
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
        text = strict(json.dumps(line))
        if self._file is None:
            log.info(text)
        else:
            self._file.write(text)

    def _fed(self) -> tuple[str, str]:
        """Return the name and protocol of the connection whose input is being handled."""
        operations = self._broker.operations
        fed = None if operations is None else operations.fed
        if fed is None or fed.front is None:
            return "", ""
        facts = fed.front.facts()
        return fed.peer.name, "HTTP" if facts is None else facts.protocol

    def reopen(self) -> None:
        """Reopen the file. Raises OSError, and then goes on with the file that is open."""
        if self._file is not None:
            self._file.reopen()

    def close(self) -> None:
        """Listen to nothing more, and close the file."""
        self._broker.events.listeners.remove(self)
        if self._file is not None:
            self._file.close()


def said(value: Value) -> str:
    return value if isinstance(value, str) else ""


def object_of(action: str, facts: Table) -> str:
    """Return the name of the object that an action was applied to."""
    if "source_name" in facts:
        return f"{said(facts['source_name'])} -> {said(facts.get('destination_name'))}"
    if action == REFUSED:
        return said(facts.get("object"))
    return said(facts.get("name", facts.get("user", facts.get("username"))))


def details(facts: Table) -> Json:
    """Return the other facts of an event; None if there are none, or too many."""
    told = {name: as_json(value) for name, value in facts.items() if name not in ELSEWHERE}
    return told if len(json.dumps(told)) <= DETAILS_MAX and told.keys() - {"name"} else None
