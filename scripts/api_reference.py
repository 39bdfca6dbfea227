"""Write docs/api-reference.md: the names that programs and plug-ins import, from their signatures and docstrings.

python scripts/api_reference.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/api-reference.md"
MODULES: Final = {
    "leveret": "To run a node inside of a program.",
    "leveret.exchange": "To write a type of exchange, or a decorator of exchanges.",
    "leveret.interceptor": "To look at, change or refuse what is published.",
    "leveret.errors": "What the broker refuses, whatever the protocol.",
    "leveret.testing": "To test what is built on Leveret.",
}
PLUGIN: Final = "pytest_plugin"  # which pytest loads by itself
SIGNATURE_MAX: Final = 400  # letters; the records of settings have more, and a page of their own
HEAD: Final = """# API reference

The names below are stable: until 1.0 they change only with a minor version, and the [changelog](../CHANGELOG.md) says
what to write instead. Everything else may change with any version. This page is made from the code by `make docs`.
"""


def documented() -> Iterator[tuple[str, str, ModuleType, list[str]]]:
    """Yield each module with what it is for, and its public names in their order."""
    for name, purpose in MODULES.items():
        if name == "leveret.testing":
            for path in sorted((ROOT / "testing").glob("[!_]*.py")):
                if path.stem == PLUGIN:
                    continue
                module = import_module(f"{name}.{path.stem}")
                yield module.__name__, first_of(module), module, own_names(module)
            continue
        module = import_module(name)
        yield name, purpose, module, list(getattr(module, "__all__", None) or own_names(module))


def own_names(module: ModuleType) -> list[str]:
    """Return the public classes and functions that a module defines, in their order."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def first_of(thing: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def signature(name: str, value: object) -> str:
    """Return how a function or a class is called; annotations are those of the source."""
    try:
        found = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    found = re.sub(r"<object object at [^>]*>|<[^<>]* at 0x[^<>]*>", "...", found).replace("'", "")
    return name + found.removesuffix(" -> None")


def methods(owner: type) -> Iterator[tuple[str, str]]:
    """Yield the public methods and properties of a class, with what they say of themselves."""
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        raw = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(raw, property):
            yield name, first_of(raw)
        elif isinstance(raw, FunctionType) or inspect.isroutine(raw):
            yield signature(name, raw).replace("(self, ", "(").replace("(self)", "()"), first_of(raw)


def described(name: str, value: object) -> Iterator[str]:
    """Yield the lines about one name."""
    if inspect.isclass(value):
        shown = name if issubclass(value, BaseException | Enum) else signature(name, value)
        yield f"### `class {shown if len(shown) <= SIGNATURE_MAX else name}`\n"
        yield f"{first_of(value)}\n"
        rows = [(call, text) for call, text in methods(value) if text]
        if rows:
            yield "| | |\n|---|---|"
            yield from (f"| `{call}` | {text} |".replace(" | None", " \\| None") for call, text in rows)
            yield ""
    elif inspect.isfunction(value) or inspect.isroutine(value):
        yield f"### `{signature(name, value)}`\n"
        yield f"{first_of(value)}\n"


def page() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for name, purpose, module, names in documented():
        lines += [f"## `{name}`\n", f"{purpose}\n"]
        for each in names:
            lines += described(each, getattr(module, each))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
