"""The kind of prepared and heuristically completed branches in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.catalogue import BRANCH
from leveret.durable.journal import Journal
from leveret.durable.kinds.kind import Kind, give_number, is_numbered
from leveret.durable.restoration import spans_of
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import Unreadable, read_text, written_text
from leveret.features.xa.branch import Branch, Verdict, xid_in
from leveret.features.xa.branches import Branches
from leveret.features.xa.prepared import Outline, Path, Prepared
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.restoration import Restoration


def record_of(prepared: Prepared) -> Json:
    outline = prepared.outline
    return {
        "number": prepared.number,
        "user": written_text(prepared.branch.user),
        "verdict": prepared.branch.verdict.value,
        "accepted": [list(each) for each in outline.accepted],
        "paths": [
            [list(path.queues), [written_text(name) for name in path.keepers], path.handled]
            for path in outline.paths
        ],
    }


def restore(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, name = restoration.host(names[0]), names[1]
    try:
        branch = Branch(host.guest(Branches), xid_in(name), record.text("user"))
    except ValueError:
        raise Unreadable("it has no name") from None
    branch.verdict = Verdict(record.text("verdict"))
    branch.prepared.outline = outline_in(record)
    restoration.number(branch.prepared, record)
    host.guest(Branches).add(branch)


def outline_in(record: ObjectRecord) -> Outline:
    accepted = tuple((first, second) for first, second in map(wholes, pairs(record.json("accepted"), 2)))
    paths = tuple(path_in(value) for value in pairs(record.json("paths"), 3))
    return Outline(accepted, paths)


def path_in(rows: list[Json]) -> Path:
    queues, keepers, handled = rows
    if not isinstance(keepers, list) or not isinstance(handled, bool):
        raise Unreadable("one of its paths is not valid")
    return Path(tuple(wholes(queues)), tuple(read_text(name) for name in keepers), handled)


def pairs(value: Json, length: int) -> list[list[Json]]:
    """Return a list of lists with `length` elements each. Raises Unreadable if it is something else."""
    if not isinstance(value, list):
        raise Unreadable("a list is missing")
    found = [each for each in value if isinstance(each, list) and len(each) == length]
    if len(found) < len(value):
        raise Unreadable(f"a list has something else than lists of {length}")
    return found


def wholes(value: Json) -> list[int]:
    if not isinstance(value, list):
        raise Unreadable("a list is missing")
    found = [each for each in value if isinstance(each, int) and not isinstance(each, bool) and each >= 0]
    if len(found) < len(value):
        raise Unreadable("a list has something else than whole numbers")
    return found


def begin(broker: Broker) -> None:
    """Give each prepared branch the segments of its log."""
    branches = {each.prepared.number: each for host in broker.hosts() for each in host.guest(Branches).all()}
    if branches:
        assert isinstance(broker.journal, Journal), "the branches come from its store"
        for number, spans in spans_of(broker.journal, branches).items():
            branches[number].begin(spans)


BRANCHES: Final = Kind(BRANCH, 2, record_of, restore, prepare=give_number, is_kept=is_numbered, begin=begin)
