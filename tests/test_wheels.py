"""`make wheels` finds the Pythons of a machine: those on the path that run, and pyenv's."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.sources import ROOT

found = runpy.run_path(str(ROOT / "scripts/wheels.py"))["found"]


def program(path: Path, code: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on its path, and pyenv."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_a_python_on_the_path_is_taken(machine: Path) -> None:
    program(machine / "pyenv/versions/3.12.9/bin/python3", 0)
    ours = program(machine / "bin/python3.12", 0)
    assert found("3.12") == str(ours)


def test_a_stub_on_the_path_that_does_not_run_is_passed_over_for_pyenvs(machine: Path) -> None:
    program(machine / "bin/python3.12", 127)
    ours = program(machine / "pyenv/versions/3.12.9/bin/python3", 0)
    assert found("3.12") == str(ours)


def test_a_python_that_is_not_there_is_none(machine: Path) -> None:
    program(machine / "pyenv/versions/3.1.2/bin/python3", 0)
    program(machine / "pyenv/versions/3.13.0/bin/python3", 0)
    assert found("3.12") is None
