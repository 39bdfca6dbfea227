"""Try an installation of Leveret: a node starts from it, answers, and takes a message and gives it back.

    /path/to/venv/bin/python -P scripts/installed.py compiled|plain

With `compiled` each module of the list that setup.py compiles has to be compiled, and the node has to have loaded them
from the installation. It needs the standard library alone, and can be run wherever a wheel has been installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

SCRIPTS = Path(sysconfig.get_path("scripts"))
HERE = Path(sysconfig.get_path("platlib"))
LIBRARY = "compiled__mypyc"  # has the code of all modules; the others name it


@contextmanager
def node() -> Iterator[tuple[int, str]]:
    """Run a node on ports of its own; yield its process id and the address of its HTTP endpoint."""
    command = [SCRIPTS / "leveret", "serve", "--memory", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = ""
            for line in process.stdout:
                if "http" in line.lower():
                    url = url or "".join(re.findall(r"127\.0\.0\.1:\d+", line)[:1])
                if "Ctrl-C" in line:
                    break
            assert url, "the node has not said where it serves HTTP"
            yield process.pid, f"http://{url}"
        finally:
            process.terminate()


def said(*arguments: str) -> str:
    """Return what `leveret` prints."""
    command = [str(SCRIPTS / "leveret"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded(pid: int) -> list[Path]:
    """Return the compiled modules of ours that a process has loaded, where the system tells."""
    maps = Path("/proc", str(pid), "maps")
    if not maps.exists():
        return []
    paths = {Path(line.split()[-1]) for line in maps.read_text().splitlines() if ".so" in line}
    return [path for path in paths if "leveret" in path.parts]


def main(how: str) -> None:
    from leveret.server.node.build_info import NOTE, built

    assert built().is_compiled == (how == "compiled"), built()
    package = Path(import_module("leveret").__file__ or "").parent
    assert package.parent == HERE, f"imported from {package}, not installed in {HERE}"
    modules = (package / NOTE).read_text("utf-8").splitlines()[1:]
    files = [import_module(module).__file__ or "" for module in modules]
    assert [path for path in files if path.endswith(tuple(EXTENSION_SUFFIXES)) != (how == "compiled")] == []
    with node() as (pid, url):
        assert json.loads(said("status", "--json", "--url", url))["build"] == str(built())
        said("declare", "queue", "tried", "--url", url)
        said("publish", "--key", "tried", "Hello, hare!", "--url", url)
        assert "Hello, hare!" in said("get", "tried", "--ack-mode", "ack", "--url", url)
        found = loaded(pid)
        assert [path for path in found if HERE not in path.parents] == []
        if Path("/proc/self/maps").exists():
            assert any(path.name.startswith(LIBRARY) for path in found) == (how == "compiled"), found
    print(said("--version").strip())


if __name__ == "__main__":
    main(sys.argv[1])
