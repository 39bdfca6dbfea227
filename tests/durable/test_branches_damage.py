"""Prepared branches whose log or record is damaged: what is left of them, and what whoever decides is told."""

from __future__ import annotations

import json
import logging

import pytest

from leveret.features.xa.branch import Verb, Verdict
from leveret.features.xa.branches import Branches
from tests.durable.branched import KEY, has, swapping
from tests.durable.site import Site
from tests.features.xa.branching import ALICE, Crew, xid


def damaged(site: Site) -> Site:
    """The next start, with the log's first segment unreadable."""
    site.settle()
    store = site.store.reopened()
    assert store.content.segments
    store.content.segments.clear()
    return Site(store)


@pytest.mark.parametrize("verb", [Verb.COMMIT, Verb.ROLL_BACK])
def test_what_has_lost_messages_says_so_when_it_is_decided_about(
    verb: Verb, caplog: pytest.LogCaptureFixture, site: Site
) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    with caplog.at_level(logging.ERROR, "leveret.store"):
        after = damaged(site)
    assert "branch '1-61-31' in vhost '/' has lost 6 of its 6 messages" in caplog.text
    crew = Crew(after.host)
    assert crew.ask("a", verb) is Verdict.MIXED
    assert crew.ask("a", Verb.COMMIT) is Verdict.MIXED
    last = after.again()
    assert last.host.guest(Branches).find(xid("a"), ALICE).verdict is Verdict.MIXED
    Crew(last.host).ask("a", Verb.FORGET)
    assert "branch" not in last.again().kinds()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 0),
        ("number", "7"),
        ("user", 5),
        ("verdict", "maybe"),
        ("accepted", {}),
        ("accepted", [[1]]),
        ("accepted", [[1, -1]]),
        ("accepted", [[1, True]]),
        ("paths", 1),
        ("paths", [[[1], [], 0]]),
        ("paths", [["q", [], False]]),
        ("paths", [[[1], "x", False]]),
        ("paths", [[[1], [5], False]]),
    ],
)
def test_a_record_that_says_nonsense_is_passed_over_and_stays(name: str, value: object, site: Site) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    said = json.loads(site.objects[KEY])
    assert name in said
    site.damage(KEY, json.dumps({**said, name: value}))
    after = site.again()
    assert len(after.host.guest(Branches)) == 0
    assert KEY in after.catalogue.unreadable
    assert KEY in after.again().objects
    assert after.store.content.segments, "somebody may mend it"


@pytest.mark.parametrize("name", ["", "1", "x-y-z", "1-61-3", "-1--" * 3])
def test_a_branch_without_a_name_is_passed_over(name: str, site: Site) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    site.store.content.objects[json.dumps(["branch", "/", name], separators=(",", ":"))] = site.objects[KEY]
    after = site.again()
    assert [str(each.xid) for each in after.host.guest(Branches).all()] == ["1-61-31"]


def test_a_path_that_is_not_there_loses_its_message_only(site: Site) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    said = json.loads(site.objects[KEY])
    site.damage(KEY, json.dumps({**said, "paths": said["paths"][:1]}))
    branch = site.again().host.guest(Branches).find(xid("a"), ALICE)
    assert has(branch) == "1 2 3 -> x z"
    assert branch.prepared.lost == 1
