"""The dashboard shows only what there is: each of its expressions names metrics that a node serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Final

from leveret.alarms import Alarms, DiskMonitor, MemoryMonitor
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from tests.metrics.stand import Front, Link, Stand, families

DASHBOARD: Final = json.loads((Path(__file__).parents[2] / "docs" / "grafana" / "leveret.json").read_text())
METRIC: Final = re.compile(r"\b(?:rabbitmq|leveret|process)_\w+")
LABEL: Final = re.compile(r'(\w+)=~"')
GROUPS: Final = (
    "queue_coarse_metrics",
    "queue_metrics",
    "stream_metrics",
    "exchange_metrics",
    "connection_coarse_metrics",
    "channel_metrics",
)
SCRAPED: Final = {"job", "instance"}  # labels that Prometheus adds

Panel = dict[str, object]


def panels() -> list[Panel]:
    found = DASHBOARD["panels"]
    assert isinstance(found, list)
    return found


def expressions() -> Iterator[str]:
    for panel in panels():
        targets = panel.get("targets", [])
        assert isinstance(targets, list)
        yield from (target["expr"] for target in targets)
    yield from (each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query")


def served(folder: Path) -> dict[str, set[str]]:
    """By the names of samples, their labels."""
    stand = Stand()
    stand.broker.alarms = Alarms((MemoryMonitor(0.4), DiskMonitor(folder)))
    stand.queue("q")
    stand.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    facts = ConnectionFacts(protocol="AMQP 0-9-1", user="u", virtual_host="/")
    stand.node.connected = [Link(1, Front(facts, [ChannelFacts(number=1)]))]
    asked = "/metrics/detailed?" + "&".join(f"family={group}" for group in GROUPS)
    found: dict[str, set[str]] = {}
    for target in ("/metrics", asked):
        for family in families(stand.text(target)):
            for sample in family.samples:
                found[sample.name] = set(sample.labels)
    return found


def test_each_expression_names_metrics_and_labels_that_are_served(tmp_path: Path) -> None:
    there = served(tmp_path)
    found = list(expressions())
    assert len(found) > 40
    for expression in found:
        names = METRIC.findall(expression)
        assert names, expression
        for name in names:
            assert name in there, expression
            assert set(LABEL.findall(expression)) <= there[name] | SCRAPED, expression


def test_counters_are_shown_as_rates_and_nothing_else_is() -> None:
    for expression in expressions():
        for name in METRIC.findall(expression):
            assert name.endswith("_total") == (f"rate({name}{{" in expression), expression


def test_legends_name_labels_that_are_served(tmp_path: Path) -> None:
    there = served(tmp_path)
    for panel in panels():
        targets = panel.get("targets", [])
        assert isinstance(targets, list)
        for target in targets:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert labels <= set.union(*(there[each] for each in METRIC.findall(target["expr"]))) | SCRAPED


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for one, other in combinations([panel["gridPos"] for panel in panels()], 2):
        assert isinstance(one, dict)
        assert isinstance(other, dict)
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
        assert one["x"] + one["w"] <= 24


def test_it_is_for_grafana_10_and_any_data_source() -> None:
    assert DASHBOARD["schemaVersion"] == 38
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {
        "datasource",
        "job",
        "instance",
        "vhost",
    }
    for panel in panels():
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["type"] in ("stat", "timeseries")
