"""The page about staged publishing tells the truth: its writer's blocks are taken, and its numbers are the code's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.features.staging.batch import NUMBER_MAX, Batch, BatchPart, Piece, used_note
from leveret.features.staging.staging import (
    BATCH_MAX_S,
    NAME_MAX,
    NAME_MAX_S,
    NOTES_MAX,
    STAGINGS_MAX,
    stagings_of,
)
from leveret.protocols.http.bulk import publish, staging
from leveret.protocols.http.bulk.input_blocks import ORIGINS_OCTETS_MAX, ROWS_MAX
from leveret.protocols.http.server.adapter import AROUND_OCTETS
from leveret.protocols.http.server.memory_budget import ROOM_OCTETS
from leveret.protocols.http.server.request import Route
from tests.http.press import BASE, Press

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "bulk-access.md").read_text().partition("## Staged publishing")[2]
FORMAT = (DOCS / "store-format.md").read_text()


def test_the_writer_on_the_page_makes_blocks() -> None:
    (program,) = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Callable[..., bytes]] = {}
    exec(program, names)  # type: ignore[arg-type]
    press = Press()
    made = names["block"]("", "q", [b"a", b"", b"ccc"]) + names["block"]("", "q", [b"d"], b"\x00\x00")
    assert press.stage("7/0/1?piece=0", made) == {"rows": 4}
    assert press.commit(7, [0, 1, 4]) == {"published": 4, "unroutable": 0, "repeated": False}
    found = [(each.message.body, each.message.facts.durable) for each in press.queue.waiting()]
    assert found == [(b"a", True), (b"", True), (b"ccc", True), (b"d", False)]


@pytest.mark.parametrize(
    "said",
    [
        f"may be up to {NUMBER_MAX}.",
        f"After {staging.PATIENCE_S:.0f} seconds",
        f"and {AROUND_OCTETS >> 20} MiB, {ROWS_MAX} rows, and origins of {ORIGINS_OCTETS_MAX >> 20} MiB",
        f"1 to {NAME_MAX} octets and up to {NOTES_MAX} pieces, a virtual host up to {STAGINGS_MAX} names",
        f"or {ROOM_OCTETS >> 20} MiB of large bodies",
        f"goes {NAME_MAX_S // 86400} days after its last request",
    ],
)
def test_the_numbers_on_the_page_are_those_of_the_code(said: str) -> None:
    assert said in " ".join(PAGE.split())
    assert BATCH_MAX_S == 86400, "a day"


@pytest.mark.parametrize(
    "route", [*staging.ROUTES, *publish.ROUTES], ids=lambda route: route.method + route.path
)
def test_every_route_is_on_the_page(route: Route) -> None:
    path = route.path.replace(BASE.rpartition("/")[0].replace("%2F", "{vhost}") + "/{name}", "…")
    path = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), path)
    assert f"`{route.method} {path}" in PAGE


def test_the_notes_of_a_staging_are_on_the_page_about_the_format() -> None:
    press = Press()
    press.commit(7)
    for name in stagings_of(press.host)["job"].log.sequences:
        assert f"`{name.replace('7', 'BATCH')}`" in FORMAT
    assert f"`{used_note(7).replace('7', 'BATCH')}`" in FORMAT
    piece = Piece(BatchPart(1, 2, 3), 4, 0, 5)
    assert piece.note == "1/2/3/4/5"
    assert "`BATCH/PARTITION/ATTEMPT/PIECE/END`" in FORMAT
    assert Batch(7, [piece], stagings_of(press.host)["job"].log).rows == 5
