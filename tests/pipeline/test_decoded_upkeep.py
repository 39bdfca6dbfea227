"""The upkeep of archives with decoded bodies: both tables are checked and cleaned, and no change of one gets lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import DELTA, ICEBERG
from leveret.pipeline.jobs.lake_table import lake_table
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.table_positions import TableCheckpoint
from leveret.server.cli import main
from tests.harness.seldom import elsewhere
from tests.interop.conftest import need_module
from tests.pipeline import bulk
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.lake_readers import loaded

need_module("polars")
need_module("deltalake")
need_module("fastavro")

from leveret.pipeline.decoding.decode_options import DecodeOptions  # noqa: E402
from leveret.pipeline.jobs.paired_table import paired_table  # noqa: E402
from leveret.pipeline.jobs.undecoded import UndecodedTable  # noqa: E402
from tests.pipeline.test_decoded_archive import Cut, DecodedLake  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = "4 rows, each message once"


@pytest.fixture(scope="module", params=[DELTA, pytest.param(ICEBERG, marks=elsewhere)])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """Return the kind of an archive with two rows in each of its tables, its folder, and a copy of that."""
    if request.param == ICEBERG:
        need_module("pyiceberg")
    folder = tmp_path_factory.mktemp("lake")
    with bulk.serving(FakeBroker()) as broker:
        begun(broker, folder, request.param, DecodedLake.once)
    return request.param, folder, shutil.copytree(folder, folder.with_name(f"{folder.name}-kept"))


@pytest.fixture
def lake(broker: FakeBroker, kept: tuple[str, Path, Path]) -> DecodedLake:
    """Return that archive, as it was: tables of Iceberg name their files by whole paths."""
    kind, folder, copy = kept
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return begun(broker, folder, kind, lambda lake: None)


def begun(broker: FakeBroker, folder: Path, kind: str, archive: Callable[[DecodedLake], None]) -> DecodedLake:
    broker.stream("orders")
    lake = DecodedLake(broker, folder, kind)
    for bodies in ((b'{"n": 1}', b"?", b'{"n": 2}'), (b'{"n": "x"}',)):
        lake.publish(*bodies)
        archive(lake)
    return lake


def run(*words: str | Path) -> int:
    return main(["pipeline", *map(str, words)], {})


def beside(lake: DecodedLake) -> Path:
    return lake.where.with_name("lake.undecoded")


def cut_off(lake: DecodedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archive what there is, and be killed between the commits to the two tables."""

    def cut(*given: object) -> None:
        raise Cut

    with monkeypatch.context() as patched, lake.run() as archive:
        patched.setattr(UndecodedTable, "complete", cut)
        with pytest.raises(Cut):
            archive.run(Report("archive", lake.lines.append), Stop())


def forget(lake: DecodedLake) -> None:
    """Have the table's log keep nothing but its newest entry."""
    if lake.kind == ICEBERG:
        assert run("clean", lake.where, "--older-than", "0h", "--delete") == 0
        assert len(loaded(lake.where).snapshots()) == 1
        return
    delta.found(str(lake.where)).create_checkpoint()
    newest = delta.found(str(lake.where)).version()
    for entry in sorted((lake.where / delta.LOG).glob("*.json")):
        if int(entry.stem) < newest:
            entry.unlink()


def test_a_check_finds_each_message_in_one_of_both_tables(
    lake: DecodedLake, capsys: pytest.CaptureFixture[str]
):
    assert run("check", lake.where, "--offline") == 0
    assert WHOLE in capsys.readouterr().out
    file = next(beside(lake).rglob("*.parquet"))
    file.unlink()
    assert run("check", lake.where, "--offline") == 1


def test_a_damaged_file_of_undecoded_rows_is_named(lake: DecodedLake, capsys: pytest.CaptureFixture[str]):
    file = next(beside(lake).rglob("*.parquet"))
    with file.open("ab") as opened:
        opened.write(b"more")
    assert run("check", lake.where, "--offline") == 1
    told = capsys.readouterr()
    if lake.kind == DELTA:
        assert f"undecoded: {file.name} has " in told.out, told.err
    else:  # pyiceberg reads it from its end on
        assert "lake.undecoded cannot be read" in told.err


def test_an_upkeep_completes_what_a_killed_run_left_undone(
    lake: DecodedLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    lake.publish(b"?", b'{"n": 5}')
    cut_off(lake, monkeypatch)
    assert lake.undecoded() == [(1,), (3,)]
    assert run("clean", lake.where, "--older-than", "0h", "--delete") == 0
    assert lake.undecoded() == [(1,), (3,), (4,)]
    lake.publish(b"?")
    cut_off(lake, monkeypatch)
    assert run("check", lake.where, "--offline") == 0
    assert "7 rows, each message once" in capsys.readouterr().out
    lake.once()
    assert lake.offsets() == [*range(7)]


def test_files_that_are_in_neither_table_are_cleaned_away(
    lake: DecodedLake, capsys: pytest.CaptureFixture[str]
):
    left = beside(lake) / ("left-over.parquet" if lake.kind == DELTA else "data/left-over.parquet")
    left.write_bytes(b"half a f")
    assert run("clean", lake.where, "--older-than", "0h") == 0
    assert str(left) in capsys.readouterr().out
    assert run("clean", lake.where, "--older-than", "0h", "--delete") == 0
    assert not left.exists()
    assert lake.offsets() == [0, 1, 2, 3]


def test_all_tables_that_runs_have_named_are_checked_and_cleaned(
    lake: DecodedLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(delta, "HISTORY", 3)
    by_itself, other = lake.decode, lake.where.with_name("other")
    lake.decode = attrs.evolve(by_itself, undecoded=str(other))
    lake.publish(b"??", b'{"n": 5}')
    cut_off(lake, monkeypatch)
    assert {each.where for each in lake_table(str(lake.where)).undecoded()} == {str(beside(lake)), str(other)}
    assert lake.undecoded("offset", "body") == [(4, b"??")]
    lake.publish(b"???")
    lake.once()
    lake.decode = by_itself
    lake.publish(b"????")
    lake.once()
    for _ in range(delta.HISTORY):  # until the newest commits do not tell of the other any more
        lake.publish(b'{"n": 8}')
        lake.once()
    files = []
    for place in (beside(lake), other):
        files.append(place / ("left-over.parquet" if lake.kind == DELTA else "data/left-over.parquet"))
        files[-1].write_bytes(b"half a f")
    assert run("clean", lake.where, "--older-than", "0h", "--delete") == 0
    capsys.readouterr()
    assert not any(file.exists() for file in files)
    assert run("check", lake.where, "--offline") == 0
    assert f"{8 + delta.HISTORY} rows, each message once" in capsys.readouterr().out
    next(other.rglob("*.parquet")).unlink()
    assert run("check", lake.where, "--offline") == 1


def test_a_table_that_was_named_again_needs_no_log_of_the_others_changes(lake: DecodedLake):
    by_itself, other = lake.decode, lake.where.with_name("other")
    for decode in (attrs.evolve(by_itself, undecoded=str(other)), by_itself):
        lake.publish(b"?")
        lake.decode = decode
        lake.once()
        forget(lake)
    assert lake.undecoded() == [(1,), (3,), (5,)]


@pytest.mark.parametrize("words", [["check", "--offline"], ["optimize"], ["clean", "--delete"]])
def test_the_table_of_undecoded_rows_has_no_upkeep_of_its_own(
    lake: DecodedLake, words: list[str], capsys: pytest.CaptureFixture[str]
):
    name, *more = words
    assert run(name, beside(lake), *more) == 2
    assert (
        "has rows of an archive that could not be decoded: name the archive instead"
        in capsys.readouterr().err
    )


def test_files_with_more_and_fewer_columns_are_joined(lake: DecodedLake, capsys: pytest.CaptureFixture[str]):
    lake.file.write_text("m string, n bigint, to struct<city: string>")
    lake.publish(b'{"m": "y", "n": 5, "to": {"city": "Oulu"}}', b"?")
    lake.once()
    assert run("optimize", lake.where) == 0
    assert run("clean", lake.where, "--older-than", "0h", "--delete") == 0
    found = [(0, 1, None, None), (2, 2, None, None), (4, 5, "y", {"city": "Oulu"})]
    assert lake.rows("offset", "n", "m", "to") == found
    lake.file.write_text("text string")
    assert lake.again().moved == 1  # {"n": "x"} has no text, and nothing of the wrong type
    lake.file.write_text("n bigint, o double")
    lake.publish(b'{"n": 6, "o": 1.5}', b"?")
    lake.once()
    capsys.readouterr()
    assert run("check", lake.where, "--offline") == 0
    assert "8 rows, each message once" in capsys.readouterr().out


def test_a_log_that_has_forgotten_its_changes_still_has_its_table(
    lake: DecodedLake, capsys: pytest.CaptureFixture[str]
):
    lake.publish(b'{"n": 5}')
    lake.once()
    forget(lake)
    assert run("check", lake.where, "--offline") == 0
    assert "5 rows, each message once" in capsys.readouterr().out
    lake.publish(b"?")
    lake.once()
    assert lake.offsets() == [*range(6)]


def test_a_snapshot_is_forgotten_only_when_its_change_is_made(
    lake: DecodedLake, monkeypatch: pytest.MonkeyPatch
):
    lake.publish(b"?", b'{"n": 6}')
    cut_off(lake, monkeypatch)
    table = lake_table(str(lake.where))
    log = paired_table(lake.target).log(("day",), table.schema())
    assert log.append([], delta.CommittedBatch("another archive", 0))
    table.orphans(0, delete=True)  # without a look at the other table before
    lake.once()
    assert lake.offsets() == [*range(6)]


@pytest.mark.parametrize("place", ["lake/undecoded", ".", "lake/"])
def test_neither_table_is_in_the_other(lake: DecodedLake, place: str):
    lake.decode = DecodeOptions("json", str(lake.file), undecoded=str(lake.where.parent / place))
    with pytest.raises(BadOption, match="neither in the other"):
        lake.once()


def test_a_run_that_another_overtook_leaves_the_rest_to_the_next(lake: DecodedLake):
    def begun() -> TableCheckpoint:
        return TableCheckpoint(str(lake.where), ["orders"])

    lake.once(begun())
    with lake.run(begun()) as slow:
        lake.publish(b"?", b'{"n": 5}')
        lake.once(begun())
        lake.publish(b'{"n": 6}', b"?")  # the slow run plans up to here what has the same number in the table
        with pytest.raises(PipelineError, match=r"another run has added batch \d, which ends at offset 5"):
            slow.run(Report("archive", lake.lines.append), Stop())
    lake.once(begun())
    assert lake.offsets() == [*range(8)]


def test_rows_that_were_not_decoded_can_be_replayed(lake: DecodedLake, spark: SparkSession):
    from leveret.pipeline.jobs.replay import ReplayRequest, content_of, rows_of

    request = ReplayRequest(str(beside(lake)), "again")
    rows = rows_of(spark, request, content_of(spark, request))
    assert sorted(bytes(row.body) for row in rows.collect()) == [b"?", b'{"n": "x"}']
