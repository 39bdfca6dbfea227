"""A registry of schemas in memory, as far as it is asked here, with faults on demand."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    """Schemas by id, and those that others refer to by subject and version."""

    def __init__(self) -> None:
        self.url = ""
        self.schemas: dict[int, dict[str, object]] = {}
        self.subjects: dict[tuple[str, str], dict[str, object]] = {}
        self.asked: list[str] = []
        self.allowed: str | None = None  # the header that lets in; None: everybody
        self.faults: list[int] = []  # statuses of the next answers

    def avro(self, number: int, schema: object, references: tuple[str, ...] = ()) -> None:
        self.schemas[number] = {"schema": json.dumps(schema), "references": _references(references)}

    def json(self, number: int, schema: object) -> None:
        self.schemas[number] = {"schema": json.dumps(schema), "schemaType": "JSON"}

    def protobuf(self, number: int, file: Any, references: tuple[str, ...] = ()) -> None:
        self.schemas[number] = {**_serialized(file), "references": _references(references)}

    def answer(self, target: str, authorization: str | None) -> tuple[int, dict[str, object]]:
        self.asked.append(target)
        if self.faults:
            return self.faults.pop(0), {}
        if self.allowed is not None and authorization != self.allowed:
            return 401, {}
        parts = [unquote(part) for part in urlsplit(target).path.split("/")]
        found = (
            self.schemas.get(int(parts[3]))
            if parts[1] == "schemas"
            else self.subjects.get((parts[2], parts[4]))
        )
        return (404, {"error_code": 40403}) if found is None else (200, found)


def _serialized(file: Any) -> dict[str, object]:
    return {"schema": base64.b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}


def _references(names: tuple[str, ...]) -> list[dict[str, object]]:
    return [{"name": name, "subject": f"of {name}", "version": 1} for name in names]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, registry: FakeRegistry, *args: Any) -> None:
        self._registry = registry
        super().__init__(*args)

    def do_GET(self) -> None:
        status, content = self._registry.answer(self.path, self.headers["Authorization"])
        octets = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)

    def log_message(self, *args: object) -> None:
        """Be quiet."""


@contextmanager
def serving() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, registry))
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
