"""Pack what `make compile` has compiled as a wheel, without compiling it again: `make wheel` puts one into dist/.

    python scripts/wheel.py [--compiled build/compiled] [--source .] [--out dist]

The wheel is for this version of Python on this kind of machine. Wheels for others come from cibuildwheel
(`[tool.cibuildwheel]` in pyproject.toml), and one for all of them, plain, from `LEVERET_COMPILE=never python -m build`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build/site/html"  # the handbook, for `leveret docs`
OURS = ("LEVERET_COMPILE", "PYTHONPATH", "PYTHONSAFEPATH")  # of `make`, whose tests run what is compiled


def pack(compiled: Path, source: Path, out: Path) -> None:
    """Make a wheel of the packages in `compiled` with the metadata of `source`. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library")
        shutil.copytree(compiled, library, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        if SITE.exists():
            shutil.copytree(SITE, library / "leveret/handbook", dirs_exist_ok=True)
        settings = Path(folder, "settings.cfg")
        settings.write_text(f"[build]\nbuild_lib = {library}\n[bdist_wheel]\nskip_build = 1\n")
        environ = {name: value for name, value in os.environ.items() if name not in OURS}
        command = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(out),
            str(source),
        ]
        subprocess.run(command, env={**environ, "DIST_EXTRA_CONFIG": str(settings)}, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiled", type=Path, default=ROOT / "build/compiled")
    parser.add_argument("--source", type=Path, default=ROOT)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    if not (options.compiled / "leveret/built.txt").exists():
        sys.exit(f"leveret: {options.compiled} has nothing compiled; make compile")
    pack(options.compiled, options.source, options.out)


if __name__ == "__main__":
    main()
