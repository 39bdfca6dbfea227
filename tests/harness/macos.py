"""Run `leveret` on Linux without what macOS lacks: `python -m tests.harness.macos serve --data DIR`.

The names that are taken away are those that typeshed, the types of Python's library, has for Linux only. What macOS has
in their place, and where its calls do something else, is not tried by this: the system below is Linux.
"""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import resource
import select
import selectors
import signal
import socket
import sys
import time
import urllib.request  # noqa: F401 - later it would ask a module of macOS for its proxies
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mypy
import trio  # noqa: F401 - it has chosen its loop for Linux
from trio._core import _io_epoll

MODULES = (errno, fcntl, os, resource, select, selectors, signal, socket, time)
F_FULLFSYNC = 51  # its number on macOS; Linux has no such command, as a network file system of macOS has not


def lacking(module: ModuleType) -> set[str]:
    """The names of a module that macOS does not have."""
    stub = Path(mypy.__file__).parent / "typeshed/stdlib" / module.__name__
    file = next(each for each in (stub.with_suffix(".pyi"), stub / "__init__.pyi") if each.exists())
    tree = ast.parse(file.read_text())
    names = set(_names(tree.body, "linux")) - set(_names(tree.body, "darwin"))
    return {name for name in names if hasattr(module, name)}


def _names(body: list[ast.stmt], platform: str) -> Iterator[str]:
    seen = {"sys": SimpleNamespace(platform=platform, version_info=sys.version_info)}
    for line in body:
        if isinstance(line, ast.If):
            holds = eval(ast.unparse(line.test), seen)
            yield from _names(line.body if holds else line.orelse, platform)
        elif isinstance(line, ast.FunctionDef | ast.ClassDef):
            yield line.name
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id
        elif isinstance(line, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in line.names)


def become_macos() -> None:
    """Take away what macOS lacks, for good; trio keeps its loop."""
    assert not [name for name in sys.modules if name.startswith("leveret")]
    _io_epoll.select = SimpleNamespace(**vars(select))  # type: ignore[attr-defined]
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
    for module in MODULES:
        for name in lacking(module):
            delattr(module, name)
    fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]
    sys.platform = "darwin"
    assert not hasattr(select, "epoll")
    assert not hasattr(os, "eventfd")
    assert not hasattr(os, "fdatasync")
    assert not hasattr(socket, "SO_PEERCRED")


if __name__ == "__main__":
    become_macos()
    from leveret.server.cli import main

    sys.exit(main())
