"""What `pip` and `build` make of the project: compiled where it can be, plain where not, and it is said truly.

Of a copy that compiles two small modules: that all of them compile is what `make test-compiled` shows. A wheel of all
of them is packed from what `make compile` has compiled, installed, and tried.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import leveret
from leveret.version import VERSION
from tests.harness.seldom import packing

from .sources import FOLDERS, sources

ROOT = Path(__file__).parents[1]
COPIED = ["LICENSE", "README.md", "pyproject.toml", "pyspark_amqp.py", "setup.py"]
HANDBOOK = "leveret/handbook/index.html"
# They import next to nothing. `leveret` names half of the core, for types only: `compile_little` takes that out.
COMPILED = ["protocols/shared/machine/contract.py", "protocols/shared/machine/heartbeat.py"]

# PySpark finds the source by the name of the second (docs/spark.md): it looks for modules `pyspark_*`, not in packages.
ALONE = {"leveret", "pyspark_amqp.py"}

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        shutil.copy(ROOT / name, folder)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for page in ("docs/index.md", "build/site/html/index.html"):  # the second is newer, as `make site` has it
        (folder / page).parent.mkdir(parents=True)
        (folder / page).write_text("Leveret")
    os.utime(folder / "docs/index.md", (0, 0))
    compile_little(folder)
    return folder


def compile_little(project: Path) -> None:
    """Have the copy compile two modules, and mypy read no others, which would take a minute of a processor."""
    listed = re.compile(r"^compiled = \[\n.*?^\]", re.DOTALL | re.MULTILINE)
    text = (project / "pyproject.toml").read_text()
    assert len(listed.findall(text)) == 1
    (project / "pyproject.toml").write_text(listed.sub(f"compiled = {COMPILED}".replace("'", '"'), text))
    package = project / "broker_core/__init__.py"
    named, count = re.subn(r"^if TYPE_CHECKING:\n(?: .*\n)+", "", package.read_text(), flags=re.MULTILINE)
    assert count == 1
    package.write_text(named)


def environ() -> dict[str, str]:
    """What is tested compiled has settings of its own."""
    others = ("LEVERET_", "MAKE", "MFLAGS", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


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
    code = "import sys; from leveret.server.cli import main; main(['--version'], {})"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**environ(), "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip()


def top_level(wheel: Path) -> set[str]:
    """Return what an installation adds where all packages are, its metadata left out."""
    names = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    return names - {f"leveret-{VERSION}.dist-info"}


def the_wheel(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


@packing
def test_a_wheel_is_compiled_where_there_is_a_compiler(project: Path, tmp_path: Path):
    done = built(project, tmp_path, {})
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = the_wheel(tmp_path)
    assert not wheel.name.endswith("-py3-none-any.whl")
    assert version(wheel, tmp_path / "installed").endswith("(compiled)")
    names = ZipFile(wheel).namelist()
    assert {"leveret/clock.py", "leveret/perf/cli.py", "leveret/ui/app/main.js"} <= set(names)
    assert top_level(wheel) == ALONE


@packing
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
    assert HANDBOOK in ZipFile(wheel).namelist()
    assert top_level(wheel) == ALONE
    said = version(wheel, tmp_path / "installed")
    assert said.endswith(f"(plain Python, several times slower: {why} when it was built)")


@packing
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the project has, where builds may write."""
    return copied(tmp_path_factory.mktemp("whole"))


def copied(folder: Path) -> Path:
    for path in sources():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return folder


def ran(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        env={**environ(), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tried(wheel: Path, folder: Path, how: str) -> str:
    """What scripts/installed.py says of an environment with that wheel, and the packages that are here for the rest."""
    environment_with_packages(folder)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    ran(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    return ran(python, "-P", ROOT / "scripts/installed.py", how)


def environment_with_packages(folder: Path) -> None:
    """Make an environment that has the packages that are here, and nothing else yet."""
    ran(sys.executable, "-m", "venv", "--without-pip", folder)
    (library,) = folder.glob("lib/python*/site-packages")
    (library / "here.pth").write_text(sysconfig.get_path("purelib"))


@packing
def test_a_source_distribution_is_all_of_the_project_and_a_plain_wheel_of_it_serves(
    whole: Path, tmp_path: Path
):
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, whole, LEVERET_COMPILE="never")
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path.relative_to(ROOT)) for path in sources()} - names == set()
    wheel = the_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    said = tried(wheel, tmp_path / "venv", "plain")
    assert (
        said
        == f"leveret {VERSION} (plain Python, several times slower: LEVERET_COMPILE is never when it was built)\n"
    )


@packing
@pytest.mark.skipif(os.environ.get("LEVERET_TESTED") != "compiled", reason="runs with `make test-compiled`")
def test_a_wheel_of_what_is_compiled_serves_with_what_is_in_it(whole: Path, tmp_path: Path):
    compiled = Path(leveret.__file__).parents[1]
    (whole / "build/site/html").mkdir(parents=True)
    (whole / "build/site/html/index.html").write_text("Leveret")
    script = [sys.executable, whole / "scripts/wheel.py", "--source", whole]
    ran(*script, "--compiled", compiled, "--out", tmp_path)
    wheel = the_wheel(tmp_path)
    tags = sys.implementation.cache_tag.replace("cpython-", "cp")
    assert f"-{tags}-{tags}-" in wheel.name
    names = ZipFile(wheel).namelist()
    assert HANDBOOK in names
    assert top_level(wheel) == ALONE
    assert [name for name in names if "__pycache__" in name or name.startswith(".")] == []
    assert tried(wheel, tmp_path / "venv", "compiled") == f"leveret {VERSION} (compiled)\n"


NO_NETWORK = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": "",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "1",
}


@contextmanager
def started(project: Path) -> Iterator[Iterator[str]]:
    """Type `make run`, yield the lines that it prints, and press Ctrl-C."""
    command = ["make", "run", "ARGS=--memory --listen 127.0.0.1:0 --http 127.0.0.1:0"]
    with subprocess.Popen(
        command,
        cwd=project,
        env={**environ(), **NO_NETWORK},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            os.killpg(process.pid, signal.SIGINT)


def lines_until(lines: Iterator[str], text: str) -> str:
    read = []
    for line in lines:
        read.append(line)
        if text in line:
            return "".join(read)
    raise AssertionError("".join(read))


@packing
def test_what_is_set_up_serves_at_once_without_a_network_and_is_compiled_at_the_next_start(tmp_path: Path):
    project = copied(tmp_path)
    compile_little(project)
    environment_with_packages(project / ".venv")
    with started(project) as lines:
        told = lines_until(lines, "Ctrl-C stops it")
        assert "setup: plain Python for now, several times slower; it is compiled meanwhile" in told
        assert f"Leveret {VERSION}, plain Python" in told
        lines_until(lines, "setup: compiled; the next start is several times faster")
    with (project / "constraints.txt").open("a") as constraints:
        constraints.write("attrs==0.1\n")  # is not here, and cannot be fetched
    with started(project) as lines:
        told = lines_until(lines, "Ctrl-C stops it")
    assert (
        "setup: packages cannot be fetched; is there a network?\nsetup: starting with what is installed"
        in told
    )
    assert f"Leveret {VERSION}, compiled" in told


@packing
def test_an_index_is_told_what_it_wants_to_know(whole: Path, tmp_path: Path):
    home = "https://code.example/leveret"
    done = built(whole, tmp_path, {"LEVERET_COMPILE": "never", "LEVERET_HOME": home})
    assert done.returncode == 0, done.stdout + done.stderr
    with ZipFile(the_wheel(tmp_path)) as packed:
        told = Parser().parsestr(packed.read(f"leveret-{VERSION}.dist-info/METADATA").decode())
    page = str(told.get_payload())
    assert told["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert f"{home}/blob/v{VERSION}/docs/tutorial.md" in links
    assert f"{home}/raw/v{VERSION}/docs/images/web-overview.png" in links
    assert [link for link in links if not link.startswith("https://")] == []
    assert f"Source, {home}" in told.get_all("Project-URL", [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= set(
        told.get_all("Classifier", [])
    )


@pytest.mark.parametrize(
    ("system", "machines"), [("linux", ["x86_64", "aarch64"]), ("macos", ["x86_64", "arm64"])]
)
def test_cibuildwheel_would_build_for_these_machines(system: str, machines: list[str]):
    listed = ran(
        *(sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", system),
        *("--archs", ",".join(machines), ROOT),
    ).split()
    pythons = {each.partition("-")[0] for each in listed}
    assert {"cp311", "cp312", "cp313"} <= pythons
    assert {each.partition("-")[2].partition("_")[2] for each in listed} == set(machines)
    assert len(listed) == len(pythons) * len(machines)
