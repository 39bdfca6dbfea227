"""Alarms from readings that the tests make up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.alarms import Alarms, DiskMonitor, MemoryMonitor, free_octets, resident_octets, total_octets

GIB = 1 << 30
MIB = 1 << 20


class Gauge:
    """A reading that the test moves."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.readings = 0

    def __call__(self, folder: Path | None = None) -> int:
        self.readings += 1
        return self.value


def memory(watermark: float | str = 0.4, total: int | None = 5 * GIB, used: int = 0) -> MemoryMonitor:
    return MemoryMonitor(watermark, used=Gauge(used), total=lambda: total)


LIMITS: list[tuple[float | str, int | None, int | None, str]] = [
    (0.4, 5 * GIB, 2 * GIB, "Memory limit set to 2048 MiB."),
    (1, 5 * GIB, 5 * GIB, "Memory limit set to 5120 MiB."),
    (3, 5 * GIB, 5 * GIB, "Memory limit set to 5120 MiB."),  # nobody has three times his memory
    (2_147_483_648, 5 * GIB, 2 * GIB, "Memory limit set to 2048 MiB."),
    ("2GiB", None, 2 * GIB, "Memory limit set to 2048 MiB."),
    ("512MB", 5 * GIB, 512_000_000, "Memory limit set to 488 MiB."),
    ("1000000", 5 * GIB, 1_000_000, "Memory limit set to 1 MiB."),
    (0.4, None, 429_496_730, "Memory limit set to 410 MiB."),
    (3, None, 3 * GIB, "Memory limit set to 3072 MiB."),  # X044
    (0, 5 * GIB, None, "Memory limit switched off."),
    ("0", 5 * GIB, None, "Memory limit switched off."),
    (0.0, None, None, "Memory limit switched off."),
]


@pytest.mark.parametrize(("watermark", "total", "limit", "text"), LIMITS)
def test_s153_s154_x044_a_watermark_is_a_limit(
    watermark: float | str, total: int | None, limit: int | None, text: str
) -> None:
    monitor = memory(watermark, total)
    assert (monitor.limit(), monitor.describe()) == (limit, text)


def test_x044_an_unknown_amount_of_memory_is_warned_about() -> None:
    text = "Unknown total memory size. Assuming memory size is 1024 MiB."
    assert memory(0.4, total=None).warning() == text
    assert memory(0.4).warning() is None
    assert memory("1GiB", total=None).warning() is None
    assert memory(0, total=None).warning() is None


def test_a_limit_that_the_node_itself_nearly_fills_is_warned_about() -> None:
    warning = MemoryMonitor("100MiB", lambda: 80 * MIB).warning()
    assert warning is not None
    assert "100 MiB, and the node takes 80 MiB" in warning
    assert MemoryMonitor("100MiB", lambda: 70 * MIB).warning() is None


def test_s153_what_was_freed_is_given_back_before_memory_is_called_low() -> None:
    used = Gauge(100)
    given_back: list[int] = []

    def give_back() -> None:
        given_back.append(used.value)
        used.value -= 20

    monitor = MemoryMonitor("100B", used=used, give_back=give_back)
    assert not monitor.low()
    assert given_back == []  # nothing is asked of the system while there is enough
    used.value = 119
    assert not monitor.low()
    used.value = 200
    assert monitor.low()
    assert given_back == [119, 200]


def test_s153_memory_that_the_next_messages_use_again_does_not_count() -> None:
    """It cannot be given back, because a few objects lie in between: an alarm would last for good."""
    used, reusable = Gauge(200), Gauge(0)
    monitor = MemoryMonitor("100B", used=used, give_back=lambda: None, reusable=reusable)
    assert monitor.low()
    reusable.value = 99
    assert monitor.low()
    reusable.value = 100
    assert not monitor.low()


@pytest.mark.parametrize("watermark", ["", "much", "-1", "1GX", -0.1, float("nan"), float("inf"), True])
def test_what_is_no_watermark_is_refused(watermark: float | str) -> None:
    with pytest.raises(ValueError, match="is n"):
        memory(watermark)


def test_s155_s160_memory_is_low_above_the_limit_and_not_at_it() -> None:
    assert not memory("1GiB", used=GIB).low()
    assert memory("1GiB", used=GIB + 1).low()


def test_s153_0_switches_the_monitor_off() -> None:
    assert not memory(0, used=1 << 60).low()


@given(st.floats(0, 1), st.integers(0, 1 << 50), st.integers(0, 1 << 50))
def test_s153_who_is_low_at_the_highest_watermark_is_low_at_each(watermark: float, total: int, used: int):
    monitor = memory(watermark, total, used)
    if memory(1.0, total, used).low():
        assert monitor.low() or monitor.limit() is None


def test_s159_disk_is_low_below_the_limit() -> None:
    free = Gauge(50_000_000)
    monitor = DiskMonitor(Path("anywhere"), free=free)
    assert monitor.describe() == "Disk free limit set to 48 MiB."
    assert not monitor.low()
    free.value -= 1
    assert monitor.low()
    monitor.set_free_limit("10MB")
    assert not monitor.low()


def test_s159_what_will_certainly_be_written_counts_as_written() -> None:
    monitor = DiskMonitor(Path("anywhere"), free=Gauge(51_000_000))
    monitor.ahead = lambda: 1_000_000
    assert not monitor.low()
    monitor.ahead = lambda: 1_000_001
    assert monitor.low()


def test_s159_without_a_folder_or_a_limit_or_a_reading_disk_is_never_low() -> None:
    for monitor in (
        DiskMonitor(None, free=Gauge(0)),
        DiskMonitor(Path("anywhere"), 0, free=Gauge(0)),
        DiskMonitor(Path("anywhere"), free=lambda folder: None),
    ):
        assert not monitor.low()
    assert DiskMonitor(None).describe() == "Disk free limit switched off."


class Told:
    """What a listener has heard."""

    def __init__(self) -> None:
        self.reasons: list[str | None] = []

    def __call__(self, reason: str | None) -> None:
        self.reasons.append(reason)


def watched() -> tuple[Alarms, Gauge, Gauge, Told]:
    """Memory is low above 100, disk below 100."""
    used, free, told = Gauge(0), Gauge(100), Told()
    monitors = (MemoryMonitor("100B", used=used), DiskMonitor(Path("anywhere"), 100, free=free))
    alarms = Alarms(monitors, interval_s=1.0)
    alarms.listen(told)
    return alarms, used, free, told


def test_s157_s158_listeners_hear_each_change_once_and_none_at_the_end() -> None:
    alarms, used, free, told = watched()
    for now, (used.value, free.value) in enumerate(
        [(0, 100), (101, 100), (200, 100), (101, 99), (0, 99), (0, 100)]
    ):
        alarms.check(now)
    assert told.reasons == ["low on memory", "low on memory & low on disk", "low on disk", None]
    assert alarms.reason is None


def test_there_is_no_hysteresis() -> None:
    alarms, used, _, told = watched()
    for now in range(4):
        used.value = 101 - now % 2
        alarms.check(now)
    assert told.reasons == ["low on memory", None, "low on memory", None]


def test_readings_are_taken_once_an_interval() -> None:
    alarms, used, _, _ = watched()
    assert (alarms.check(10.0), alarms.check(10.9)) == (11.0, 11.0)
    assert used.readings == 1
    assert alarms.check(11.0) == 12.0
    assert used.readings == 2


def test_s161_a_new_limit_holds_from_the_next_check() -> None:
    alarms, used, _, told = watched()
    memory_monitor = alarms.monitors[0]
    assert isinstance(memory_monitor, MemoryMonitor)
    used.value = 150
    alarms.check(0.0)
    memory_monitor.set_watermark("200B")
    alarms.check_soon()
    alarms.check(0.1)
    assert told.reasons == ["low on memory", None]


def test_an_alarm_can_be_raised_by_hand() -> None:
    alarms, _, _, told = watched()
    alarms.set("under test")
    alarms.set("low on memory")
    alarms.check(0.0)
    assert alarms.reason == "under test & low on memory"
    alarms.clear("under test")
    alarms.clear("low on memory")
    alarms.clear("never raised")
    assert told.reasons == ["under test", "under test & low on memory", "low on memory", None]


def test_without_monitors_there_are_no_alarms() -> None:
    alarms = Alarms()
    alarms.check(0.0)
    assert alarms.reason is None


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:        8388608 kB\nMemFree:  1 kB\n"
V2 = "0::/system.slice/broker.service\n"
V1 = "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n"
MACHINES: list[tuple[dict[str, str], int | None]] = [
    ({"proc/meminfo": MEMINFO}, 8 * GIB),
    ({}, None),
    ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2}, 8 * GIB),
    (
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": V2,
            "sys/fs/cgroup/system.slice/broker.service/memory.max": "max\n",
            "sys/fs/cgroup/system.slice/memory.max": f"{GIB}\n",
        },
        GIB,
    ),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}, 512 * MIB),
    ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
    (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "9223372036854771712\n",
        },
        None,
    ),
    (
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/../other\n",
            "sys/fs/cgroup/other/memory.max": f"{16 * GIB}\n",
        },
        8 * GIB,
    ),
]


@pytest.mark.parametrize(("files", "total"), MACHINES)
def test_s153_the_memory_of_machine_and_control_group(
    tmp_path: Path, files: dict[str, str], total: int | None
) -> None:
    assert total_octets(written(tmp_path, files)) == total


def test_the_readings_of_this_machine_are_plausible(tmp_path: Path) -> None:
    assert resident_octets() > MIB
    assert resident_octets(tmp_path) > MIB  # without /proc: the highest value so far
    for reading in (total_octets(), free_octets(tmp_path)):
        assert reading is None or reading > MIB  # unknown, or more than this test needs
    assert free_octets(tmp_path / "to" / "be" / "made") is not None
    assert not MemoryMonitor("1TiB").low()
    assert MemoryMonitor("1B").low()  # whatever is given back
