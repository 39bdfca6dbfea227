"""What `pip` makes of the project: compiled where it can be, plain where not, and either way it is said truly.

Of a copy that compiles two small modules: that all of them compile is what `make test-compiled` shows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ["LICENSE", "README.md", "pyproject.toml", "pyspark_amqp.py", "setup.py"]
PACKAGES = ["broker_core", "perf", "pipeline", "plugins", "protocols"]
COMPILED = ["broker_core/clock.py", "broker_core/queues/round_robin.py"]

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        shutil.copy(ROOT / name, folder)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    listed = re.compile(r"^compiled = \[\n.*?^\]", re.DOTALL | re.MULTILINE)
    text = (folder / "pyproject.toml").read_text()
    assert len(listed.findall(text)) == 1
    (folder / "pyproject.toml").write_text(listed.sub(f"compiled = {COMPILED}".replace("'", '"'), text))
    return folder


def environ() -> dict[str, str]:
    """What is tested compiled has settings of its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LEVERET_", "PYTHON"))}


def built(project: Path, target: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Without isolation, so that nothing is fetched: what a build asks for is installed for the tests."""
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", target]
    return subprocess.run(
        [*map(str, command), str(project)],
        env={**environ(), **environment},
        cwd=project.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def version(wheel: Path, folder: Path) -> str:
    """What an installed node says of itself."""
    with ZipFile(wheel) as packed:
        packed.extractall(folder)
    code = "import sys; from broker_core.cli import main; main(['--version'], {})"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**environ(), "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip()


def the_wheel(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


def test_a_wheel_is_compiled_where_there_is_a_compiler(project: Path, tmp_path: Path):
    done = built(project, tmp_path, {})
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = the_wheel(tmp_path)
    assert not wheel.name.endswith("-py3-none-any.whl")
    assert version(wheel, tmp_path / "installed").endswith("(compiled)")
    names = ZipFile(wheel).namelist()
    assert {"broker_core/clock.py", "perf/cli.py", "pyspark_amqp.py"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"LEVERET_COMPILE": "never"}, "LEVERET_COMPILE is never"),
        ({"CC": "no-such-compiler"}, "there was no C compiler"),
        ({"CC": "false"}, "the C compiler did not work"),
    ],
    ids=["unwanted", "no compiler", "a broken compiler"],
)
def test_without_a_compiler_a_wheel_is_plain_and_says_so(
    project: Path, tmp_path: Path, environment: dict[str, str], why: str
):
    done = built(project, tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"leveret: building plain Python, several times slower: {why}" in done.stdout + done.stderr
    wheel = the_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    said = version(wheel, tmp_path / "installed")
    assert said.endswith(f"(plain Python, several times slower: {why} when it was built)")


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        (
            {"LEVERET_COMPILE": "always", "CC": "no-such-compiler"},
            "LEVERET_COMPILE is always, but there was no C compiler",
        ),
        ({"LEVERET_COMPILE": "perhaps"}, "LEVERET_COMPILE is 'perhaps'; it may be auto, always, never"),
    ],
    ids=["wanted in any case", "unknown"],
)
def test_what_cannot_be_built_as_asked_is_not_built(
    project: Path, tmp_path: Path, environment: dict[str, str], complaint: str
):
    done = built(project, tmp_path, environment)
    assert done.returncode != 0
    assert f"leveret: {complaint}" in done.stdout + done.stderr
    assert list(tmp_path.glob("*.whl")) == []


def test_a_source_distribution_can_be_built_from(project: Path, tmp_path: Path):
    code = "from setuptools.build_meta import build_sdist; build_sdist(r'" + str(tmp_path) + "')"
    subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    for name in (*COPIED, *COMPILED):
        assert (source / name).exists(), name
    done = built(source, tmp_path, {"LEVERET_COMPILE": "never"})
    assert done.returncode == 0, done.stdout + done.stderr
