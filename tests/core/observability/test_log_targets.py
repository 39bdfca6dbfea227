"""Where the log goes: levels by category, a file that rotates, is opened again, and never holds up the loop."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from leveret.config.config import ConfigError, parse
from leveret.config.records import keys_of
from leveret.config.sections import LogFileSettings, LogLevels, LogSettings
from leveret.observability import log_levels
from leveret.server.node import logs
from leveret.server.node.log_file import FileTarget, LogFile
from tests.sources import FOLDERS, ROOT

log = logging.getLogger("leveret.connection")


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    names = ("leveret", *(f"leveret.{each}" for each in log_levels.CATEGORIES))
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def settings(text: str) -> LogSettings:
    return parse(text).log


def to_file(path: Path, **more: object) -> LogSettings:
    return attrs.evolve(LogSettings(), console=False, file=LogFileSettings(path=path, **more))  # type: ignore[arg-type]


def test_each_logger_of_the_source_is_a_category_with_a_key() -> None:
    of_node = [
        folder for folder in FOLDERS if folder not in ("pipeline", "perf")
    ]  # which have programs of their own
    sources = [file for folder in of_node for file in (ROOT / folder).rglob("*.py")]
    used = {
        name for file in sources for name in re.findall(r'getLogger\("leveret\.(\w+)"\)', file.read_text())
    }
    assert used == set(log_levels.CATEGORIES) == set(keys_of(LogLevels))


def test_a_category_has_its_own_level_or_that_of_the_log() -> None:
    said = settings('[log]\nlevel = "warning"\n[log.levels]\nconnection = "debug"\nstore = "none"\n')
    log_levels.set_levels(said.level, attrs.asdict(said.levels))
    assert log.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("leveret.store").isEnabledFor(logging.CRITICAL)
    assert not logging.getLogger("leveret.node").isEnabledFor(logging.INFO)
    told = log_levels.levels()
    assert (told["connection"], told["store"], told["node"]) == ("debug", "none", "warning")
    log_levels.set_levels("info", {})
    assert set(log_levels.levels().values()) == {"info"}


def test_a_category_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError) as refused:
        parse('[log.levels]\nconections = "debug"\n')
    assert "did you mean 'connection'?" in str(refused.value)


def test_a_node_cannot_be_without_any_log() -> None:
    with pytest.raises(ConfigError) as refused:
        parse("[log]\nconsole = false\n")
    assert "log.console" in str(refused.value)


def test_a_file_gets_the_lines_and_more_files_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "leveret.log"
    targets = logs.LogTargets(to_file(path, format="json", size_max=200, keep=2))
    for number in range(9):
        log.warning("line %d", number)
    targets.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "leveret.log",
        "leveret.log.1",
        "leveret.log.2",
    ]
    assert all(file.stat().st_size <= 200 for file in tmp_path.iterdir())
    assert path.stat().st_mode & 0o777 & ~0o640 == 0
    assert json.loads(path.read_text().splitlines()[-1])["message"] == "line 8"


def test_an_exception_is_in_the_file_as_well(tmp_path: Path) -> None:
    targets = logs.LogTargets(to_file(tmp_path / "log"))
    try:
        raise ValueError("ours")
    except ValueError:
        log.exception("a mistake")
    targets.close()
    assert (tmp_path / "log").read_text().count("ValueError: ours") == 1


def test_a_reload_opens_a_file_again_that_was_renamed(tmp_path: Path) -> None:
    said = to_file(tmp_path / "log")
    targets = logs.LogTargets(said)
    log.warning("first")
    (tmp_path / "log").rename(tmp_path / "log.old")
    targets.apply(said)
    log.warning("second")
    targets.close()
    assert "second" in (tmp_path / "log").read_text()
    assert "second" not in (tmp_path / "log.old").read_text()


def test_a_reload_changes_the_file_and_keeps_it_if_the_new_one_cannot_be_opened(tmp_path: Path) -> None:
    targets = logs.LogTargets(to_file(tmp_path / "a"))
    targets.apply(to_file(tmp_path / "b"))
    log.warning("to b")
    with pytest.raises(OSError, match="No such file"):
        targets.apply(to_file(tmp_path / "absent" / "c"))
    log.warning("to b, too")
    targets.close()
    assert (tmp_path / "a").read_text() == ""
    assert re.findall(r"to b[, to]*", (tmp_path / "b").read_text()) == ["to b", "to b, too"]
    assert not logs.LOGGER.handlers or all(not isinstance(h, FileTarget) for h in logs.LOGGER.handlers)


def test_a_start_with_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.file\.path"):
        logs.LogTargets(to_file(tmp_path / "absent" / "log"))
    with pytest.raises(ConfigError, match=r"log\.file\.path.*is missing"):
        logs.check(to_file(tmp_path / "absent" / "log"))
    assert logs.check(to_file(tmp_path / "log")) == []
    assert list(tmp_path.iterdir()) == []


def test_an_audit_log_that_no_level_lets_through_is_told() -> None:
    assert "log.audit has no effect" in logs.check(settings('[log]\naudit = "log"\nlevel = "error"\n'))[0]
    assert logs.check(settings('[log]\naudit = "log"\nlevel = "error"\nlevels.audit = "info"\n')) == []


class SlowFile(LogFile):
    """A file on a disk that stands still until it is let go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 0, 1)
        self.stands, self.goes_on = threading.Event(), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.stands.set()
        assert self.goes_on.wait(60)
        super().emit(record)


def test_a_disk_that_stands_still_costs_lines_but_no_time(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "log")
    target = FileTarget(file, logs.TextLines(), lines_max=5)
    record = logging.makeLogRecord(
        {"name": "leveret.node", "levelname": "INFO", "msg": "here", "created": 1e9}
    )
    target.handle(record)
    assert file.stands.wait(60)  # the thread has taken the first line, and hangs
    for _ in range(12):
        target.handle(record)
    assert target.left_out == 7
    file.goes_on.set()
    target.close()
    text = (tmp_path / "log").read_text()
    assert text.count(": here") == 6
    assert text.count("7 lines were left out") == 1


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_reported_once_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = LogFile(tmp_path / "log", 0, 1)
    record = logging.makeLogRecord({"name": "leveret.node", "levelname": "INFO", "msg": "here"})
    before, file.stream = file.stream, FullDisk()  # type: ignore[assignment]
    file.emit(record)
    file.emit(record)
    file.stream = before
    file.emit(record)
    file.close()
    assert [each.getMessage() for each in caplog.records] == [f"cannot write to {tmp_path / 'log'}"]
    assert (tmp_path / "log").read_text() == "here\n"
