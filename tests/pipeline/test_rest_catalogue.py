"""Iceberg tables in a REST catalogue: each message once, also where a commit's answer is lost, and no token in what is
said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.pipeline.jobs.lake_table import lake_table
from leveret.server.cli import main
from tests.harness.seldom import elsewhere
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message

need_module("pyiceberg")

from pyiceberg.utils.config import Config  # noqa: E402

from tests.pipeline.rest_catalogue import TOKEN, Catalogue, serving_catalogue, variables  # noqa: E402


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalogue]:
    made = Catalogue(tmp_path, f"file://{tmp_path / 'house'}")
    with serving_catalogue(made) as url:
        for name, value in variables(url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        yield made


def run(*words: str) -> int:
    return main(["pipeline", *words, "--catalog", "lakehouse"], {})


def offsets(name: str = "shop.orders") -> list[int]:
    found = lake_table(name, "lakehouse").batches(["offset"])
    return sorted(offset for batch in found for offset in batch.column("offset").to_pylist())


def test_an_archive_goes_to_a_rest_catalogue_and_on_there(
    catalogue: Catalogue, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = broker.stream("orders")
    archive = ("archive", "orders", "shop.orders", "--partition-by", "day,stream", "--endpoint", broker.url)
    stream.fill(50)
    assert run(*archive, "--dry-run") == 0
    assert "50 messages from offset 0" in capsys.readouterr().out
    assert catalogue.commits == 0
    for _ in range(2):
        assert run(*archive, "--batch", "20") == 0
        stream.fill(50)
    assert offsets() == [*range(100)]
    assert run("check", "shop.orders", "--endpoint", broker.url) == 0
    assert "100 rows, each message once, 50 messages behind" in capsys.readouterr().out
    assert run("optimize", "shop.orders") == 0
    assert run("clean", "shop.orders", "--older-than", "0h", "--delete") == 0
    assert run(*archive) == 0
    assert offsets() == [*range(150)]
    assert len(lake_table("shop.orders", "lakehouse").files()) == 2
    printed = capsys.readouterr()
    assert TOKEN not in printed.out + printed.err


def test_a_table_of_which_the_catalogue_does_not_say_that_it_is_made_is_there(
    catalogue: Catalogue, broker: FakeBroker
) -> None:
    broker.stream("orders").fill(5)
    catalogue.lost = 1
    assert run("archive", "orders", "shop.orders", "--endpoint", broker.url) == 0
    assert offsets() == [*range(5)]


def test_a_commit_whose_answer_is_lost_is_not_made_again(
    catalogue: Catalogue, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = ("archive", "orders", "shop.orders", "--batch", "20", "--endpoint", broker.url)
    broker.stream("orders").fill(50)
    assert run(*archive) == 0
    broker.stream("orders").fill(50)
    catalogue.lost = 1
    code = run(*archive)
    said = capsys.readouterr().err
    assert (code, "Traceback" in said) == (0, False)
    assert offsets() == [*range(100)]


@elsewhere
def test_decoded_bodies_are_in_one_of_two_tables_of_a_catalogue(
    catalogue: Catalogue, broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "order.ddl"
    schema.write_text("n tinyint, on array<struct<day: date>>")
    stream, how = broker.stream("orders"), ("--decode", "json", "--schema", str(schema))
    archive = ("archive", "orders", "shop.orders", "--batch", "2", "--endpoint", broker.url, *how)
    stream.publish(message(b'{"n": 1}'), message(b"?"), message(b'{"on": [{"day": "2026-11-30"}]}'))
    assert run(*archive) == 0
    schema.write_text("n tinyint, m string")
    stream.publish(message(b'{"n": 400}'), message(b'{"n": "x", "m": "y"}'))
    catalogue.lost = 1  # the answer to a new column
    assert run(*archive) == 0
    stream.publish(message(b"??"))
    catalogue.lost = 1  # to a commit of the archive
    assert run(*archive) == 0
    assert (offsets(), offsets("shop.orders_undecoded")) == ([0, 2], [1, 3, 4, 5])
    schema.write_text("m string")
    assert run("decode", "shop.orders", *how) == 0
    assert (offsets(), offsets("shop.orders_undecoded")) == ([0, 2, 3, 4], [1, 5])
    capsys.readouterr()
    assert run("check", "shop.orders", "--offline") == 0
    assert "6 rows, each message once" in capsys.readouterr().out
    assert run("optimize", "shop.orders") == 0
    assert run("clean", "shop.orders", "--older-than", "0h", "--delete") == 0
    assert run("clean", "shop.orders_undecoded") == 2
    assert (offsets(), offsets("shop.orders_undecoded")) == ([0, 2, 3, 4], [1, 5])
    for name in ("shop.orders", "shop.orders_undecoded"):
        assert len(lake_table(name, "lakehouse").files()) >= 1


def test_a_catalogue_that_does_not_let_in_is_a_line_without_the_token(
    catalogue: Catalogue,
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKEHOUSE__TOKEN", "another-hush")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    broker.stream("orders").fill(5)
    assert run("archive", "orders", "shop.orders", "--endpoint", broker.url) == 1
    said = capsys.readouterr().err
    assert "lakehouse" in said
    assert "not you" in said
    assert "hush" not in said
    assert run("files", "shop.missing") == 1
