"""The page's pure modules (curves, layout, words) with the test runner of Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.conftest import need_command

APP = Path(__file__).parents[2] / "ui" / "app"
TESTS = Path(__file__).parent / "modules"

pytestmark = pytest.mark.system


@pytest.mark.parametrize("name", sorted(path.name for path in TESTS.iterdir()))
def test_the_pure_modules_do_as_their_tests_say(name: str, tmp_path: Path) -> None:
    node = need_command("node", "nodejs")
    for path in [*APP.glob("*.js"), TESTS / name]:
        shutil.copy(path, tmp_path)
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    ran = subprocess.run([node, "--test", name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "# fail 0" in ran.stdout or "fail 0" in ran.stdout
