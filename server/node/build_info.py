"""Find out how the running code was built: compiled with mypyc, or plain Python, and then for what reason.

`setup.py` writes `leveret/built.txt`: a line with the outcome, then the modules that it compiles. A source folder
has no such file. The answer comes from the files that are there, so that asking imports nothing: where a compiled
module lies beside its `.py` file, Python imports the compiled one.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import attrs

import leveret

NOTE: Final = "built.txt"
COMPILED: Final = "compiled"  # the first line of the note if compiling succeeded
HERE: Final = Path(leveret.__file__).parent
FROM_SOURCE: Final = "it runs from its source folder"
FOR_ANOTHER: Final = "it was compiled for another Python"


@attrs.frozen
class Build:
    """The outcome of a build: `compiled` of the `modules` that can be compiled are; `reason` says why not all."""

    compiled: int
    modules: int
    reason: str = ""

    @property
    def is_compiled(self) -> bool:
        return self.modules > 0 and self.compiled == self.modules

    def __str__(self) -> str:
        if self.is_compiled:
            return "compiled"
        if self.compiled:
            return f"partly compiled, {self.compiled} of {self.modules} modules: {self.reason}"
        return f"plain Python, several times slower: {self.reason}"


def built(folder: Path = HERE) -> Build:
    """Return how the package in `folder` was built."""
    try:
        how, *modules = (folder / NOTE).read_text("utf-8").splitlines()
    except OSError:
        return Build(0, 0, FROM_SOURCE)
    compiled = sum(_is_compiled(folder.parent, module) for module in modules)
    if compiled == len(modules):
        return Build(compiled, len(modules))
    return Build(compiled, len(modules), FOR_ANOTHER if how == COMPILED else how)


def _is_compiled(top: Path, module: str) -> bool:
    path = top.joinpath(*module.split("."))
    return any(path.with_name(path.name + suffix).exists() for suffix in EXTENSION_SUFFIXES)
