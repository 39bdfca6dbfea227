"""List things as RabbitMQ's API does: those with a name, sorted by a column, a page of them, some columns only.

    things ──name──> chosen ──sort──> runs, merged ──page──> things of the page ──fields──> rows ──> JSON

A table of fields has a function for each field of a thing, so that only what is asked for is computed: to sort ten
thousand queues by one column takes that column of them, and a page takes the rows of its hundred. Nothing here takes
longer than a turn; other work has its turns between, and each thing is shown as it is when it is reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from heapq import merge
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import attrs

from leveret.clock import Turn
from leveret.errors import PreconditionFailed
from leveret.observability.strict_json import strict
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.patterns import name_filter
from leveret.protocols.http.server.long_answers import LongAnswer
from leveret.protocols.http.server.portioned_answers import PortionedAnswer, turn_of
from leveret.protocols.http.server.replies import API
from leveret.protocols.http.server.request import Refused, Request
from leveret.values import Json

T = TypeVar("T")
Fields: TypeAlias = Mapping[str, Callable[[T], Json]]
Steps: TypeAlias = "Generator[float, None, Response]"
Key: TypeAlias = "tuple[object, ...]"

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
RUN: Final = 1000  # things that are sorted in one go: 1 ms
ROW_OCTETS: Final = 2048  # of JSON, roughly
SHORT: Final = 1000  # lists of up to so many rows claim room only as they grow
COLUMNS_MAX: Final = 200
ENCODER: Final = json.JSONEncoder(check_circular=False, separators=(",", ":"))  # made once: 2 us less a row


@attrs.frozen
class ListQuery:
    """The parameters of a request for a list."""

    page: int | None  # all pages if None
    page_size: int
    name: Callable[[str], bool]
    sort: Sequence[str]  # the path to a column's value; the natural order if empty
    reverse: bool
    columns: Sequence[Sequence[str]]  # paths; all columns if empty

    @classmethod
    def of(cls, request: Request) -> ListQuery:
        """Read the parameters of a request. Raises Refused or PreconditionFailed if one is wrong."""
        sort = request.one("sort", "")
        return cls(
            *page_of(request),
            name_filter(request.one("name", ""), request.one("use_regex", "false") == "true"),
            sort.split(".") if sort else (),
            request.one("sort_reverse", "false") == "true",
            columns_of(request),
        )

    def bounds(self, count: int) -> tuple[int, int]:
        """Return the indexes where the page begins, and before which it ends. Raises Refused if there is no such
        page."""
        if self.page is None:
            return 0, count
        first = (self.page - 1) * self.page_size
        if first >= count and self.page > 1:
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                f"there is no page {self.page}: the last one is {max(pages(count, self.page_size), 1)}",
                {"error": "page_out_of_range"},
            )
        return first, min(first + self.page_size, count)


def page_of(request: Request) -> tuple[int | None, int]:
    """Return page and size; the page is None if all are wanted. Raises Refused or PreconditionFailed."""
    if "page" not in request.query:
        return None, PAGE_SIZE
    page, size = number(request, "page", 1), number(request, "page_size", PAGE_SIZE)
    if page < 1 or not 1 <= size <= PAGE_SIZE_MAX:
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            f"page {page} of {size} each is no page; they begin with 1, and have up to {PAGE_SIZE_MAX}",
            {"error": "invalid_pagination_parameters"},
        )
    return page, size


def number(request: Request, name: str, otherwise: int) -> int:
    given = request.one(name, str(otherwise))
    try:
        return int(given[:20])
    except ValueError:
        raise PreconditionFailed(f"pagination: {name} is '{given[:40]}', not a whole number") from None


def columns_of(request: Request) -> Sequence[Sequence[str]]:
    """Return the columns that are wanted, each as a path: `message_stats.publish` is a field within a field."""
    given = request.one("columns", "")
    columns = given.split(",") if given else []
    if len(columns) > COLUMNS_MAX:
        raise PreconditionFailed(f"there are more than {COLUMNS_MAX} columns")
    return [column.split(".") for column in columns]


def pages(count: int, size: int) -> int:
    return -(-count // size)


# Lists.


def listed(
    request: Request,
    things: Iterable[T | None],
    fields: Fields[T],
    order: Callable[[T], Key],
    name: Callable[[T], str],
    keys: Fields[T] = MappingProxyType({}),
) -> Later:
    """List those of some things that a request asks for, in the order that it asks for.

    `things` are iterated in several turns, so they must not be a collection that may change; None stands for a step of
    work without a thing. The functions in `fields` must not fail, even if a thing has been deleted meanwhile. `order`
    returns the key of the natural order. `keys` compute parts of fields, such as `message_stats.publish`, without the
    rest, to sort by. Raises Refused or PreconditionFailed; a page that does not exist is refused in the answer.
    """
    wish = ListQuery.of(request)
    place = _place(wish, fields, keys, order)
    return PortionedAnswer(request.broker, _steps(request, wish, things, fields, place, name), API).begin()


def _steps(
    request: Request,
    wish: ListQuery,
    things: Iterable[T | None],
    fields: Fields[T],
    place: Callable[[T], Key],
    name: Callable[[T], str],
) -> Steps:
    turn = turn_of(request.broker)
    total, chosen = yield from _chosen(wish, things, name, turn)
    first, end = wish.bounds(len(chosen))
    with LongAnswer(request.broker) as made:
        if end - first > SHORT:
            made.expect((end - first) * ROW_OCTETS)
        wanted = yield from _sorted(chosen, place, wish.reverse, first, end, turn)
        begin, finish = ("[", "]") if wish.page is None else _frame(wish, total, len(chosen), len(wanted))
        made.add(begin.encode())
        yield from _rows(wish, wanted, fields, turn, made)
        made.add(finish.encode())
        return made.response()


def _chosen(
    wish: ListQuery, things: Iterable[T | None], name: Callable[[T], str], turn: Turn
) -> Generator[float, None, tuple[int, list[T]]]:
    """Return how many things there are, and those whose name matches. As in RabbitMQ, only pages filter by name."""
    total, chosen = 0, []
    for thing in things:
        if thing is not None:
            total += 1
            if wish.page is None or wish.name(name(thing)):
                chosen.append(thing)
        if turn.is_over(is_slow=wish.page is not None):
            yield turn.pause_s
    return total, chosen


def _place(
    wish: ListQuery, fields: Fields[T], keys: Fields[T], order: Callable[[T], Key]
) -> Callable[[T], Key]:
    """Return the function that gives the key to sort by."""
    if not wish.sort:
        return order
    field, way = keys.get(".".join(wish.sort)), wish.sort[:0]
    if field is None:
        field, way = fields.get(wish.sort[0]), wish.sort[1:]
    if field is None:
        return order
    return lambda thing: (*rank(within(field(thing), way)), *order(thing))


def _sorted(
    things: Sequence[T], place: Callable[[T], Key], reverse: bool, first: int, end: int, turn: Turn
) -> Generator[float, None, list[T]]:
    """Return the things from `first` to before `end`. Short runs are sorted, and merged as far as needed."""
    runs: list[list[Key]] = []
    for begin in range(0, len(things), RUN):
        run: list[Key] = []
        for at in range(begin, min(begin + RUN, len(things))):
            run.append((*place(things[at]), at))  # flat: nested tuples are work for the garbage collector
            if turn.is_over():
                yield turn.pause_s
        run.sort(reverse=reverse)
        runs.append(run)
    wanted = []
    for count, found in enumerate(merge(*runs, reverse=reverse)):
        if count >= end:
            break
        if count >= first:
            wanted.append(things[place_in(found)])
        if turn.is_over():
            yield turn.pause_s
    return wanted


def place_in(found: Key) -> int:
    at = found[-1]
    assert isinstance(at, int)
    return at


def _rows(
    wish: ListQuery, things: Sequence[T], fields: Fields[T], turn: Turn, made: LongAnswer
) -> Generator[float, None, None]:
    comma = ""
    for thing in things:
        made.add((comma + compact(row(thing, fields, wish.columns))).encode())
        comma = ","
        if turn.is_over(is_slow=True):
            yield turn.pause_s


def _frame(wish: ListQuery, total: int, chosen: int, rows: int) -> tuple[str, str]:
    """Return the JSON before and after the rows of a page."""
    counts = {
        "filtered_count": chosen,
        "item_count": rows,
        "page": wish.page,
        "page_count": pages(chosen, wish.page_size),
        "page_size": wish.page_size,
        "total_count": total,
    }
    return f'{compact(counts)[:-1]},"items":[', "]}"


# Single things.


def told(request: Request, thing: T, fields: Fields[T]) -> Response:
    """Answer with the fields of a thing, or the columns wanted. Raises PreconditionFailed if these are too many."""
    return Response(HTTPStatus.OK, compact(row(thing, fields, columns_of(request))).encode())


def row(thing: T, fields: Fields[T], columns: Collection[Sequence[str]]) -> dict[str, Json]:
    """Return the fields of a thing, or the given columns, which may be parts of fields. Unknown ones are left out."""
    if not columns:
        return {name: field(thing) for name, field in fields.items()}
    known = {way[0]: fields[way[0]](thing) for way in columns if way[0] in fields}
    told: dict[str, Json] = {}
    for way in columns:
        if way[0] in known:
            _put(told, known, way)
    return told


def _put(into: dict[str, Json], source: Mapping[str, Json], way: Sequence[str]) -> None:
    """Copy the value at a path to the same path of another mapping."""
    name, *rest = way
    if name not in source:
        return
    value = source[name]
    if not rest:
        into[name] = value
    elif isinstance(value, Mapping):
        inner = into.setdefault(name, {})
        if isinstance(inner, dict):
            _put(inner, value, rest)


def within(value: Json, way: Sequence[str]) -> Json:
    """Return the value at a path within a value, or None if there is none."""
    for name in way:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def rank(value: Json) -> Key:
    """Return a key that orders values of any kind: numbers, booleans, texts, the rest. None counts as 0."""
    match value:
        case None:
            return 0, 0
        case bool():
            return 1, value
        case int() | float():
            return 0, value
        case str():
            return 2, value
        case _:
            return 3, len(value)


def compact(content: Json) -> str:
    """Return JSON without spaces; `indent` would take the encoder written in Python, at ten times the time."""
    return strict(ENCODER.encode(content))
