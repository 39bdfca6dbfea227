"""Tables in an object store that speaks S3: each message once, also of runs that overlap, and no secret in what is
said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import Target
from leveret.pipeline.jobs.archive_local import LocalArchive, local_archive
from leveret.pipeline.jobs.archive_run import layout_of
from leveret.pipeline.jobs.lake_table import lake_table
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.table_positions import TableCheckpoint
from leveret.pipeline.options import Use, read_options
from leveret.server.cli import main
from tests.harness.seldom import elsewhere
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message
from tests.pipeline.object_store import BUCKET, SECRET, client_of, object_store, variables

need_module("moto")
need_module("flask_cors")
deltalake = need_module("deltalake")
need_module("pyiceberg")

from pyiceberg.utils.config import Config  # noqa: E402

WHERE = f"s3://{BUCKET}/orders"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with object_store() as found:
        yield found


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in variables(url).items():
        monkeypatch.setenv(name, value)
    yield url
    client = client_of(url)
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=each["Key"])


def run(*words: str) -> int:
    return main(["pipeline", *words], {})


def offsets(where: str, catalogue: str | None = None) -> list[int]:
    found = lake_table(where, catalogue).batches(["offset"])
    return sorted(offset for batch in found for offset in batch.column("offset").to_pylist())


def test_a_delta_table_in_a_bucket_is_archived_checked_joined_and_cleaned(
    store: str, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = broker.stream("orders")
    archive = ("archive", "orders", WHERE, "--endpoint", broker.url, "--batch", "20")
    for _ in range(2):
        stream.fill(50)
        assert run(*archive) == 0
    assert offsets(WHERE) == [*range(100)]
    assert run("check", WHERE, "--endpoint", broker.url) == 0
    assert "100 rows, each message once, 0 messages behind the broker" in capsys.readouterr().out
    assert run(*archive, "--dry-run") == 0
    assert "0 messages from offset 100" in capsys.readouterr().out
    assert run("files", WHERE) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("6 files, 100 rows")
    assert all(line.startswith(f"{WHERE}/day=") for line in printed.out.splitlines())
    assert run("optimize", WHERE) == 0
    assert run("clean", WHERE, "--older-than", "0h", "--delete") == 0
    keys = [each["Key"] for each in client_of(store).list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert len([key for key in keys if key.endswith(".parquet") and "_delta_log" not in key]) == 1
    stream.fill(10)
    assert run(*archive) == 0
    assert offsets(WHERE) == [*range(110)]
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


@elsewhere
def test_bodies_are_decoded_in_a_bucket_and_again_after_a_fix(
    store: str, broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_module("fastavro")
    stream, schema = broker.stream("orders"), tmp_path / "schema"
    how = ("--decode", "json", "--schema", str(schema))
    schema.write_text("n bigint")
    for bodies in ((b'{"n": 1}', b"?"), (b'{"n": "x"}', b'{"n": 4}')):
        stream.publish(*(message(body) for body in bodies))
        assert run("archive", "orders", WHERE, "--endpoint", broker.url, *how) == 0
    assert (offsets(WHERE), offsets(f"{WHERE}.undecoded")) == ([0, 3], [1, 2])
    assert run("clean", WHERE, "--older-than", "0h", "--delete") == 0
    schema.write_text("m string")
    assert run("decode", WHERE, *how) == 0
    assert (offsets(WHERE), offsets(f"{WHERE}.undecoded")) == ([0, 2, 3], [1])
    capsys.readouterr()
    assert run("check", WHERE, "--endpoint", broker.url) == 0
    assert "4 rows, each message once, 0 messages behind the broker" in capsys.readouterr().out


@contextmanager
def begun(broker: FakeBroker, sources: str) -> Iterator[LocalArchive]:
    said = {"endpoints": broker.url, "subscribe": sources, "startingOffsets": "earliest"}
    options = read_options({**said, "maxOffsetsPerTrigger": "20"}, Use.STREAM)
    layout = layout_of(Target(WHERE), options)
    with local_archive(options, layout, TableCheckpoint(WHERE, sources.split(","))) as archive:
        archive.agree()
        yield archive


@pytest.mark.parametrize("others", ["orders", "orders,refunds"])
def test_of_runs_that_overlap_one_adds_a_message_and_the_other_is_refused(
    store: str, broker: FakeBroker, others: str
) -> None:
    broker.stream("refunds").fill(5)
    broker.stream("orders").fill(50)
    assert run("archive", "orders", WHERE, "--endpoint", broker.url) == 0
    broker.stream("orders").fill(50)
    with begun(broker, "orders") as first, begun(broker, others) as second:
        assert first.run(Report("archive", lambda line: None), Stop())
        if others == "orders":  # the same batches of the same query
            assert second.run(Report("archive", lambda line: None), Stop())
        else:
            with pytest.raises(PipelineError, match="another run has added them"):
                second.run(Report("archive", lambda line: None), Stop())
    assert offsets(WHERE) == [*range(100)]


def test_a_run_reads_the_log_of_a_table_once_and_then_what_is_new(
    store: str, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open it, or to look for a transaction, takes a request for each entry since the last checkpoint."""
    report, read = Report("archive", lambda line: None), []

    def told(known: Callable[..., object]) -> Callable[..., object]:
        def called(*given: object) -> object:
            read.append(known.__name__)
            return known(*given)

        return called

    broker.stream("orders").fill(40)
    with begun(broker, "orders") as archive:
        assert archive.run(report, Stop())
        monkeypatch.setattr(delta, "opened", told(delta.opened))
        monkeypatch.setattr(
            deltalake.DeltaTable, "transaction_version", told(deltalake.DeltaTable.transaction_version)
        )
        broker.stream("orders").fill(100)
        assert archive.run(report, Stop())
        assert read == []
        deltalake.DeltaTable(WHERE).alter.set_table_name("orders")  # another program has added an entry
        broker.stream("orders").fill(10)
        assert archive.run(report, Stop())
        assert read.count("opened") == 1
    assert offsets(WHERE) == [*range(150)]


def test_a_table_that_is_deleted_meanwhile_is_not_begun_in_the_middle(store: str, broker: FakeBroker) -> None:
    report = Report("archive", lambda line: None)
    broker.stream("orders").fill(40)
    with begun(broker, "orders") as archive:
        assert archive.run(report, Stop())
        client = client_of(store)
        for each in client.list_objects_v2(Bucket=BUCKET)["Contents"]:
            client.delete_object(Bucket=BUCKET, Key=each["Key"])
        broker.stream("orders").fill(10)
        with pytest.raises(PipelineError, match="was deleted while this run was at work"):
            archive.run(report, Stop())


def test_of_two_writers_at_once_the_bucket_takes_one_version_of_the_log(
    store: str, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked at the table, and neither has written: the name of the next entry can be put only once."""
    from leveret.pipeline.jobs import delta

    broker.stream("orders").fill(50)
    assert run("archive", "orders", WHERE, "--endpoint", broker.url) == 0
    broker.stream("orders").fill(20)
    known, times = delta.require_new, []

    def overtaken(*about: object) -> None:
        known(*about)  # type: ignore[arg-type]
        if not times:
            times.append(1)
            assert run("archive", "orders", "refunds", WHERE, "--endpoint", broker.url) == 0

    broker.stream("refunds").fill(5)
    monkeypatch.setattr(delta, "require_new", overtaken)
    assert run("archive", "orders", WHERE, "--endpoint", broker.url) == 1
    assert [offset for offset in offsets(WHERE) if offset >= 50] == [*range(50, 70)]


def test_a_replay_finds_out_that_a_table_in_a_bucket_is_one_of_delta(
    store: str, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.stream("orders").fill(5)
    few = ("--option", "columns=offset,body", "--partition-by", "none")
    assert run("archive", "orders", WHERE, "--endpoint", broker.url, *few) == 0
    assert run("replay", WHERE, "--to-exchange", "again", "--endpoint", broker.url) == 1
    assert f"{WHERE} is no archive: it has no column routing_key" in capsys.readouterr().err


@pytest.fixture
def catalogue(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalogue whose tables are in the bucket, with credentials of its own settings."""
    settings = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path / 'catalogue.db'}",
        "WAREHOUSE": f"s3://{BUCKET}/house",
        "S3__ENDPOINT": store,
        "S3__ACCESS_KEY_ID": "AKIDEXAMPLE",
        "S3__SECRET_ACCESS_KEY": SECRET,
        "S3__REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKEHOUSE__{name}", value)
    for name in variables(store):
        monkeypatch.delenv(name)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return "lakehouse"


def test_an_iceberg_table_in_a_bucket_is_written_with_the_credentials_of_its_catalogue(
    catalogue: str, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = broker.stream("orders")
    archive = ("archive", "orders", "shop.orders", "--catalog", catalogue, "--endpoint", broker.url)
    for _ in range(2):
        stream.fill(50)
        assert run(*archive, "--batch", "20") == 0
    assert run("check", "shop.orders", "--catalog", catalogue, "--endpoint", broker.url) == 0
    assert "100 rows, each message once, 0 messages behind" in capsys.readouterr().out
    assert run("files", "shop.orders", "--catalog", catalogue) == 0
    assert f"s3://{BUCKET}/house/shop/orders/data/day=" in capsys.readouterr().out
    assert run("optimize", "shop.orders", "--catalog", catalogue) == 0
    assert run("clean", "shop.orders", "--catalog", catalogue, "--older-than", "0h", "--delete") == 0
    stream.fill(10)
    assert run(*archive, "--dry-run") == 0
    assert "10 messages from offset 100" in capsys.readouterr().out
    assert run(*archive) == 0
    assert offsets("shop.orders", catalogue) == [*range(110)]
    assert len(lake_table("shop.orders", catalogue).files()) == 2
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


@pytest.mark.parametrize("wrong", ["bucket", pytest.param("endpoint", marks=elsewhere)])
def test_what_a_bucket_refuses_is_a_line_without_a_secret(
    store: str,
    broker: FakeBroker,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker.stream("orders").fill(5)
    where = "s3://no-such-bucket/orders" if wrong == "bucket" else WHERE
    if wrong == "endpoint":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_MAX_RETRIES", "0")
    assert run("archive", "orders", where, "--endpoint", broker.url) == 1
    said = capsys.readouterr().err
    assert where in said
    assert "Traceback" not in said
    assert SECRET not in said
    assert max(map(len, said.splitlines())) < 700
