"""A REST catalogue of Iceberg on this machine: the requests that pyiceberg makes, answered from a catalogue in SQLite.

It refuses whoever has not the token, and commits whose requirements do not hold, with the codes of the specification.

Source: Iceberg's REST catalogue specification (`rest-catalog-open-api.yaml`): config, namespaces, tables.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from tests.pipeline.archiver import NAME

TOKEN: Final = "rest-token-hush"
ABSENT: Final = {"location": None, "partition-spec": None, "write-order": None}  # fields that may be left out
CODES: Final = {
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class Catalogue:
    """What is in the catalogue, and what it was asked for."""

    def __init__(self, folder: Path, house: str) -> None:
        uri = f"sqlite:///{folder / 'rest.db'}"
        self._behind = SqlCatalog("rest", uri=uri, warehouse=house)
        self._lock = threading.Lock()
        self.lost = 0  # commits of which the answer gets lost
        self.commits = 0

    def answer(self, method: str, path: list[str], octets: bytes) -> tuple[int, dict[str, Any]]:
        with self._lock:
            try:
                return self._answer(method, path, octets)
            except tuple(CODES) as error:
                code = CODES[type(error)]
                said = {"message": str(error), "type": type(error).__name__, "code": code}
                return code, {"error": said}

    def _answer(self, method: str, path: list[str], octets: bytes) -> tuple[int, dict[str, Any]]:
        match method, path:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                given = json.loads(octets)
                self._behind.create_namespace(tuple(given["namespace"]), given["properties"])
                return 200, {"namespace": given["namespace"], "properties": {}}
            case "POST", ["namespaces", namespace, "tables"]:
                return 200, self._made(
                    namespace, CreateTableRequest.model_validate({**ABSENT, **json.loads(octets)})
                )
            case "GET", ["namespaces", namespace, "tables", name]:
                return 200, of_table(self._behind.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables", name]:
                return self._committed(namespace, name, CommitTableRequest.model_validate_json(octets))
            case _:
                return 404, {"error": {"message": "no such route", "type": "NotFound", "code": 404}}

    def _made(self, namespace: str, asked: CreateTableRequest) -> dict[str, Any]:
        key = ((namespace, asked.name), asked.table_schema, asked.location)
        if not asked.stage_create:
            return of_table(self._behind.create_table(*key, properties=asked.properties))
        staged = self._behind._create_staged_table(*key, properties=asked.properties)
        return {**of_table(staged), "metadata-location": None}

    def _committed(self, namespace: str, name: str, asked: CommitTableRequest) -> tuple[int, dict[str, Any]]:
        try:
            table = self._behind.load_table((namespace, name))
        except NoSuchTableError:
            table = self._behind._create_staged_table((namespace, name), schema=Schema())
        done = self._behind.commit_table(table, asked.requirements, asked.updates)
        self.commits += 1
        if self.lost:
            self.lost -= 1
            return 504, {"error": {"message": "gone", "type": "GatewayTimeout", "code": 504}}
        return 200, json.loads(done.model_dump_json())


def of_table(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def variables(url: str) -> dict[str, str]:
    """Return the environment of a program that has the catalogue in its configuration."""
    settings = {"TYPE": "rest", "URI": url, "TOKEN": TOKEN}
    return {f"PYICEBERG_CATALOG__{NAME.upper()}__{name}": value for name, value in settings.items()}


class Server(ThreadingHTTPServer):
    """A server whose clients may be killed."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving_catalogue(catalogue: Catalogue) -> Iterator[str]:
    """Yield the URL of a catalogue, which is served until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            octets = self.rfile.read(int(self.headers["Content-Length"] or 0))
            path = self.path.partition("?")[0].removeprefix("/v1/").split("/")
            if self.headers["Authorization"] == f"Bearer {TOKEN}":
                code, content = catalogue.answer(method, path, octets)
            else:
                said = {"message": "not you", "type": "NotAuthorizedException", "code": 401}
                code, content = 401, {"error": said}
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
