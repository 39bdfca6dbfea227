"""Make the zip that Spark's `--py-files` takes: Leveret, and what it needs that is pure Python.

Only pyarrow has to be where Spark's Python is: it is compiled.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from leveret.pipeline.errors import PipelineError

WINGS: Final = ("durable", "features", "server", "testing", "protocols", "plugins", "pipeline", "perf", "ui")
# In a copy of the repository the parts of the package are in folders of their own.
LEVERET: Final = ("leveret", *(f"leveret.{wing}" for wing in WINGS))
CONTENTS: Final = (*LEVERET, "pyspark_amqp", "attr", "attrs", "mypy_extensions")
LICENSED: Final = ("attrs", "mypy-extensions")
MADE: Final = (1980, 1, 1, 0, 0, 0)  # the same contents give the same zip


def bundle(file: Path) -> int:
    """Write the zip, and return its size in bytes. Raises PipelineError."""
    contents = sorted({name: path for module in CONTENTS for name, path in _sources(module)}.items())
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in (*contents, *_licences()):
            archive.writestr(zipfile.ZipInfo(name, MADE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return file.stat().st_size


def _sources(module: str) -> Iterator[tuple[str, Path]]:
    """Yield the sources of a module or package with their names in the zip, without compiled ones."""
    spec = find_spec(module)
    if spec is None:
        raise PipelineError(f"the module '{module}' is not installed")
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    if not folders:
        source = Path(f"{spec.origin}")
        if source.suffix != ".py":  # compiled: its source lies beside it
            source = source.with_name(f"{module}.py")
        yield source.name, source
    for folder in folders:
        for path in folder.rglob("*.py"):
            yield f"{module.replace('.', '/')}/{path.relative_to(folder).as_posix()}", path


def _licences() -> Iterator[tuple[str, Path]]:
    for name in LICENSED:
        try:
            found = files(name) or []
        except PackageNotFoundError:
            continue
        for each in found:
            if "LICENSE" in each.name:
                yield str(each), Path(str(each.locate()))


def where() -> Path | None:
    """Return the zip that this module comes from; None if it is installed."""
    return next((each for each in Path(__file__).parents if each.is_file()), None)
