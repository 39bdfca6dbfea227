"""Entry points of installed packages: the folders of `sys.path` to plug-ins and commands of packages, by group.

`importlib.metadata` finds them, too, but to import it and to have it look at all packages for one group after the other
takes an eighth of a start. It is asked where packages may be elsewhere than in folders: in archives, or where a finder
of another program says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Final, Protocol

OURS: Final = "leveret."  # how the names of our groups begin
SUFFIXES: Final = (".dist-info", ".egg-info")


class EntryPoint(Protocol):
    """Contract of an entry point, which that of `importlib.metadata` keeps."""

    @property
    def name(self) -> str:
        """Its name, such as that of an exchange type."""

    @property
    def value(self) -> str:
        """The object that it refers to, as MODULE:ATTRIBUTE."""

    @property
    def dist(self) -> Package | None:
        """The package that has it, if that is known."""

    def load(self) -> object:
        """Import the module, and return the object. Raises whatever the module raises, or AttributeError."""


class Package(Protocol):
    """Contract of a package, which the distributions of `importlib.metadata` keep."""

    @property
    def name(self) -> str:
        """Its name as its metadata has it."""


class Folder:
    """The metadata of a package in a folder, such as `site-packages/leveret-0.1.0.dist-info`."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def key(self) -> str:
        """The package's name, spelt so that two of the same package are equal."""
        stem = os.path.basename(self._path).rpartition(".")[0]
        return stem.partition("-")[0].lower().replace("_", "-").replace(".", "-")

    @property
    def name(self) -> str:
        """The package's name as its metadata has it; without any, as the folder has it."""
        text = self.read("METADATA") or self.read("PKG-INFO")
        named = (line for line in text.splitlines() if line.startswith("Name:"))
        return next(named, "").removeprefix("Name:").strip() or self.key

    def read(self, name: str) -> str:
        """Return the text of one of its files; empty if it does not have this one, or is a file itself."""
        try:
            with open(os.path.join(self._path, name), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            return ""


class Found:
    """An entry point that was found in a folder."""

    def __init__(self, dist: Folder, group: str, name: str, value: str) -> None:
        self.dist = dist
        self.group = group
        self.name = name
        self.value = value

    def load(self) -> object:
        """Import the module, and return the object."""
        module, _, path = self.value.partition("[")[0].partition(":")
        found: object = import_module(module.strip())
        for name in filter(None, path.strip().split(".")):
            found = getattr(found, name)
        return found


def installed(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of a group of ours, of the packages that were there at the first call."""
    if _is_elsewhere():
        from importlib.metadata import entry_points

        return entry_points(group=group)
    return [each for each in _ours() if each.group == group]


def _is_elsewhere() -> bool:
    """Return whether packages may be in archives, or where another finder than Python's says."""
    finders = (each for each in sys.meta_path if each is not PathFinder)
    return any(hasattr(each, "find_distributions") for each in finders) or any(
        os.path.isfile(each) or each.endswith(".egg") for each in sys.path
    )


@cache  # it reads a file of each package, and a cluster's node asks again when it takes over
def _ours() -> tuple[Found, ...]:
    """Return the entry points of all groups of ours. Of two equal packages the first on the path counts."""
    packages: dict[str, Folder] = {}
    for folder in _folders():
        packages.setdefault(folder.key, folder)
    return tuple(each for folder in packages.values() for each in entries_in(folder))


def _folders() -> Iterator[Folder]:
    for place in sys.path:
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:
            continue
        yield from (Folder(os.path.join(place, name)) for name in names if name.endswith(SUFFIXES))


def entries_in(package: Folder) -> Iterator[Found]:
    """Yield the entry points of our groups of a package (the entry points specification of PyPA)."""
    text = package.read("entry_points.txt")
    if OURS not in text:
        return
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
        elif group.startswith(OURS) and "=" in line and line[0] != "#":
            name, _, value = line.partition("=")
            yield Found(package, group, name.strip(), value.strip())
