"""How far pipelines are: what they report, who may, who sees it, and how far behind that is by now."""

from __future__ import annotations

import json

import pytest

from leveret.config.config import parse
from leveret.protocols.http.bulk import pipelines
from leveret.protocols.http.metrics import node
from leveret.server.node.assembly import put_pipelines
from tests.harness.http import Response
from tests.http.stand import Asking, Stand

POSITION = {"source": "s", "partition": 0, "position": 0, "behind": 0}


class Piped(Stand):
    def put(self, name: str, body: object, user: str = "reader") -> Response:
        asking = Asking(self.broker)
        asking.send(
            "PUT", f"/api/leveret/pipelines/%2F/{name}", json.dumps(body).encode(), login=f"{user}:sesame"
        )
        return asking.response

    def report(self, name: str = "lake", position: int = 1, **more: object) -> Response:
        partition = {"source": "s", "partition": 0, "position": position, "behind": 9}
        return self.put(name, {"batch": 3, "rows": 40, "partitions": [{**partition, **more}]})

    def listed(self, user: str = "reader") -> list[dict[str, object]]:
        asking = Asking(self.broker)
        asking.ask("", user, what="pipelines")
        found = asking.response.json
        assert isinstance(found, list)
        return found


@pytest.fixture
def stand() -> Piped:
    return Piped()


def test_a_pipeline_is_behind_what_there_is_now(stand: Piped) -> None:
    stand.publish(b"1", b"2", b"3")
    assert stand.report().status == 200
    stand.publish(b"4")
    (found,) = stand.listed()
    assert found == {
        "name": "lake",
        "vhost": "/",
        "user": "reader",
        "age_s": 0,
        "batch": 3,
        "rows": 40,
        "published": None,
        "rows_per_s": 0,
        "behind": 3,
        "behind_average": 3,
        "behind_maximum": 3,
        "partitions": [{"source": "s", "partition": 0, "position": 1, "behind": 3}],
    }


def test_of_another_stream_of_that_name_and_of_queues_the_report_counts(stand: Piped) -> None:
    stand.publish(b"1")
    stand.report(incarnation="another")
    assert stand.listed()[0]["behind"] == 9
    stand.report(incarnation=stand.stream.incarnation)
    assert stand.listed()[0]["behind"] == 0
    stand.host.declare_queue("simple", durable=True)
    stand.report(source="simple")
    assert stand.listed()[0]["behind"] == 9


def test_a_super_stream_has_a_position_for_each_partition(stand: Piped) -> None:
    exchange = stand.host.declare_exchange(
        "super", "direct", durable=True, arguments={"x-super-stream": True}
    )
    for order in range(2):
        stand.host.bind(
            exchange, stand.declare(f"s-{order}"), str(order), {"x-stream-partition-order": order}
        )
    stand.publish(b"1", b"2", to="s-1")
    given = [{"source": "super", "partition": n, "position": 0, "behind": 0} for n in range(3)]
    stand.put("lake", {"batch": 0, "rows": 0, "partitions": given})
    (found,) = stand.listed()
    assert (found["behind"], found["behind_average"], found["behind_maximum"]) == (2, 0.7, 2)


def test_only_who_may_read_the_sources_reports_and_sees(stand: Piped) -> None:
    stand.report()
    assert stand.listed("writer") == []
    assert stand.report(source="private").status == 403
    taken = stand.put("lake", {"batch": 0, "rows": 0, "partitions": []}, user="writer")
    assert taken.status == 400  # an administrator may replace it, but not with nothing
    asking = Asking(stand.broker)
    asking.ask("/lake", "reader", "DELETE", what="pipelines")
    assert asking.response.json == {"forgotten": "lake"}
    asking = Asking(stand.broker)
    asking.ask("/lake", "reader", "DELETE", what="pipelines")
    assert asking.response.status == 404


def test_those_that_the_node_runs_have_a_state_also_before_they_report(stand: Piped) -> None:
    entries = [{"sources": [name], "target": f"/lake/{name}", "user": "reader"} for name in ("s", "private")]
    put_pipelines(stand.broker, parse({"pipelines": entries}))
    (found,) = stand.listed()  # the other reads what this user may not
    assert {
        name: found[name] for name in ("name", "user", "state", "starts", "reason", "rows", "age_s", "behind")
    } == {
        "name": "s",
        "user": "reader",
        "state": "starting",
        "starts": 0,
        "reason": "",
        "rows": 0,
        "age_s": None,
        "behind": 0,
    }
    (pipeline,) = (each for each in pipelines.supervised(stand.broker, "/") if each.entry.title == "s")
    pipeline.on_end("its process was ended by signal 9 (Killed)")
    stand.publish(b"1", b"2")
    stand.report("s")
    stand.report("another")
    another, found = stand.listed()
    assert "state" not in another
    assert (found["state"], found["reason"], found["rows"], found["behind"]) == (
        *("terminated", "its process was ended by signal 9 (Killed)"),
        *(40, 1),
    )
    assert (found["sources"], found["target"]) == (["s"], "/lake/s")
    asking = Asking(stand.broker)
    asking.send("GET", "/api/leveret/pipelines", login="reader:sesame")
    assert asking.response.json == stand.listed()


@pytest.mark.parametrize(
    "partition",
    [7, {}, {"source": "s", "partition": -1, "position": 0, "behind": 0}, {"source": "s", "partition": 0}],
)
def test_a_report_that_makes_no_sense_is_refused(stand: Piped, partition: object) -> None:
    assert stand.put("lake", {"batch": 0, "rows": 0, "partitions": [partition]}).status == 400
    assert stand.listed() == []


def test_there_is_an_end_to_what_is_kept(stand: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "PIPELINES_MAX", 2)
    assert [stand.report(name).status for name in ("a", "b", "a", "c")] == [200, 200, 200, 507]
    stand.advance(pipelines.KEPT_S + 1)
    assert stand.report("c").status == 200
    assert [each["name"] for each in stand.listed()] == ["c"]


def test_prometheus_is_told_how_far_pipelines_are(stand: Piped) -> None:
    def measured() -> dict[str, list[tuple[str, float]]]:
        found = node.families(stand.broker, frozenset(("overview_metrics",)))
        return {each.name: samples for each, samples in found if "pipeline" in each.name}

    assert measured() == {}
    stand.publish(b"1", b"2", b"3")
    stand.put("sink", {"batch": 0, "rows": 5, "published": 2, "partitions": [POSITION]})
    stand.report("lake")
    stand.advance(7)
    behind = measured()["leveret_pipeline_messages_behind"]
    assert behind == [
        ('{vhost="/",pipeline="lake",source="s",partition="0"}', 2),
        ('{vhost="/",pipeline="sink",source="s",partition="0"}', 3),
    ]
    assert measured()["leveret_pipeline_rows_total"] == [
        ('{vhost="/",pipeline="lake"}', 40),
        ('{vhost="/",pipeline="sink"}', 5),
    ]
    assert measured()["leveret_pipeline_rows_published_total"] == [('{vhost="/",pipeline="sink"}', 2)]
    assert [age for _, age in measured()["leveret_pipeline_report_age_seconds"]] == [7, 7]
