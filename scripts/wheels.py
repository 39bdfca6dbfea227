"""Build a compiled wheel with each other Python of this machine, and try it: `make wheels`.

    python scripts/wheels.py [--out dist] [3.12 3.13 ...]

A Python is found as `python3.12` on the path, or in pyenv's folder; one that is not there is named and passed over.
Each wheel is installed into an environment of its own, where `scripts/installed.py` finds all of it compiled, and pika
publishes a message and gets it back. That takes minutes for each, and needs a C compiler, the headers of that Python
and an index of packages.
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
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OURS = ("PYTHONPATH", "PYTHONSAFEPATH")  # of `make`, whose tests run what is compiled
ROUND_TRIP = """
import pika
from leveret.server.node.threaded import ThreadedNode

with ThreadedNode() as node, pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("greetings")
    channel.basic_publish("", "greetings", b"Hello, hare!")
    assert channel.basic_get("greetings", auto_ack=True)[2] == b"Hello, hare!"
"""


def found(version: str) -> str | None:
    """Return the program of a Python (`3.12`) that runs: on the path, or the newest of pyenv's."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(
        home.glob(f"versions/{version}.*/bin/python3"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for program in (shutil.which(f"python{version}"), *map(str, kept)):
        if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
            return program
    return None


def build(python: str, folder: Path) -> Path:
    """Build a wheel into a folder with what setup.py asks for, and return it. Raises CalledProcessError."""
    environ = {name: value for name, value in os.environ.items() if name not in OURS}
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, env={**environ, "LEVERET_COMPILE": "always"}, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_out(python: Path, wheel: Path) -> str:
    """Install a wheel and pika, and use them; return what the node says of itself. Raises CalledProcessError."""
    environ = {name: value for name, value in os.environ.items() if name not in OURS}
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel), "pika"], env=environ, check=True)
    command = [python, "-P", str(ROOT / "scripts/installed.py"), "compiled"]
    told = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout
    subprocess.run([python, "-P", "-c", ROUND_TRIP], env=environ, check=True)
    return told.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=PYTHONS)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    made = 0
    for version in options.versions:
        python = found(version)
        if python is None:
            print(f"wheels: there is no Python {version} here")
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([python, "-m", "venv", Path(folder, "venv")], check=True)
            wheel = build(str(Path(folder, "venv/bin/python")), Path(folder))
            told = try_out(Path(folder, "venv/bin/python"), wheel)
            options.out.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, options.out)
        made += 1
        print(f"wheels: {wheel.name}: {told}; a message went through pika and back", flush=True)
    if not made:
        sys.exit("wheels: none of these Pythons is here")


if __name__ == "__main__":
    main()
