"""Staged publishing in a store: pieces, commits, crashes in any order, against a model. Each message once, or never."""

from __future__ import annotations

import json
from typing import TypeAlias

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.durable.store.memory import MemoryStore
from leveret.features.staging.batch import BatchPart
from leveret.features.staging.staging import Staging, stagings_of
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.values import Properties
from tests.durable.site import Site
from tests.harness.http import Line
from tests.http.press import BASE, CONFIG, Press, packed, rows

Bodies: TypeAlias = list[str]
Key: TypeAlias = tuple[int, int, int]  # batch, partition, attempt

BATCHES = 3  # that may be staged at a time


@attrs.define
class Staged:
    """What the model knows of a part: the bodies of each piece, and how many pieces the broker has promised to keep."""

    pieces: list[Bodies] = attrs.Factory(list)
    promised: int = 0

    @property
    def bodies(self) -> Bodies:
        return [body for piece in self.pieces for body in piece]


@attrs.frozen
class Committed:
    """A batch, and what was staged of it before."""

    batch: int
    bodies: Bodies
    parts: dict[Key, Staged]


@attrs.frozen
class Asked:
    """A request without an answer yet."""

    line: Line
    what: str
    batch: int
    part: tuple[int, int] = (0, 0)
    pieces: int = 0  # that are there when it is answered


class StagingMachine(RuleBasedStateMachine):
    """A staging beside a dictionary of parts and a list of what was committed."""

    @initialize()
    def begin(self) -> None:
        self.site = Site(MemoryStore(held=True), CONFIG)
        self.press = Press(self.site)
        self.site.queue()
        self.site.queue("s", x_queue_type="stream")
        self.parts: dict[Key, Staged] = {}
        # whether the broker has kept the last ones is seen after a crash
        self.committed: list[Committed] = []
        self.published = 0  # batches of these that were answered
        self.asked: list[Asked] = []
        self.site.settle()
        while self.site.store.flying is not None:
            self.land()

    @property
    def staging(self) -> Staging | None:
        return stagings_of(self.site.host).get("job")

    @property
    def next_batch(self) -> int:
        return self.committed[-1].batch + 1 if self.committed else 0

    def ask(self, what: str, path: str, body: bytes, batch: int, *more: object) -> None:
        line = self.press.send("POST", f"{BASE}/{path}", body)
        self.asked.append(Asked(line, what, batch, *more))  # type: ignore[arg-type]
        if self.staging is not None:
            self.staging.portion, self.staging.pouring.portion = 2, 3
        self.hear()

    # What clients do.

    @rule(
        ahead=st.sampled_from([0, 0, 0, 1, 2]),
        part=st.tuples(st.integers(0, 2), st.integers(0, 1)),
        count=st.integers(1, 7),
        back=st.integers(0, 2),
        key=st.sampled_from("qs"),
        alike=st.booleans(),
    )
    def stage(self, ahead: int, part: tuple[int, int], count: int, back: int, key: str, alike: bool) -> None:
        """The next piece, or one that is there again with other rows, which nobody must see. Rows that are
        not alike do not stay in their block."""
        batch = self.next_batch + ahead
        if any(asked.what == "stage" and (asked.batch, asked.part) == (batch, part) for asked in self.asked):
            return
        staged = self.parts.setdefault((batch, *part), Staged())
        number = max(0, len(staged.pieces) - back)
        name = f"{batch}/{part[0]}/{part[1]}/{number}"
        again = "again-" if number < len(staged.pieces) else ""
        bodies = [f"{key}-{again}{name}.{row}" for row in range(count)]
        if not again:
            staged.pieces.append(bodies)
        path = f"{name.rpartition('/')[0]}?piece={number}"
        block = rows(key, *[body.encode() for body in bodies]) if alike else unlike(key, bodies)
        self.ask("stage", path, block, batch, part, len(staged.pieces))

    @rule(late=st.booleans(), wrong=st.integers(0, 9))
    def commit(self, late: bool, wrong: int) -> None:
        """The first attempts, or the last ones."""
        batch = self.next_batch
        if any(asked.what == "stage" for asked in self.asked):
            return  # whether that comes in before is chance
        found = sorted((key[1:] for key in self.parts if key[0] == batch), reverse=not late)
        parts = sorted(dict(found).items())
        said = [[*part, len(self.parts[batch, *part].bodies)] for part in parts]
        if wrong == 0 and said:
            said[-1][-1] += 1
        body = json.dumps({"parts": said[::-1]}).encode()
        if wrong == 0 and said:
            self.ask("refused", f"{batch}/commit", body, batch)
            return
        bodies = [body for part in parts for body in self.parts[batch, *part].bodies]
        dropped = {key: self.parts.pop(key) for key in list(self.parts) if key[0] == batch}
        self.committed.append(Committed(batch, bodies, dropped))
        self.ask("commit", f"{batch}/commit", body, batch)

    @precondition(lambda self: self.committed)
    @rule(back=st.integers(0, 3))
    def commit_again(self, back: int) -> None:
        batch = self.committed[max(0, len(self.committed) - 1 - back)].batch
        self.ask("commit", f"{batch}/commit", b'{"parts": []}', batch)

    @rule(ahead=st.integers(0, BATCHES - 1))
    def drop(self, ahead: int) -> None:
        batch = self.next_batch + ahead
        if self.staging is None or self.asked:
            return
        line = self.press.send("DELETE", f"{BASE}/{batch}")
        while line.waits:
            self.land()
        bodies = [body for key, staged in self.parts.items() if key[0] == batch for body in staged.bodies]
        assert line.answer().content == {"dropped": len(bodies)}
        self.parts = {key: staged for key, staged in self.parts.items() if key[0] != batch}

    # What time brings.

    @rule()
    def land_all(self) -> None:
        for _ in range(6):
            self.land()

    @rule()
    def land(self) -> None:
        if self.site.store.flying is not None:
            self.site.store.land()
        self.wait()

    @rule()
    def wait(self) -> None:
        self.site.advance(0.05)
        self.hear()

    def hear(self) -> None:
        """Answers that have come."""
        for asked in [each for each in self.asked if not each.line.waits]:
            self.asked.remove(asked)
            response = asked.line.answer()
            if asked.what == "refused":
                assert (response.status, "missing" in response.content) == (409, True)
                continue
            assert response.status == 200, response.content
            staged = self.parts.get((asked.batch, *asked.part))
            if asked.what == "stage" and staged is not None:
                staged.promised = max(staged.promised, asked.pieces)
                rows_there = sum(map(len, staged.pieces[: asked.pieces]))
                assert response.content == {"rows": rows_there}
            elif asked.what == "commit":
                numbers = [each.batch for each in self.committed]
                self.published = max(self.published, numbers.index(asked.batch) + 1)

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        """What nobody was promised may be there, or not; but whole, and in its order."""
        if clean:
            if self.site.store.flying is not None:
                return
            self.site.journal.close()
        self.asked.clear()
        self.site = Site(self.site.store.reopened(held=True), CONFIG)
        self.press = Press(self.site)
        staging = self.staging
        if staging is None:
            assert not self.published
            assert not any(staged.promised for staged in self.parts.values())
            self.parts, self.committed = {}, []
            return
        staging.portion, staging.pouring.portion = 2, 3
        while self.committed and self.committed[-1].batch > staging.committed:
            self.parts |= self.committed.pop().parts
        assert self.published <= len(self.committed)
        for (batch, *part), staged in self.parts.items():
            found = staging.rows_of(BatchPart(batch, *part))
            sizes = [sum(map(len, staged.pieces[:count])) for count in range(len(staged.pieces) + 1)]
            assert found in sizes[staged.promised :], (
                "a piece is there as a whole, and stays if that was promised"
            )
            del staged.pieces[sizes.index(found) :]
            staged.promised = len(staged.pieces)

    @invariant()
    def every_message_is_there_once_and_in_its_order(self) -> None:
        wanted = [body for each in self.committed for body in each.bodies]
        promised = [body for each in self.committed[: self.published] for body in each.bodies]
        for key in "qs":
            found = self.press.bodies(key).split()
            assert found == going_to(key, wanted)[: len(found)]
            assert len(found) >= len(going_to(key, promised))

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        for _ in range(200):
            self.land()
        assert not self.asked, "everybody is answered in the end"
        wanted = [body for each in self.committed for body in each.bodies]
        for key in "qs":
            assert self.press.bodies(key).split() == going_to(key, wanted)


def unlike(key: str, bodies: Bodies) -> bytes:
    """A block of messages with ids."""
    properties = [ENCODING.write(Properties(durable=True, message_id=body)) for body in bodies]
    return packed(
        [
            Message(ENCODING, "", key, each, body.encode(), Facts())
            for each, body in zip(properties, bodies, strict=True)
        ]
    )


def going_to(key: str, bodies: Bodies) -> Bodies:
    return [body for body in bodies if body.startswith(key)]


TestStaging = StagingMachine.TestCase
TestStaging.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


# One story, cut off after each of its commits.

LANDINGS = {"q": 11, "s": 4}


def begun(landings: int, key: str) -> Press:
    """Two batches are staged, and committed one after the other; then so many commits become durable, and no more."""
    site = Site(MemoryStore(), CONFIG)
    site.queue()
    site.queue("s", x_queue_type="stream")
    press = Press(site)
    for batch in (4, 7):
        for attempt, partition in ((1, 1), (9, 0), (2, 1)):
            for piece in (0, 1):
                bodies = [f"{batch}.{partition}.{attempt}.{piece}.{row}".encode() for row in range(5)]
                press.stage(f"{batch}/{partition}/{attempt}?piece={piece}", rows(key, *bodies))
    staging = stagings_of(site.host)["job"]
    staging.pouring.portion = 3
    site.store.held = True
    for batch in (4, 7):
        body = json.dumps({"parts": [[1, 2, 10], [0, 9, 10]]}).encode()
        press.send("POST", f"{BASE}/{batch}/commit", body)
    for _ in range(landings):
        while site.store.flying is None:
            site.advance(0.05)
            if not staging.publishing and site.store.flying is None:
                return press
        site.store.land()
    return press


@pytest.mark.parametrize("key", ["q", "s"])
@pytest.mark.parametrize("count", range(1, 8))
def test_a_commit_is_answered_after_it_is_on_disk_wherever_a_portion_ends(key: str, count: int) -> None:
    machine = StagingMachine()
    machine.begin()
    machine.stage(ahead=0, part=(0, 0), count=count, back=0, key=key, alike=False)
    machine.land_all()
    machine.commit(late=False, wrong=1)
    while machine.site.store.flying is not None:
        machine.wait()
        machine.every_message_is_there_once_and_in_its_order()
        if machine.published:
            again = Press(Site(machine.site.store.reopened(), CONFIG))
            assert stagings_of(again.host)["job"].committed == 0
        machine.land()
    assert machine.published == 1


WANTED = [
    f"{batch}.{partition}.{attempt}.{piece}.{row}"
    for batch in (4, 7)
    for partition, attempt in ((0, 9), (1, 2))
    for piece in (0, 1)
    for row in range(5)
]


@pytest.mark.parametrize(
    ("key", "landings"), [(key, landing) for key, most in LANDINGS.items() for landing in range(most)]
)
def test_a_crash_between_any_two_commits_neither_loses_nor_repeats_a_message(key: str, landings: int) -> None:
    """Into a queue row by row, into a stream block by block."""
    before = begun(landings, key)
    after = Press(Site(before.site.store.reopened(), CONFIG))
    committed = {0: -1, 1: 4}.get(landings, 7)
    assert after.state()["batch"] == committed
    for _ in range(20):
        after.advance()
    assert after.bodies(key).split() == [body for body in WANTED if int(body[0]) <= committed]
    for batch in (4, 7):
        known = batch >= committed  # of others it is only remembered that they were
        wanted = {"published": 20 if known else 0, "unroutable": 0, "repeated": batch <= committed}
        assert after.commit(batch, [0, 9, 10], [1, 2, 10]) == wanted
    assert after.bodies(key).split() == WANTED
    notes = stagings_of(after.host)["job"].log.sequences
    assert sorted(notes) == ["committed", "published/7", "unroutable/7", "used"]


@pytest.mark.parametrize(("key", "landings"), LANDINGS.items())
def test_the_story_takes_so_many_commits(key: str, landings: int) -> None:
    """Or crashes behind the last of them would all be the same."""
    assert begun(landings - 3, key).bodies(key).split() != WANTED
    assert begun(landings - 1, key).bodies(key).split() == WANTED


def test_a_block_that_was_begun_row_by_row_is_gone_on_with_so() -> None:
    """What was bound for a queue goes to a stream from some row on."""
    press = begun(1, "q")
    done = press.bodies().split()
    assert len(done) % 5, "some of a block"
    press.site.store.held = False
    press.host.delete_queue(press.host.queues["q"])
    press.site.queue("q", x_queue_type="stream")
    while press.site.store.flying is not None:
        press.site.store.land()
    for _ in range(20):
        press.advance()
    assert done + press.bodies().split() == WANTED
