"""`[record]` in the configuration: which virtual hosts are recorded from the start, where, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.config.config import ConfigError, parse
from leveret.features.recording.records import RecordKind
from leveret.server.node.assembly import record, recordings
from tests.harness.bench import CoreBench

from .recorded import kinds_of


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


def test_a_virtual_host_is_recorded_from_the_start(bench: CoreBench, tmp_path: Path):
    record(bench.broker, parse('[record]\nvirtual_hosts = ["/"]\nfolder = "rec"\n', folder=tmp_path))
    found, _ = recordings(bench.broker, parse("", folder=tmp_path))
    found.close()
    [path] = (tmp_path / "rec").iterdir()
    assert kinds_of(path)[0] is RecordKind.BEGIN


def test_recordings_are_beside_the_data_unless_a_folder_is_named(bench: CoreBench, tmp_path: Path):
    _, plan = recordings(bench.broker, parse(f'[node]\ndata_dir = "{tmp_path}"\n'))
    assert plan.folder == tmp_path / "recordings"


def test_a_virtual_host_that_is_not_there_cannot_be_recorded(bench: CoreBench, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"record\.virtual_hosts\[0\].*a virtual host that there is"):
        record(bench.broker, parse('[record]\nvirtual_hosts = ["shop"]\nfolder = "rec"\n', folder=tmp_path))


def test_a_folder_that_cannot_be_written_is_told_of(bench: CoreBench, tmp_path: Path):
    (tmp_path / "rec").write_text("a file")
    with pytest.raises(ConfigError, match=r"record\.virtual_hosts\[0\].*cannot"):
        record(bench.broker, parse('[record]\nvirtual_hosts = ["/"]\nfolder = "rec"\n', folder=tmp_path))
