"""What keeps deleted rows in the database is named, in the log and in a metric."""

from __future__ import annotations

import logging
from threading import Event
from time import monotonic

import psycopg
import pytest

from leveret.durable.store.postgres.horizon import LONG_S, Horizon, HorizonWatch
from leveret.durable.store.postgres.session import Database
from tests.durable.store.shelf import PATIENCE_S, Shelf

DUMP = ("the transaction", "pg_dump", "process 7, user backup")


def test_a_transaction_of_somebody_else_is_found_with_its_name_and_age(shelf: Shelf, database: Database):
    watch = HorizonWatch(database, "test", Event())
    ends_at = monotonic() + PATIENCE_S
    watch.look()
    while watch.horizon.oldest is not None:  # the store's own threads look at what there is
        assert monotonic() < ends_at
        watch.look()
    with psycopg.connect(database.dsn, application_name="a report") as other:
        other.execute("begin isolation level repeatable read")
        other.execute("select 1 from pg_class limit 1")
        other.execute("select pg_sleep(0.01)")
        watch.look()
        [metric] = watch.horizon.metrics()
        assert metric.name == "leveret_store_rows_held_seconds"
        [(labels, age_s)] = metric.samples
        assert labels == {"kind": "transaction", "application_name": "a report"}
        assert age_s > 0.005
        oldest = watch.horizon.oldest
        assert oldest is not None
        assert f"process {other.info.backend_pid}" in oldest.which
    watch.look()
    assert all(labels["application_name"] != "a report" for labels, _ in watch.horizon.metrics()[0].samples)


def test_what_is_open_for_long_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture):
    horizon = Horizon()
    with caplog.at_level(logging.INFO, "leveret.store"):
        for age_s in (LONG_S - 1, LONG_S + 1, LONG_S + 31):
            horizon.see([(*DUMP, age_s, "", 100)], 0.0)
        horizon.see([], 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "the transaction of 'pg_dump' (process 7, user backup) has been open for 61 s: until it ends the database "
        "keeps all rows that were deleted since",
        "the database can remove deleted rows again: the transaction of 'pg_dump' has ended",
    ]


def test_a_slot_is_as_old_as_its_place_and_one_that_goes_on_holds_nothing(caplog: pytest.LogCaptureFixture):
    horizon = Horizon()
    for now, place in ((0.0, "700"), (50.0, "700"), (100.0, "720"), (150.0, "720")):
        horizon.see([("the replication slot", "cdc", "pgoutput", None, place, 5)], now)
        assert horizon.oldest is not None
        assert horizon.oldest.age_s == (50.0 if now in (50.0, 150.0) else 0.0)
    assert caplog.records == []
    horizon.see([("the replication slot", "cdc", "pgoutput", None, "720", 5)], 200.0)
    assert "the replication slot 'cdc' (pgoutput) has been open for 100 s" in caplog.text


def test_without_a_holder_there_is_no_sample():
    horizon = Horizon()
    horizon.see([], 0.0)
    assert [list(metric.samples) for metric in horizon.metrics()] == [[]]
