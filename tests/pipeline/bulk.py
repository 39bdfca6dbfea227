"""A broker's bulk access as the source needs it, with blocks in memory, and faults on demand."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from leveret.durable.store.block import Block, header, pack
from leveret.durable.store.contract import Append
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp091.codec.wire import BasicProperties

FACTS = Facts(durable=True)
ROOT = "/api/leveret/streams/"
LEASES = "/api/leveret/leases/"
PIPELINES = "/api/leveret/pipelines/"
QUEUED_MS = 500  # when the first message came into a queue; each one a millisecond after the one before


def message(body: bytes, exchange: str = "", key: str = "orders", **properties: object) -> Message:
    octets = BasicProperties(**properties).encode()  # type: ignore[arg-type]
    return Message(AMQP091, exchange, key, octets, body, FACTS)


def block(
    first: int,
    *messages: Message,
    arrived: int = 1_000,
    positions: Sequence[int] | None = None,
    arrivals: Sequence[int] | None = None,
) -> bytes:
    """`positions`: as a lease has them, twice the place in the queue, and 1 for a message that was delivered before;
    `arrivals`: when each came into the queue."""
    append = Append(1, first, first, arrived, list(messages))
    if arrivals is not None:
        append.arrivals = array("Q", arrivals)
    if positions is not None:
        append.positions = array("Q", positions)
    return pack(append)


class FakeStream:
    """Blocks, oldest first."""

    def __init__(self, name: str, first: int = 0) -> None:
        self.name = name
        self.incarnation = f"{name}#1"
        self.first = self.next = first
        self.octets = 0
        self.blocks: list[bytes] = []

    def publish(self, *messages: Message, arrived: int = 1_000) -> None:
        """One commit."""
        self.blocks.append(block(self.next, *messages, arrived=arrived))
        self.next += len(messages)
        self.octets += sum(each.size for each in messages)

    def fill(self, count: int, commit: int = 100) -> None:
        """Messages whose bodies are their offsets."""
        until = self.next + count
        while self.next < until:
            upto = min(self.next + commit, until)
            self.publish(*(message(b"%d" % at, key=self.name) for at in range(self.next, upto)))

    def drop(self, until: int) -> None:
        """As retention: blocks that end at `until` or before go."""
        self.blocks = [each for each in self.blocks if header(each).next > until]
        self.first = header(self.blocks[0]).first if self.blocks else self.next

    def remake(self) -> None:
        """Deleted and declared again."""
        number = int(self.incarnation.split("#")[1])
        self.__init__(self.name)  # type: ignore[misc]
        self.incarnation = f"{self.name}#{number + 1}"

    def state(self) -> dict[str, object]:
        return {
            "name": self.name,
            "incarnation": self.incarnation,
            "first": self.first,
            "next": self.next,
            "messages": self.next - self.first,
            "octets": self.octets,
        }

    def chosen(self, first: int, until: int, octets: int) -> tuple[bytes, int]:
        """Whole blocks, one at least; and what to ask for next."""
        found, following = b"", first
        for each in self.blocks:
            head = header(each)
            if head.next > first and head.first < until and (not found or len(found) + len(each) <= octets):
                found += each
                following = head.next
            elif found:
                break
        return found, following


class FakeLease(FakeStream):
    """What one reader has of a queue."""

    def __init__(self, queue: FakeQueue, number: int) -> None:
        super().__init__(queue.name)
        self.queue = queue
        self.incarnation = f"{queue.name}!{number}"
        self.fence = 0

    def state(self) -> dict[str, object]:
        return {**super().state(), "queue": self.name, "ready": len(self.queue.ready)}

    def release(self) -> None:
        """Put everything back; in this fake, messages come back as numbers without properties."""
        for octets in self.blocks:
            head = header(octets)
            found = Block(octets)
            assert found.positions is not None
            for at in range(max(0, self.first - head.first), head.count):
                body = bytes(found.bodies[found.body_ends[at] : found.body_ends[at + 1]])
                self.queue.ready.append((found.positions[at] | 1, message(body, key=self.name)))
        self.queue.ready.sort(key=lambda each: each[0])
        self.settle(self.next)

    def settle(self, until: int) -> None:
        """As if all its messages had the same size."""
        until = max(self.first, until)
        self.octets = self.octets * (self.next - until) // max(1, self.next - self.first)
        self.first = until
        self.blocks = [each for each in self.blocks if header(each).next > self.first]

    def reserve(self, begin: int, messages: int, octets: int) -> None:
        self.settle(begin)
        octets -= self.octets
        most = min(begin + messages - self.next, self.queue.at_once)
        taken: list[tuple[int, Message]] = []
        while (
            self.queue.ready and len(taken) < most and (octets > 0 or (self.first == self.next and not taken))
        ):
            taken.append(self.queue.ready.pop(0))
            octets -= len(taken[-1][1].body)
        if taken:
            positions = [position for position, _ in taken]
            arrivals = [QUEUED_MS + (position >> 1) for position in positions]
            found = [each for _, each in taken]
            self.blocks.append(block(self.next, *found, positions=positions, arrivals=arrivals))
            self.octets += sum(each.size for _, each in taken)
            self.next += len(taken)


class FakeQueue:
    """A work queue, with its leases by reader."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: list[tuple[int, Message]] = []  # with a position, as blocks have it
        self.leases: dict[str, FakeLease] = {}
        self.published = self.opened = 0
        self.at_once = 1 << 30  # messages that one request reserves

    def publish(self, *messages: Message, redelivered: bool = False) -> None:
        for each in messages:
            self.ready.append((2 * self.published + redelivered, each))
            self.published += 1

    def fill(self, count: int) -> None:
        """Messages whose bodies are numbers."""
        self.publish(
            *(message(b"%d" % at, key=self.name) for at in range(self.published, self.published + count))
        )

    def lease(self, reader: str) -> FakeLease:
        """As opened: with another fence."""
        if reader not in self.leases:
            self.opened += 1
            self.leases[reader] = FakeLease(self, self.opened)
        self.leases[reader].fence += 1
        return self.leases[reader]


class FakeBroker:
    """What a handler serves, and what it was asked."""

    def __init__(self) -> None:
        self.streams: dict[str, FakeStream] = {}
        self.supers: dict[str, list[str]] = {}
        self.queues: dict[str, FakeQueue] = {}
        self.faults: list[int | str] = []  # for the next requests: a status, `cut` or `hang up`
        self.asked: list[str] = []
        self.body = b""  # of the last request
        self.pipelines: dict[str, dict[str, object]] = {}  # the last report of each
        self.connections = 0
        self.user = ("guest", "guest")
        self.url = ""

    def stream(self, name: str, first: int = 0) -> FakeStream:
        return self.streams.setdefault(name, FakeStream(name, first))

    def queue(self, name: str) -> FakeQueue:
        return self.queues.setdefault(name, FakeQueue(name))

    def super_stream(self, name: str, partitions: int) -> list[FakeStream]:
        self.supers[name] = [f"{name}-{number}" for number in range(partitions)]
        return [self.stream(each) for each in self.supers[name]]

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        if parts.path.startswith(LEASES):
            return self._of_lease("GET", parts.path, query)
        if parts.path.startswith(PIPELINES):
            return said(200, [{"name": name, **each} for name, each in self.pipelines.items()])
        _, *path = parts.path.removeprefix(ROOT).split("/")
        if not path:
            return said(200, [*map(self._listed, sorted({*self.streams, *self.supers}))])
        name = unquote(path[0])
        if name in self.supers and len(path) == 1:
            return said(
                200, {"name": name, "partitions": [self.streams[each].state() for each in self.supers[name]]}
            )
        stream = self.streams.get(name)
        if name in self.queues:
            return said(400, {"reason": f"queue '{name}' in vhost '/' is no stream", "is_queue": True})
        if stream is None:
            return said(404, {"reason": f"no stream '{name}'"})
        if len(path) == 1:
            return said(200, stream.state())
        if path[1] == "offset":
            return said(200, {"offset": self._offset(stream, int(query["timestamp"]))})
        return self._blocks(stream, query)

    def change(self, method: str, target: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        if parts.path.startswith(PIPELINES):
            self.pipelines[unquote(parts.path.split("/")[-1])] = json.loads(self.body)
            return said(200, {})
        return self._of_lease(method, parts.path, dict(parse_qsl(parts.query)))

    def _of_lease(self, method: str, path: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        _, name, reader, *verb = map(unquote, path.removeprefix(LEASES).split("/"))
        queue = self.queues.get(name)
        if queue is None:
            return said(404, {"reason": f"no queue '{name}'"})
        if method == "PUT":
            lease = queue.lease(reader)
            return said(200, {**lease.state(), "fence": lease.fence})
        found = queue.leases.get(reader)
        if found is None:
            return said(404, {"reason": f"no lease '{reader}'"})
        if "fence" in query and int(query["fence"]) != found.fence:
            return said(409, {"reason": "another one has it", "fenced": True})
        if verb == ["blocks"]:
            return self._blocks(found, query)
        if verb == ["release"]:
            found.release()
        if not verb or verb == ["release"]:
            return said(200, found.state())
        begin = int(query["from"] if verb == ["reserve"] else query["to"])
        if begin > found.next:
            return said(416, {"reason": f"the lease ends at {found.next}"})
        if verb == ["settle"]:
            found.settle(begin)
        elif begin < found.first:
            return said(410, {"first": found.first, "next": found.next})
        else:
            found.reserve(begin, int(query["messages"]), int(query["octets"]))
        return said(200, found.state())

    def _listed(self, name: str) -> dict[str, object]:
        if name in self.supers:
            return {"name": name, "partitions": self.supers[name]}
        return self.streams[name].state()

    @staticmethod
    def _offset(stream: FakeStream, timestamp: int) -> int:
        heads = map(header, stream.blocks)
        return next((head.first for head in heads if head.arrived >= timestamp), stream.next)

    @staticmethod
    def _blocks(stream: FakeStream, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        first, until = int(query["from"]), int(query["until"])
        if query.get("incarnation", stream.incarnation) != stream.incarnation:
            return said(409, {"reason": "another incarnation", "incarnation": stream.incarnation})
        if first < stream.first:
            return said(410, {"first": stream.first, "next": stream.next})
        if first > stream.next:
            return said(416, {"reason": f"the stream ends at {stream.next}"})
        octets, following = stream.chosen(first, until, int(query["max_octets"]))
        headers = {"Content-Type": "application/vnd.leveret.blocks", "Leveret-Next": str(following)}
        return 200, headers, octets


def said(status: int, content: object) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()


@contextmanager
def serving(broker: FakeBroker, tls: ssl.SSLContext | None = None) -> Iterator[FakeBroker]:
    """On a port of its own, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            broker.connections += 1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(broker.answer)

        def do_PUT(self) -> None:
            self._answer(partial(broker.change, "PUT"))

        def do_POST(self) -> None:
            self._answer(partial(broker.change, "POST"))

        def do_DELETE(self) -> None:
            self._answer(partial(broker.change, "DELETE"))

        def _answer(self, answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> None:
            broker.asked.append(self.path)
            broker.body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            credentials = base64.b64encode(":".join(broker.user).encode()).decode()
            fault = broker.faults.pop(0) if broker.faults else None
            if fault == "hang up":
                self.close_connection = True
                return
            if isinstance(fault, int):
                status, headers, octets = said(fault, {"reason": "a fault"})
            elif self.headers["Authorization"] != f"Basic {credentials}":
                status, headers, octets = said(401, {"reason": "not you"})
            else:
                status, headers, octets = answer(self.path)
            self.send_response(status)
            for name, value in (*headers.items(), ("Content-Length", str(len(octets)))):
                self.send_header(name, value)
            self.end_headers()
            if fault == "cut":
                self.close_connection = True
                octets = octets[: len(octets) // 2]
            self.wfile.write(octets)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that is not let in is no news."""

        def finish_request(self, request: object, client_address: object) -> None:
            """In a thread of its own, where a handshake may take its time."""
            if tls is None:
                super().finish_request(request, client_address)  # type: ignore[arg-type]
                return
            with tls.wrap_socket(request, server_side=True) as wrapped:  # type: ignore[arg-type]
                super().finish_request(wrapped, client_address)  # type: ignore[arg-type]

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    broker.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield broker
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def bodies(rows: Sequence[dict[str, object]]) -> list[object]:
    return [row["body"] for row in rows]
