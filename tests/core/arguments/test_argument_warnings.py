"""Sentences about what has no effect: which they are, that they are few in the log, and that names cannot hurt."""

from __future__ import annotations

import logging

import pytest

from leveret.arguments.row import Effect, Row
from leveret.arguments.warnings import (
    NOTICES_MAX,
    Notices,
    binding_warnings,
    exchange_warnings,
    policy_warnings,
    queue_warnings,
)
from leveret.policy import Policy
from leveret.protocols.amqp010.broker.argument_rows import QUEUE_ROWS
from tests.harness.bench import CoreBench


def test_what_is_implemented_needs_no_word() -> None:
    assert queue_warnings({}) == []
    assert queue_warnings({"x-max-length": 5, "x-queue-type": "quorum"}) == []
    assert policy_warnings({"max-length": 5}) == []
    assert binding_warnings({"anything": 5}, ()) == []


def test_a_name_that_nobody_knows_is_told_with_the_one_that_was_meant() -> None:
    assert queue_warnings({"x-max-lenght": 5}) == [
        "x-max-lenght is not known here and has no effect; did you mean x-max-length?"
    ]
    assert queue_warnings({"x-colour": 5}) == ["x-colour is not known here and has no effect"]


def test_a_value_that_asks_for_what_happens_anyway_needs_no_word() -> None:
    assert queue_warnings({"x-queue-mode": "default"}) == []
    assert len(queue_warnings({"x-queue-mode": "lazy"})) == 1


def test_arguments_that_a_protocol_translates_are_known() -> None:
    rows = {row.name: row for row in QUEUE_ROWS}
    assert queue_warnings({"qpid.max_count": 5, "qpid.fairshare-3": 1}, rows) == []
    assert queue_warnings({"qpid.paging": 1}, rows)[0].startswith("qpid.paging has no effect here")
    assert queue_warnings({"qpid.max_count": 5})[0].startswith("qpid.max_count is not known here")


def test_a_type_of_exchange_knows_its_arguments() -> None:
    own = (Row(name="x-own", about="Own."), Row(name="x-old", about="Old.", effect=Effect.NO_EFFECT))
    assert exchange_warnings({"x-own": 1, "x-named": 2, "alternate-exchange": "a"}, own, ["x-named"]) == []
    assert exchange_warnings({"x-old": 1}, own) == ["x-old has no effect here"]
    assert binding_warnings({"x-own": 1, "x-owm": 1}, own) == [
        "x-owm is not known here and has no effect; did you mean x-own?"
    ]


def test_criteria_of_a_headers_exchange_are_fine_where_they_count() -> None:
    bench = CoreBench()
    headers, queue = bench.host.exchange("amq.headers"), bench.queue()
    assert bench.host.bind(headers, queue, "", {"x-match": "all-with-x", "x-own": 1}).warnings() == []
    assert bench.host.bind(headers, queue, "", {"x-match": "all", "x-own": 1, "a": 1}).warnings() == [
        "x-own is not known here and has no effect"
    ]


def test_a_name_is_short_and_printable_when_it_is_told() -> None:
    (long,) = queue_warnings({"x-" + "a" * 255: 1})
    assert len(long) < 160
    (odd,) = queue_warnings({"x-\x1b[2J": 1})
    assert odd.isprintable()


def test_a_declaration_has_a_bounded_number_of_warnings() -> None:
    assert len(queue_warnings({f"x-{number}": 1 for number in range(5000)})) == 101


def test_a_warning_is_logged_once_for_a_kind_of_object_in_a_virtual_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = CoreBench()
    other = bench.broker.add_virtual_host("other")
    with caplog.at_level(logging.WARNING, "leveret.arguments"):
        for number in range(100):
            bench.queue(f"q{number}", x_queue_mode="lazy")
        other.declare_queue("q", arguments={"x-queue-mode": "lazy"})
        bench.broker.policies.set(Policy("p", "/", "^q", {"queue-mode": "lazy", "max-length": 5}))
        bench.broker.policies.set(Policy("p", "/", "^q", {"queue-mode": "lazy", "max-length": 6}))
        bench.host.declare_exchange("x", "direct", arguments={"x-own": 1})
        bench.host.bind(bench.host.exchange("x"), bench.host.queue("q1"), "k", {"x-own": 1})
    lazy = "has no effect here: every queue pages waiting messages out when memory is needed"
    assert caplog.messages == [
        f"queue 'q0' in vhost '/': x-queue-mode {lazy}",
        f"queue 'q' in vhost 'other': x-queue-mode {lazy}",
        f"policy 'p' in vhost '/': queue-mode {lazy}",
        "exchange 'x' in vhost '/': x-own is not known here and has no effect",
        "binding from exchange 'x' in vhost '/': x-own is not known here and has no effect",
    ]


def test_names_that_clients_invent_cannot_flood_the_log() -> None:
    lines: list[str] = []
    notices = Notices()
    notices.tell = lines.append
    for number in range(3 * NOTICES_MAX):
        notices.notice("/", "queue", "q", [f"x-{number} is not known here"])
    assert len(lines) == NOTICES_MAX + 1
    assert lines[-1] == "no more warnings of arguments without effect until a restart"
