"""The tutorial, done as a reader does it: files saved, commands typed in a node's company, answers compared."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.seldom import examples

from .served import ROOT, Serve, port, screen

pytestmark = pytest.mark.system

PAGE = (ROOT / "docs/tutorial.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FIRST = 1  # the block before it installs


class Reader:
    """Somebody with a folder, a terminal for the node and one for everything else."""

    def __init__(self, folder: Path, serve: Serve) -> None:
        self.folder = folder
        self.serve = serve
        self.node: subprocess.Popen[str] | None = None
        self.ports = {"5672": "0", "15672": "0"}
        self.answers: list[str] = []

    def save(self, text: str) -> None:
        path = self.folder / text.partition("\n")[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("localhost:5672", f"127.0.0.1:{self.ports['5672']}"))

    def type(self, command: str) -> None:
        if command.startswith("leveret serve "):
            self.start(command.split()[2:])
            return
        self.answers.append(self.run(command))

    def start(self, flags: list[str]) -> None:
        """Start the node, on the ports that it has had before, after ending the one that runs."""
        if self.node is not None:
            self.node.send_signal(signal.SIGINT)
            assert self.node.wait(60) == 0
        paths = [str(self.folder / flag) if flag in ("data", "leveret.toml") else flag for flag in flags]
        where = [f"127.0.0.1:{self.ports[each]}" for each in ("5672", "15672")]
        self.node = self.serve(*paths, "--listen", where[0], "--http", where[1])
        said = screen(self.node)
        http = re.findall(r"127\.0\.0\.1:(\d+)", said)[-1]
        self.ports = {"5672": str(port(said)), "15672": http}

    def run(self, command: str) -> str:
        """Run a command in the shell; `leveret` and `pytest` are those that are tested."""
        ours = {"leveret": "-m leveret", "python": "", "pytest": "-m pytest -p no:cacheprovider"}
        name, _, rest = command.partition(" ")
        done = subprocess.run(
            ["bash", "-c", f'"{sys.executable}" {ours[name]} {rest}'],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]).strip(
                    os.pathsep
                ),
                "LEVERET_URL": f"http://127.0.0.1:{self.ports['15672']}",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


@pytest.fixture
def reader(tmp_path: Path, serve: Serve) -> Reader:
    return Reader(tmp_path, serve)


@pytest.mark.skipif(shutil.which("bash") is None, reason="commands are typed in bash")
@examples
def test_the_tutorial_can_be_done(reader: Reader) -> None:
    for kind, text in BLOCKS[FIRST:]:
        if kind in ("python", "toml"):
            reader.save(text)
        if kind == "sh":
            reader.answers.clear()
            for command in text.splitlines():
                reader.type(command)
        if kind == "text":
            assert "".join(reader.answers).endswith(text), text
    assert "2 passed" in reader.answers[-1]


def test_the_tutorial_installs_what_its_programs_import() -> None:
    kind, text = BLOCKS[0]
    assert kind == "sh"
    imported = set(re.findall(r"^import (\w+)", PAGE, re.MULTILINE)) - set(sys.stdlib_module_names)
    (installed,) = re.findall(r"^pip install (.*)$", text, re.MULTILINE)
    assert imported == set(installed.split()) - {"./leveret"}
