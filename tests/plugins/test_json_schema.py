"""`x-json-schema`: only what fits a schema is let into an exchange."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from leveret.broker import Outcome
from leveret.config.config import ConfigError, parse
from leveret.interceptors.chain import BadEntry, chain_of
from leveret.message import Facts, Message
from leveret.plugins.json_schema import TEXT_MAX, JsonSchema
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING_1_0
from leveret.server.node import start_check
from leveret.values import Table, Value
from tests.harness.bench import CoreBench, message

SCHEMA: Table = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def guarded(**options: Value) -> CoreBench:
    bench = CoreBench()
    bench.queue()
    entry: tuple[str, Table] = ("x-json-schema", {"schema": SCHEMA, **options})
    kinds = {"x-json-schema": JsonSchema}
    bench.broker.intercept(chain_of((entry,), kinds, "node", bench.broker.clock, 1.0))
    return bench


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"id": 1}', ""),
        (b'{"id": "one"}', '/id: "one" is not of type "integer"'),
        (b"{}", 'the body: "id" is a required property'),
        (b"[1]", 'the body: [1] is not of type "object"'),
        (b"id: 1", "the body is no JSON"),
        (b"\xff", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b"", "the body is no JSON"),
    ],
)
def test_bodies_are_held_against_the_schema(body: bytes, reason: str) -> None:
    bench = guarded()
    (outcome,) = bench.publish("q", body)
    assert outcome is (Outcome.REFUSED if reason else Outcome.TAKEN)
    assert bench.broker.refused_for == reason


def test_sections_of_data_are_read_as_the_bytes_in_them() -> None:
    bench = guarded()
    body = ENCODING_1_0.body(b'{"id": 1}')
    sent = Message(ENCODING_1_0, "", "q", b"", body, Facts())
    assert bench.broker.publish(bench.host.default_exchange, sent) is Outcome.TAKEN


def test_only_messages_that_it_is_about_are_looked_at() -> None:
    bench = guarded(exchange="orders.*", keys="new.*", virtual_host="/")
    for name in ("orders.eu", "orders", "others"):
        bench.host.declare_exchange(name, "fanout")
        bench.host.bind(bench.host.exchange(name), bench.host.queue("q"), "")
    sent = {
        (name, key): bench.broker.publish(bench.host.exchange(name), message(key, b"no", exchange=name))
        for name in ("orders.eu", "orders", "others")
        for key in ("new.one", "old")
    }
    refused = [where for where, outcome in sent.items() if outcome is Outcome.REFUSED]
    assert refused == [("orders.eu", "new.one")]


def test_large_bodies_are_refused_before_they_are_parsed() -> None:
    bench = guarded(size_max=10)
    assert bench.publish("q", b'{"id": 1}', b'{"id":  12}') == [Outcome.TAKEN, Outcome.REFUSED]
    assert bench.broker.refused_for == "the body has 11 bytes, of which 10 are looked at"


def test_a_publisher_is_told_a_bounded_text() -> None:
    bench = guarded()
    bench.publish("q", json.dumps({"id": "x" * 10_000}).encode())
    assert len(bench.broker.refused_for) == TEXT_MAX


def test_the_schema_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(SCHEMA))
    assert guarded(schema=str(path)).publish("q", b"{}") == [Outcome.REFUSED]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "`schema` is the path of a file, or the schema as a table"),
        ({"schema": 7}, "`schema` is the path of a file"),
        ({"schema": "/nowhere/order.json"}, "No such file or directory"),
        ({"schema": {"type": "objct"}}, "`schema`: "),
        ({"schema": {"$ref": "http://127.0.0.1:9/other"}}, "`schema`: "),
        ({"schema": SCHEMA, "exchnge": "a"}, "'exchnge' is no option"),
        ({"schema": SCHEMA, "exchange": 1}, "`exchange` is a name"),
        ({"schema": SCHEMA, "size_max": 0}, "`size_max` is a number of bytes"),
        ({"schema": SCHEMA, "size_max": True}, "`size_max` is a number of bytes"),
    ],
)
def test_options_that_cannot_be_followed_say_why(options: Table, reason: str) -> None:
    clock = CoreBench().broker.clock
    with pytest.raises(BadEntry, match=reason):
        chain_of((("x-json-schema", options),), {"x-json-schema": JsonSchema}, "node", clock, 1.0)


def test_a_missing_package_is_named_by_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    config = parse('[[interceptors]]\nname = "x-json-schema"\nschema = { type = "object" }\n')
    with pytest.raises(ConfigError, match=r"interceptors\[0\].*pip install 'leveret\[schema\]'"):
        start_check.rehearse(config)
