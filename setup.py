"""Compiles what pyproject.toml lists under `[tool.leveret]` with mypyc, if there is a C compiler.

LEVERET_COMPILE=never   do not compile       LEVERET_COMPILE=always   fail where it cannot be done
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
MODE = os.environ.get("LEVERET_COMPILE", "auto")


def extensions() -> list[Extension]:
    if MODE == "never":
        return []
    from mypyc.build import mypycify

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return mypycify(settings["tool"]["leveret"]["compiled"], opt_level="2", multi_file=True)


setup(ext_modules=extensions())
