"""Dead letters that were counted: as a table, as CSV and JSON, as a picture."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs.dead_letters import Count, as_csv, as_json, as_text
from tests.interop.conftest import need_module


def died(hour: int, queue: str, reason: str, messages: int, key: str = "k") -> Count:
    return Count(datetime(2026, 11, 22, hour), queue, reason, "shop", key, messages, messages * 2)


COUNTS = [
    died(8, "orders", "expired", 5),
    died(8, "orders", "expired", 2, "l"),
    died(8, "mails", "rejected", 1),
    died(9, "orders", "expired", 40),
]


def test_dead_letters_are_told_by_kind_and_over_time():
    assert as_text(COUNTS).splitlines() == [
        "queue   reason    exchange  routing key  messages",
        "orders  expired   shop      k                  45",
        "orders  expired   shop      l                   2",
        "mails   rejected  shop      k                   1",
        "",
        "time (UTC)        queue   reason    messages",
        "2026-11-22 08:00  mails   rejected         1",
        "2026-11-22 08:00  orders  expired          7",
        "2026-11-22 09:00  orders  expired         40",
    ]
    assert as_text([]) == "no dead letters"
    assert as_csv(COUNTS).splitlines()[2] == "2026-11-22T08:00:00Z,orders,expired,shop,l,2,4"
    assert json.loads(as_json(COUNTS))[3]["messages"] == 40


def test_a_picture_shows_the_largest_and_the_others_together(tmp_path: Path):
    need_module("matplotlib")
    from leveret.pipeline.jobs import picture

    many = [died(8, f"q{number:02}", "expired", number + 1) for number in range(20)]
    found = picture.series([*many, died(9, "q19", "expired", 100)])
    assert list(found)[:2] == ["q19: expired", "q18: expired"]
    assert (len(found), list(found)[-1], sum(found["others"].values())) == (12, "others", sum(range(1, 10)))
    picture.draw(COUNTS, "hour", tmp_path / "dead.svg")
    assert "orders: expired" in (tmp_path / "dead.svg").read_text()
    picture.draw([], "day", tmp_path / "none.png")
    with pytest.raises(BadOption, match=r"not as 'dead\.gif'"):
        picture.draw(COUNTS, "hour", tmp_path / "dead.gif")
