"""Which routes there are for a path: a tree of segments, so that a hundred routes cost no more than one.

    "", "api", "queues", {vhost}, {name}  ──> GET, PUT, DELETE

What a segment says goes before what stands for any; both are looked at, for one path may be of several routes. What is
not there at the end of a path is no name: nobody means to declare a queue without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from protocols.http.server.request import Route

SEGMENTS_MAX: Final = 32  # of a path; no route has as many


class Tree:
    """One segment, and what may follow it."""

    __slots__ = ("any", "named", "routes")

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self.named: dict[str, Tree] = {}
        self.any: Tree | None = None
        self.routes: list[Route] = []  # whose paths end here
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        at = self
        for segment in route.path.split("/"):
            if not segment.startswith("{"):
                at = at.named.setdefault(segment, Tree())
            else:
                at.any = at.any or Tree()
                at = at.any
        at.routes.append(route)

    def of(self, path: str) -> Iterator[tuple[Route, dict[str, str]]]:
        """The routes, and the arguments that each finds in the path, percent-decoded."""
        if path.count("/") >= SEGMENTS_MAX:
            return
        segments = [unquote(segment) for segment in path.split("/")]
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
