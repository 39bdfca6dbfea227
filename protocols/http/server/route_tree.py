"""Find the routes of a path in a tree of segments, so that a hundred routes cost no more than one.

    "", "api", "queues", {vhost}, {name}  ──> GET, PUT, DELETE

A segment with a fixed name goes before a parameter; both are looked at, because a path may match several routes. An
empty last segment is not taken for a parameter: it is never meant as a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from leveret.protocols.http.server.request import Route

SEGMENTS_MAX: Final = 32  # of a path; no route has as many


class RouteTree:
    """A segment of paths, and the segments that may follow it."""

    __slots__ = ("any", "named", "routes")

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self.named: dict[str, RouteTree] = {}
        self.any: RouteTree | None = None
        self.routes: list[Route] = []  # those whose path ends here
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        at = self
        for segment in route.path.split("/"):
            if not segment.startswith("{"):
                at = at.named.setdefault(segment, RouteTree())
            else:
                at.any = at.any or RouteTree()
                at = at.any
        at.routes.append(route)

    def of(self, path: str) -> Iterator[tuple[Route, dict[str, str]]]:
        """Yield the routes of a path, each with the arguments that it finds there, percent-decoded."""
        if path.count("/") >= SEGMENTS_MAX:
            return
        segments = [unquote(segment, errors="surrogateescape") for segment in path.split("/")]
        for route in self._below(segments, 0):
            wanted = route.path.split("/")
            pairs = zip(wanted, segments, strict=True)
            yield route, {name[1:-1]: segment for name, segment in pairs if name.startswith("{")}

    def _below(self, segments: list[str], at: int) -> Iterator[Route]:
        if at == len(segments):
            yield from self.routes
            return
        nameless = at == len(segments) - 1 and not segments[at]
        for following in (self.named.get(segments[at]), None if nameless else self.any):
            if following is not None:
                yield from following._below(segments, at + 1)
