"""The commands that decode bodies: what they are told, what they tell, and what a node runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.server.cli import main
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message

polars = need_module("polars")
need_module("deltalake")
need_module("fastavro")

from tests.pipeline.decoding.registry_server import serving  # noqa: E402
from tests.pipeline.decoding.samples import avro_body, record  # noqa: E402


class Command:
    """`leveret pipeline` with a broker whose stream `orders` has some bodies."""

    def __init__(self, broker: FakeBroker, folder: Path) -> None:
        self.broker = broker
        self.lake = folder / "lake"
        self.schema = folder / "order.ddl"
        self.schema.write_text("n bigint")

    def archive(self, *words: str, target: str | None = None) -> int:
        given = ["archive", "orders", target or str(self.lake), "--endpoint", self.broker.url, *words]
        return main(["pipeline", *given], {})

    def decoded(self, *words: str) -> int:
        return self.archive("--decode", "json", "--schema", str(self.schema), *words)

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        return list(polars.read_delta(str(self.lake)).sort("offset").select(columns).rows())


@pytest.fixture
def command(broker: FakeBroker, tmp_path: Path) -> Command:
    broker.stream("orders").publish(message(b'{"n": 1}'), message(b'{"n": "x"}'), message(b'{"n": 3}'))
    return Command(broker, tmp_path)


def test_bodies_are_decoded_and_again_after_a_fix(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    metrics = tmp_path / "metrics"
    assert command.decoded("--metrics", str(metrics)) == 0
    told = capsys.readouterr().err
    assert "archive: batch 0: 3 rows, of which 1 were not decoded in " in told
    assert "archive: done: 3 rows, of which 1 were not decoded in 1 batch" in told
    assert [json.loads(line)["undecoded"] for line in metrics.read_text().splitlines()] == [1, 1]
    assert command.rows("offset", "n") == [(0, 1), (2, 3)]
    fixed = tmp_path / "fixed.json"
    fixed.write_text('{"type": "object", "properties": {"text": {"type": "string"}}}')
    words = ["pipeline", "decode", str(command.lake), "--decode", "json", "--schema"]
    assert main([*words, str(command.schema)], {}) == 0
    assert capsys.readouterr().out == f"0 rows were moved to {command.lake}, 1 still cannot be decoded\n"
    assert main([*words, str(fixed)], {}) == 0
    assert capsys.readouterr().out == f"1 rows were moved to {command.lake}, 0 still cannot be decoded\n"
    assert command.rows("offset", "n", "text") == [(0, 1, None), (1, None, None), (2, 3, None)]


def test_check_counts_rows_that_could_not_be_decoded(command: Command, capsys: pytest.CaptureFixture[str]):
    assert command.decoded() == 0
    capsys.readouterr()
    assert main(["pipeline", "check", str(command.lake), "--endpoint", command.broker.url], {}) == 0
    assert capsys.readouterr().out.endswith("3 rows, each message once, 0 messages behind the broker\n")


def test_a_dry_run_tells_the_schema_and_does_nothing(command: Command, capsys: pytest.CaptureFixture[str]):
    assert command.decoded("--dry-run") == 0
    assert f"with columns of json by {command.schema}" in capsys.readouterr().out
    assert not command.lake.exists()
    command.schema.write_text("n blob")
    assert command.decoded("--dry-run") == 2


def test_secrets_of_a_registry_are_in_no_line(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    order = record("Order", id="long")
    body = b"\0\0\0\0\x07" + avro_body(order, {"id": 5})
    command.broker.streams["orders"].publish(message(body))
    secret = tmp_path / "token"
    secret.write_text("sesame")
    with serving() as registry:
        registry.avro(7, order)
        registry.allowed = "Bearer sesame"
        words = ["--decode", "avro", "--registry", registry.url]
        assert command.archive(*words) == 3
        assert "does not let us in (401)" in capsys.readouterr().err
        assert command.archive(*words, "--registry-token-file", str(secret)) == 0
    told = capsys.readouterr()
    assert "sesame" not in told.err + told.out
    assert command.rows("offset", "id") == [(3, 5)]
    assert command.archive(*words) == 0  # nothing is new, so nobody is asked


def test_a_registry_that_is_gone_is_said_by_name(command: Command, capsys: pytest.CaptureFixture[str]):
    command.broker.streams["orders"].publish(message(b"\0\0\0\0\x07"))
    assert command.archive("--decode", "avro", "--registry", "http://127.0.0.1:1") == 3
    assert "leveret: the registry at 127.0.0.1:1 does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--schema", "x"], "--schema is of no use without --decode"),
        (["--without-body"], "--without-body is of no use without --decode"),
        (["--decode", "json"], "name a file with --schema, or a registry"),
        (
            ["--decode", "json", "--schema", "x", "--registry", "http://r"],
            "name a file with --schema, or a registry",
        ),
        (["--decode", "json", "--schema", "absent"], "the schema 'absent' cannot be read"),
        (
            ["--decode", "json", "--schema", "x", "--message", "M"],
            "--message names a message in a --schema of protobuf",
        ),
        (
            ["--decode", "json", "--schema", "x", "--registry-user", "u"],
            "--registry-user is of no use without",
        ),
        (
            ["--decode", "avro", "--registry", "http://u:sesame@r"],
            "the registry's URL has a user or password in it",
        ),
        (
            ["--decode", "json", "--schema", "{}", "--format", "parquet"],
            "in archives of format delta or iceberg, not of parquet",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    command: Command, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
):
    given = [str(command.schema) if word == "{}" else word for word in words]
    assert command.archive(*given) == 2
    told = capsys.readouterr().err
    assert why in told
    assert "sesame" not in told


def test_the_help_tells_of_decoding(capsys: pytest.CaptureFixture[str]):
    for name in ("archive", "decode"):
        with pytest.raises(SystemExit):
            main(["pipeline", name, "--help"], {})
        told = capsys.readouterr().out
        assert "--decode {json,avro,protobuf}" in told
        assert "TARGET.undecoded" in told
