"""One zip is all that Spark needs of Leveret."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from leveret.pipeline.bundle import bundle, where

PROGRAM = """
import sys
sys.path[:0] = [{zip!r}]
import leveret.pipeline.bundle, leveret.durable.store.block, leveret.protocols.amqp10.broker.encoding
import attrs, mypy_extensions
print(leveret.pipeline.bundle.where(), attrs.__file__, mypy_extensions.__file__)
"""


def test_a_python_without_packages_imports_everything_from_the_zip(tmp_path: Path):
    made = tmp_path / "leveret.zip"
    assert bundle(made) == made.stat().st_size < 5_000_000
    program = [sys.executable, "-I", "-S", "-c", PROGRAM.format(zip=str(made))]
    found = subprocess.run(program, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.split()
    assert found == [str(made), f"{made}/attrs/__init__.py", f"{made}/mypy_extensions.py"]
    assert where() is None  # here it is installed


def test_the_same_sources_make_the_same_zip_with_the_licences_of_others(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    bundle(one)
    bundle(other)
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {"pyspark_amqp.py", "leveret/pipeline/source.py"} < set(names)
    assert sum("LICENSE" in name for name in names) == 2
    assert not [name for name in names if name.endswith((".so", ".pyc")) or name.startswith("tests/")]
