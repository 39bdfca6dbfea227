"""Try a failover under load: publish one by one through all nodes, kill the owner, and count what is found afterwards.

Messages go over the HTTP API, whose answer to a durable message comes after it is on disk: an answer is a confirm. Each
message has a name of its own, so that none is counted twice, and a missing one is known by name.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

QUEUE: Final = "leveret-failover"
WORKERS: Final = 4
BEFORE_S: Final = 2.0  # of load before the owner is killed
AFTER_S: Final = 2.0  # and after another one has confirmed
GIVE_UP_S: Final = 60.0
TIMEOUT_S: Final = 3.0
AGAIN_S: Final = 0.02
TAKEN_AT_ONCE: Final = 2000


@attrs.frozen
class DrillResult:
    """The outcome of a failover under load."""

    confirmed: int
    found: int  # of those that were confirmed
    unconfirmed: int  # found, though no answer came
    twice: int  # found more than once
    pause_s: float  # from the kill to the next confirm

    @property
    def lost(self) -> int:
        return self.confirmed - self.found


class DrillClient:
    """A connection to one of several nodes over HTTP, and to the next one after a failure."""

    def __init__(self, ports: Sequence[int], user: str, password: str) -> None:
        self._ports = ports
        self._at = 0
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(),
            "Content-Type": "application/json",
        }
        self._line: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, content: Mapping[str, object] | None = None) -> object:
        """Return the answer's JSON. Raises OSError if there was none, or the request was refused."""
        try:
            if self._line is None:
                port = self._ports[self._at % len(self._ports)]
                self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
            body = None if content is None else json.dumps(content)
            self._line.request(method, path, body, self._headers)
            answer = self._line.getresponse()
            reply = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._at += 1
            raise OSError(str(error)) from None
        if answer.status >= 300:
            raise OSError(f"{method} {path}: {answer.status} {reply[:200]!r}")
        return json.loads(reply) if reply else None

    def patiently(self, method: str, path: str, content: Mapping[str, object] | None = None) -> object:
        """Ask again until there is an answer. Raises OSError after a minute."""
        until = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return self.ask(method, path, content)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(AGAIN_S)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class FailoverDrill:
    """A failover under load, from the first message to the count."""

    def __init__(self, ports: Sequence[int], user: str, password: str) -> None:
        """`ports` are those of the nodes' HTTP endpoints on this machine."""
        self._ports = ports
        self._login = user, password
        self._confirmed: set[str] = set()
        self._confirmed_at = 0.0
        self._over = threading.Event()
        self._again = threading.Event()  # something was confirmed after the kill
        self._killed_at = float("inf")

    def run(self, kill: Callable[[str], None], tell: Callable[[str], None]) -> DrillResult:
        """Run the drill; `kill` ends the node of that name. Raises OSError."""
        client = self._new_client(0)
        path = f"/api/queues/%2F/{QUEUE}"
        client.patiently("PUT", path, {"durable": True, "arguments": {}})
        client.patiently("DELETE", path + "/contents")
        workers = [threading.Thread(target=self._publish, args=(n,), daemon=True) for n in range(WORKERS)]
        for worker in workers:
            worker.start()
        time.sleep(BEFORE_S)
        state = client.patiently("GET", "/api/cluster")
        owner = str(state["owner"]) if isinstance(state, dict) else ""
        tell(f"{len(self._confirmed)} messages confirmed so far; killing node {owner}")
        kill(owner)
        self._killed_at = time.monotonic()
        if not self._again.wait(GIVE_UP_S):
            raise OSError("no other node has confirmed anything for a minute")
        pause_s = self._confirmed_at - self._killed_at
        tell(f"confirmed again after {pause_s:.2f} s")
        time.sleep(AFTER_S)
        self._over.set()
        for worker in workers:
            worker.join(2 * TIMEOUT_S)
        found = self._found(client, path)
        client.patiently("DELETE", path)
        client.close()
        names = set(found)
        return DrillResult(
            len(self._confirmed),
            len(self._confirmed & names),
            len(names - self._confirmed),
            len(found) - len(names),
            pause_s,
        )

    def _new_client(self, at: int) -> DrillClient:
        return DrillClient([*self._ports[at:], *self._ports[:at]], *self._login)

    def _publish(self, worker: int) -> None:
        """Publish one message after the other; one without an answer is not sent again, but counted if it is found."""
        client = self._new_client(worker % len(self._ports))
        number = 0
        while not self._over.is_set():
            number += 1
            name = f"{worker}-{number}"
            content = {
                "properties": {"delivery_mode": 2},
                "routing_key": QUEUE,
                "payload": name,
                "payload_encoding": "string",
            }
            sent_at = time.monotonic()
            try:
                client.ask("POST", "/api/exchanges/%2F/amq.default/publish", content)
            except OSError:
                time.sleep(AGAIN_S)
                continue
            self._confirmed.add(name)
            if sent_at > self._killed_at and not self._again.is_set():
                self._confirmed_at = time.monotonic()
                self._again.set()
        client.close()

    def _found(self, client: DrillClient, path: str) -> list[str]:
        found: list[str] = []
        query = {"count": TAKEN_AT_ONCE, "ackmode": "ack_requeue_false", "encoding": "auto"}
        while True:
            some = client.patiently("POST", path + "/get", query)
            if not isinstance(some, list) or not some:
                return found
            found += [str(each["payload"]) for each in some]
