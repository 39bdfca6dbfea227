"""A node sends its spans to a collector over OTLP/HTTP, and ends in time without one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pika
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.interop.conftest import Start

pytestmark = pytest.mark.interop

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector(HTTPServer):
    """A collector that keeps the spans it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Received)
        self.spans: list[tuple[str, str]] = []  # services and names


class Received(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        said = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        for resource in said.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.server.spans += [(named["service.name"], span.name) for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *said: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_the_spans_of_a_node_at_the_latest_when_it_ends(
    node_with: Start, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    node = node_with(f'[opentelemetry]\nendpoint = "{endpoint}"\nservice = "orders-broker"\n')
    node.declare("q")
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.basic_publish("", "q", b"x", pika.BasicProperties(headers={"traceparent": PARENT}))
        channel.basic_publish("", "q", b"x")
        assert channel.basic_get("q", auto_ack=True)[2] == b"x"
    node.stop()
    assert collector.spans == [("orders-broker", "publish"), ("orders-broker", "queue q")]
