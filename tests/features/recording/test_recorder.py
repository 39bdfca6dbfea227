"""A recording is bounded in memory and on disk, holds nobody up, and tells what is missing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from leveret.errors import NotFound, PreconditionFailed
from leveret.features.recording import writer as writing
from leveret.features.recording.recorder import AGAIN_S, FLUSH_S, MEMORY_MAX
from leveret.features.recording.recordings import Plan, Recordings
from leveret.features.recording.records import RecordKind
from leveret.observability.events import Event, EventListener
from leveret.server.node.threads import spawned
from tests.harness.bench import CoreBench

from .recorded import MIB, Recorded, kinds_of, records_of, replayed

BODY: Final = os.urandom(60_000)  # it does not deflate


@pytest.fixture
def bench() -> CoreBench:
    bench = CoreBench()
    bench.queue("q")
    return bench


class ByHand:
    """Stands for the thread: what waits is written when a test says so."""

    def __init__(self) -> None:
        self.work: Callable[[], None] = lambda: None

    def spawn(self, name: str, work: Callable[[], None]) -> Callable[[float], None]:
        self.work = work
        return lambda seconds: None


def test_without_a_recording_nobody_is_told(bench: CoreBench, tmp_path: Path) -> None:
    queue = bench.host.queue("q")
    assert (queue.entering, queue.present, bench.host.tracer) == (None, None, None)
    recorded = Recorded(bench.broker, tmp_path)
    assert None not in (queue.entering, queue.present, bench.host.tracer)
    recorded.end()
    assert (queue.entering, queue.present, bench.host.tracer) == (None, None, None)
    assert bench.broker.timers.next_at() is None


def test_only_the_owner_can_read_the_file(bench: CoreBench, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = Recorded(bench.broker, tmp_path / "new").end()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_second_recording_of_a_virtual_host_is_refused(bench: CoreBench, tmp_path: Path) -> None:
    recorded = Recorded(bench.broker, tmp_path)
    with pytest.raises(PreconditionFailed, match="vhost '/' is being recorded already"):
        recorded.recordings.begin(bench.host, Plan(tmp_path, MIB))
    recorded.end()
    with pytest.raises(NotFound, match="vhost '/' is not being recorded"):
        recorded.recordings.end("/")


def test_it_needs_a_folder_that_can_be_written_to(bench: CoreBench, tmp_path: Path) -> None:
    recordings = Recordings(bench.broker, spawned)
    with pytest.raises(PreconditionFailed, match="there is no folder"):
        recordings.begin(bench.host, Plan(None, MIB))
    (tmp_path / "file").touch()
    with pytest.raises(PreconditionFailed, match="cannot write to"):
        recordings.begin(bench.host, Plan(tmp_path / "file", MIB))


def test_queues_that_do_not_fit_into_a_file_are_refused(bench: CoreBench, tmp_path: Path) -> None:
    bench.publish("q", *[BODY] * 9)
    with pytest.raises(PreconditionFailed, match="half of a file of 524288 bytes"):
        Recorded(bench.broker, tmp_path, max_bytes=MIB)
    assert list(tmp_path.iterdir()) == []


def written(bench: CoreBench, recorded: Recorded) -> None:
    """Let all that was noted be written, and let the recorder see that."""
    recorder, _ = recorded.recordings._running["/"]
    bench.advance(FLUSH_S)
    while recorder.writer.backlog:
        os.sched_yield()
    bench.advance(FLUSH_S)


def test_full_files_are_rotated_and_each_leads_to_the_same_state(bench: CoreBench, tmp_path: Path) -> None:
    recorded = Recorded(bench.broker, tmp_path, max_bytes=MIB)
    for _ in range(20):
        bench.publish("q", BODY)
        bench.host.queue("q").take_one(settled=True)
        written(bench, recorded)
    bench.publish("q", b"last")
    path = recorded.end()
    files = sorted(tmp_path.iterdir())
    assert files == [path, path.with_name(path.name + ".1")]
    assert sum(each.stat().st_size for each in files) <= MIB
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in files)
    assert kinds_of(path)[0] is RecordKind.BEGIN
    player, report = replayed(path)
    assert (report.ended, report.differences) == (True, [])
    assert [each.message.body for each in player.host.queue("q").waiting()] == [b"last"]
    assert kinds_of(files[1])[0] is RecordKind.BEGIN


def test_a_full_file_ends_the_recording_where_it_is_to_stop(bench: CoreBench, tmp_path: Path) -> None:
    recorded = Recorded(bench.broker, tmp_path, max_bytes=MIB, when_full="stop")
    for _ in range(25):
        bench.publish("q", BODY)
        bench.host.queue("q").purge()
    writer = recorded.recordings._running["/"][0].writer
    written(bench, recorded)
    assert recorded.recordings.all() == []
    writer.wait()
    assert recorded.path.stat().st_size <= MIB
    assert kinds_of(recorded.path)[-1] is RecordKind.END
    assert bench.host.tracer is None


def slow(bench: CoreBench, folder: Path, memory_max: int = MEMORY_MAX) -> tuple[ByHand, Recordings]:
    hand = ByHand()
    recordings = Recordings(bench.broker, hand.spawn)
    recordings.begin(bench.host, Plan(folder, 64 * MIB))
    recordings._running["/"][0]._memory_max = memory_max
    return hand, recordings


def test_a_disk_that_cannot_follow_makes_a_gap_and_holds_nobody_up(bench: CoreBench, tmp_path: Path) -> None:
    """What waits in memory is bounded, and after the gap everything is described anew."""
    hand, recordings = slow(bench, tmp_path, memory_max=MIB)
    recorder, _ = recordings._running["/"]
    for _ in range(25):
        bench.publish("q", BODY)
        bench.advance(FLUSH_S)
        assert recorder.writer.backlog <= MIB
    assert (recorder.gaps, recorder.lost > 0) == (1, True)
    recorder.writer.close()
    hand.work()  # all that waited until now is written
    recorder.writer._file = os.open(recorder.writer.path, os.O_WRONLY | os.O_APPEND)
    bench.advance(FLUSH_S)
    bench.publish("q", b"after the gap")
    recordings.close()
    hand.work()
    path = recorder.writer.path
    assert RecordKind.GAP in kinds_of(path)
    player, report = replayed(path)
    assert (report.gaps, report.ended, report.differences) == (1, True, [])
    assert player.host.queue("q").ready == 26


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A switch: while it holds True, the disk has room for half of what is written."""
    switch, write = [False], os.write

    def writes(file: int, octets: bytes) -> int:
        if not switch[0]:
            return write(file, octets)
        if len(octets) > 100:
            return write(file, octets[:50])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing.os, "write", writes)
    return switch


def test_what_a_full_disk_has_refused_is_a_gap(
    bench: CoreBench, tmp_path: Path, full_disk: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    hand, recordings = slow(bench, tmp_path)
    recorder, _ = recordings._running["/"]

    def disk(is_full: bool) -> None:
        """Write what waits."""
        full_disk[0] = is_full
        bench.advance(FLUSH_S)
        recorder.writer.close()
        hand.work()
        recorder.writer._file = os.open(recorder.writer.path, os.O_WRONLY | os.O_APPEND)
        full_disk[0] = False

    bench.publish("q", b"1")
    disk(is_full=False)
    bench.publish("q", b"2")
    disk(is_full=True)
    bench.publish("q", b"3")
    disk(is_full=False)
    bench.advance(AGAIN_S)
    bench.publish("q", b"4")
    recordings.close()
    hand.work()
    path = recorder.writer.path
    assert [each.levelname for each in caplog.records] == ["ERROR", "WARNING"]
    player, report = replayed(path)
    assert (report.gaps, report.ended, report.differences) == (1, True, [])
    assert player.host.queue("q").ready == 4
    assert records_of(path)[-1].kind is RecordKind.END


class Heard(EventListener):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def test_beginning_and_end_are_events(bench: CoreBench, tmp_path: Path) -> None:
    heard = Heard()
    bench.broker.events.listeners.append(heard)
    bench.broker.events.actor = "root"
    path = Recorded(bench.broker, tmp_path).end()
    told = [(each.name, each.virtual_host, each.actor, each.facts["file"]) for each in heard.events]
    assert told == [
        ("recording.started", "/", "root", str(path)),
        ("recording.stopped", "/", "root", str(path)),
    ]


def test_a_virtual_host_that_is_deleted_ends_its_recording(bench: CoreBench, tmp_path: Path) -> None:
    recorded = Recorded(bench.broker, tmp_path)
    bench.publish("q", b"1")
    bench.broker.delete_virtual_host("/")
    assert recorded.recordings.all() == []
    while RecordKind.END not in kinds_of(recorded.path):
        os.sched_yield()
    assert replayed(recorded.path)[1].ended is False


def test_a_node_that_ends_completes_the_files_of_its_recordings(bench: CoreBench, tmp_path: Path) -> None:
    recorded = Recorded(bench.broker, tmp_path)
    bench.publish("q", b"1")
    recorded.recordings.close()
    assert RecordKind.END in kinds_of(recorded.path)


def test_a_node_that_ends_waits_for_recordings_that_have_ended_just_before(
    bench: CoreBench, tmp_path: Path
) -> None:
    def spawn(name: str, work: Callable[[], None]) -> Callable[[float], None]:
        return lambda seconds: work()  # a thread that has its turn once something waits for it

    recordings = Recordings(bench.broker, spawn)
    path = Path(str(recordings.begin(bench.host, Plan(tmp_path, 64 * MIB))["file"]))
    bench.publish("q", b"1")
    recordings.end("/")
    assert kinds_of(path) == []
    recordings.close()
    assert kinds_of(path)[-1] is RecordKind.END
