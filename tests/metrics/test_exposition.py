"""Prometheus' text formats: what is written is what its own parser reads, whatever the names are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from leveret.observability.metric import COUNTER, GAUGE, UNTYPED
from leveret.protocols.http.metrics.exposition import Exposition, Family, labelled, sample, wants_open_metrics

AWKWARD = [
    '"',
    "\\",
    "\n",
    'a"},b="',
    "\\n",
    "\r",
    "\x85",
    "\u2028",
    "größe",
    "{}",
    "# EOF\n",
    "",
    "\x00",
    "\\\\n",
]


def written(open_: bool, kind: str, name: str, value: str) -> str:
    exposition = Exposition(open_)
    family = Family(name, kind, "What \\ it is.\nAnd more.")
    exposition.family(family, [sample(name, labelled({"queue": value, "vhost": "/"}), 1)])
    return b"".join(exposition.pieces()).decode()


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("value", AWKWARD)
def test_a_label_is_read_as_it_was(open_: bool, value: str) -> None:
    [family] = (open_metrics if open_ else plain)(written(open_, GAUGE, "leveret_x", value))
    assert [each.labels for each in family.samples] == [{"queue": value, "vhost": "/"}]


@given(st.text(max_size=20))
def test_any_name_is_one_line(value: str) -> None:
    text = written(False, GAUGE, "leveret_x", value)
    assert text.count("\n") == 3
    [family] = plain(text)
    assert family.samples[0].labels["queue"] == value.encode("utf-8", "backslashreplace").decode()


def test_a_name_that_is_no_utf_8_is_written_as_an_escape() -> None:
    [family] = plain(written(False, GAUGE, "leveret_x", "a\udcff"))
    assert family.samples[0].labels["queue"] == "a\\udcff"


def test_counters_are_called_as_each_format_wants_it() -> None:
    assert "# TYPE leveret_x_total counter\nleveret_x_total{" in written(
        False, COUNTER, "leveret_x_total", "q"
    )
    text = written(True, COUNTER, "leveret_x_total", "q")
    assert "# TYPE leveret_x counter\nleveret_x_total{" in text
    assert text.endswith("\n# EOF\n")


def test_what_has_no_type_has_none_in_either() -> None:
    assert "# TYPE leveret_x untyped" in written(False, UNTYPED, "leveret_x", "q")
    assert "# TYPE leveret_x unknown" in written(True, UNTYPED, "leveret_x", "q")


def test_details_have_names_of_their_own() -> None:
    def detailed(name: str) -> str:
        return Family(name, GAUGE, "").detailed.name

    assert detailed("rabbitmq_queue_messages") == "rabbitmq_detailed_queue_messages"
    assert detailed("leveret_stream_bytes") == "leveret_detailed_stream_bytes"
    assert detailed("rabbitmq_cluster_vhost_status") == "rabbitmq_cluster_vhost_status"
    assert detailed("process_open_fds") == "process_open_fds"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        ("text/plain;q=0.3, application/openmetrics-text;q=0.3", False),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.3", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x, text/plain", False),
        ("application/json", False),
        ("APPLICATION/OpenMetrics-Text; q=1", True),
        (",;,", False),
    ],
)
def test_the_format_is_the_one_that_is_preferred(accept: str, wanted: bool) -> None:
    assert wants_open_metrics(accept) is wanted
