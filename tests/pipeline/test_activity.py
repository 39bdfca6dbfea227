"""Jobs say what they are doing, and what Java prints is in a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.pipeline.jobs.activity import Activity, java_log, versions


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_takes_long_is_said_every_five_seconds_and_silence_is_for_nothing_to_do():
    lines: list[str] = []
    time = Time()
    activity = Activity("archive", lines.append, time)

    def pass_to(now: float) -> None:
        time.now = now
        activity.look()

    activity.tell("archive: starting")
    activity.doing("starting Spark")
    for now in (103.0, 105.0, 108.0, 111.0):
        pass_to(now)
    activity.doing("batch 0 is under way")
    activity.tell("archive: a line of its own")
    pass_to(115.9)
    activity.doing("batch 0 is under way")
    pass_to(116.0)
    activity.doing(None)
    pass_to(200.0)
    assert lines == [
        "archive: starting",
        "archive: starting Spark, 5 s so far",
        "archive: starting Spark, 11 s so far",
        "archive: a line of its own",
        "archive: batch 0 is under way, 5 s so far",
    ]


def test_the_first_line_tells_the_versions(tmp_path: Path):
    pytest.importorskip("pyspark")
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n')
    assert versions({"JAVA_HOME": str(tmp_path)}).endswith(" with Java 17")
    assert versions({"JAVA_HOME": str(tmp_path / "gone")}).endswith(" with Java")
    assert versions({"PATH": ""}).startswith("Spark ")


def noise(text: str) -> None:
    subprocess.run([sys.executable, "-c", f"import os; os.write(2, b'{text}')"], check=True)


def test_what_java_prints_is_in_the_log_and_our_lines_are_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    log = tmp_path / "spark.log"
    with java_log(log):
        noise("WARN noise")
    noise("afterwards")
    assert log.read_text() == "WARN noise"
    assert capfd.readouterr().err == "afterwards"


def test_a_log_that_nobody_named_is_kept_if_the_job_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with java_log(None):
        noise("nothing of note")
    with pytest.raises(ValueError, match="bad"), java_log(None):  # nothing was printed
        raise ValueError("bad")
    assert os.listdir(tmp_path) == []

    def fail() -> None:
        with java_log(None):
            noise("a stack")
            raise ValueError("worse")

    with pytest.raises(ValueError, match="worse") as caught:
        fail()
    (kept,) = tmp_path.iterdir()
    assert kept.read_text() == "a stack"
    assert kept.stat().st_mode & 0o077 == 0
    assert caught.value.__notes__ == [f"Spark's log is {kept}"]
