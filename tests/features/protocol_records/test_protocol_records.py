"""Records of protocols: kept, changed, ended, and found again after a restart with their notes."""

from __future__ import annotations

import pytest

from leveret.features.protocol_records.protocol_records import ProtocolRecord, records_of
from tests.harness.bench import ClientBench, StoredBench

NAMES = ("line", "sessions", "lamp")


def kept(bench: StoredBench) -> list[str]:
    return [key for key, _ in bench.store.objects() if key.startswith('["protocol-record"')]


def added(bench: ClientBench, noted: bool = True) -> ProtocolRecord:
    record = records_of(bench.host).add(NAMES, {"user": "guest", "octets": b"\xff\0"}, noted)
    bench.settle()
    return record


def test_a_record_is_there_after_a_restart_with_its_notes() -> None:
    bench = StoredBench()
    record = added(bench)
    record.note("seen 7", 1)
    record.note("seen 8", 5)
    record.unnote("seen 7")
    record.unnote("seen 9")
    bench.settle()
    (found,) = records_of(bench.again().host).of("line", "sessions")
    assert (found.names, found.table) == (NAMES, {"user": "guest", "octets": b"\xff\0"})
    assert found.notes == {"seen 8": 5}


def test_a_changed_record_is_there_as_it_was_last() -> None:
    bench = StoredBench()
    record = added(bench)
    record.note("n", 1)
    record.change({"user": "ann"})
    after = bench.again()
    (found,) = records_of(after.host).of("line", "sessions")
    assert (found.table, found.notes) == ({"user": "ann"}, {"n": 1})
    found.note("m", 2)
    (last,) = records_of(after.again().host).of("line", "sessions")
    assert last.notes == {"n": 1, "m": 2}


@pytest.mark.parametrize("noted", [False, True])
def test_an_ended_record_leaves_nothing(noted: bool) -> None:
    bench = StoredBench()
    record = added(bench, noted)
    assert (bool(record.number), len(kept(bench))) == (noted, 1)
    record.note("n", 1)
    record.end()
    record.end()
    record.note("n", 2)
    record.change({})
    bench.settle()
    assert kept(bench) == []
    assert list(bench.store.producers()) == []
    assert records_of(bench.again().host).of("line", "sessions") == []


def test_records_are_of_one_protocol_and_one_collection() -> None:
    bench = ClientBench()
    records = records_of(bench.host)
    added(bench)
    records.add(("line", "other", "lamp"), {})
    assert [each.names for each in records.of("line", "sessions")] == [NAMES]
    assert (records.has_any("line"), records.has_any("lin")) == (True, False)


def test_they_end_with_their_virtual_host() -> None:
    bench = StoredBench()
    bench.broker.add_virtual_host("things")
    records_of(bench.broker.virtual_host("things")).add(NAMES, {}, True)
    bench.settle()
    assert len(kept(bench)) == 1
    bench.broker.delete_virtual_host("things")
    bench.settle()
    assert kept(bench) == []


def test_without_a_store_they_last_as_long_as_the_node() -> None:
    bench = ClientBench()
    record = added(bench)
    record.note("n", 1)
    assert record.notes == {"n": 1}
    record.end()
    assert records_of(bench.host).of("line", "sessions") == []
    assert "sessions" in record.described
