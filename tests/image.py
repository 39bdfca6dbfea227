"""Build the container image of deploy/Containerfile, and run it: `make image`, or `python -m tests.image`.

Needs buildah, and to be root; no daemon. The image is built on Debian's Python from a registry, or, where none can be
reached, on a Debian that debootstrap makes. A node is then started as the image says, as its own user and as root; it
has to answer its health check, take a message and give it back, keep it over a restart, and end at SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
REGISTRY: Final = "docker.io/library/python:3.13-slim"
DEBIAN: Final = "python3,python3-venv,python3-dev,python-is-python3,ca-certificates"
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"  # of this machine: it may trust a proxy
PORTS: Final = (45672, 55672)  # the network is that of this machine
USERS: Final = {"its own user": None, "root": "0:0"}
START_S: Final = 60


class Builder:
    """buildah, with a store of its own."""

    def __init__(self, store: Path) -> None:
        self.command = ["buildah", "--root", str(store / "images"), "--runroot", str(store / "run")]

    def __call__(self, *arguments: object) -> str:
        """Return what a command of buildah prints. Raises CalledProcessError."""
        command = [*self.command, *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def has(self, image: str) -> bool:
        command = [*self.command, "inspect", "--type", "image", image]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def pulls(self, image: str) -> bool:
        return (
            subprocess.run([*self.command, "pull", "-q", image], capture_output=True, check=False).returncode
            == 0
        )


def base(builder: Builder) -> str:
    """Return the image to build on, made if no registry can be reached."""
    if builder.pulls(REGISTRY):
        return REGISTRY
    name = "localhost/debian-with-python"
    if builder.has(name):
        return name
    if shutil.which("debootstrap") is None:
        sys.exit("image: no registry can be reached, and debootstrap is missing: apt-get install debootstrap")
    say(f"no registry can be reached: making a Debian {SUITE} with Python, a minute or three")
    with tempfile.TemporaryDirectory() as folder:
        command = ["debootstrap", "--variant=minbase", f"--include={DEBIAN}", SUITE, folder, MIRROR]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        container = builder("from", "scratch")
        builder("add", "-q", container, f"{folder}/", "/")
        builder(
            "config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container
        )
        builder("commit", "-q", container, name)
        builder("rm", container)
    return name


def build(builder: Builder, on: str, compiled: bool) -> str:
    """Build the image and return its name."""
    say(f"building on {on}" + (", compiled: some minutes" if compiled else ", plain"))
    trusted = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if Path(CERTIFICATES).exists() else []
    arguments = ["--build-arg", f"BASE={on}", "--build-arg", f"COMPILE={'always' if compiled else 'never'}"]
    options = ["-q", "--isolation", "chroot", "--format", "docker", *trusted, *arguments]
    builder("bud", *options, "-t", "localhost/leveret", "-f", "deploy/Containerfile", ".")
    return "localhost/leveret"


class Container:
    """A container of the image, whose command runs in a chroot of it."""

    def __init__(self, builder: Builder, image: str, user: str | None) -> None:
        self.builder = builder
        self.name = builder("from", image)
        self.config = json.loads(builder("inspect", self.name))["Docker"]["config"]
        self.user = ["--user", user] if user else []

    def command(self, *words: str) -> list[str]:
        listen = f'LEVERET_LISTENERS=[{{ address = "127.0.0.1:{PORTS[0]}" }}]'
        where = ["--env", listen, "--env", f"LEVERET_HTTP__ADDRESS=127.0.0.1:{PORTS[1]}"]
        url = ["--env", f"LEVERET_URL=http://127.0.0.1:{PORTS[1]}"]
        run = ["run", "--isolation", "chroot", *self.user, *where, *url, self.name, "--", *words]
        return [*self.builder.command, *run]

    def run(self, *words: str) -> str:
        """Return what a command in the container prints. Raises CalledProcessError."""
        return subprocess.run(self.command(*words), stdout=subprocess.PIPE, text=True, check=True).stdout

    def is_healthy(self) -> bool:
        """Run the image's health check, at the port that the node has here."""
        _, *check = self.config["Healthcheck"]["Test"]
        words = [word.replace("15672", str(PORTS[1])) for word in check]
        return subprocess.run(self.command(*words), capture_output=True, check=False).returncode == 0

    @contextmanager
    def node(self) -> Iterator[None]:
        """Run the image's own command until the block ends; it has to end well at SIGTERM."""
        command = self.command(*self.config["Entrypoint"], *self.config["Cmd"])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            ends = time.monotonic() + START_S
            while not self.is_healthy():
                if process.poll() is not None or time.monotonic() > ends:
                    raise AssertionError(f"no node that is well: exit code {process.poll()}")
            yield
        finally:
            os.kill(innermost(process.pid), signal.SIGTERM)
            code = process.wait(60)
        assert code == 0, f"the node ended with {code}"

    def remove(self) -> None:
        self.builder("rm", self.name)


def innermost(pid: int) -> int:
    """Return the process at the end of a chain of processes that have started each other: the node, below buildah."""
    children: list[str] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():  # a child belongs to the thread that has started it
        children += (thread / "children").read_text().split()
    return innermost(int(children[0])) if children else pid


def attempt(builder: Builder, image: str, who: str, user: str | None, compiled: bool) -> None:
    """Start the image twice as a user, and expect a durable message to be there the second time."""
    container = Container(builder, image, user)
    try:
        built = container.run("leveret", "--version").strip()
        assert ("(compiled)" in built) == compiled, built
        identity = container.run("python", "-c", "import os; print(os.getuid())").strip()
        with container.node():
            container.run("leveret", "declare", "queue", "kept")
            container.run("leveret", "publish", "--key", "kept", "--persistent", "Hello, hare!")
        with container.node():
            assert "Hello, hare!" in container.run("leveret", "get", "kept", "--ack-mode", "ack")
        say(f"{built} served as {who} (uid {identity}), kept a message over a restart, and ended at SIGTERM")
    finally:
        container.remove()


def say(text: str) -> None:
    print(f"image: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plain", action="store_true", help="do not compile, which takes most of the time")
    parser.add_argument("--store", type=Path, default=ROOT / "build/image", help="where images are kept")
    options = parser.parse_args()
    if shutil.which("buildah") is None or os.getuid() != 0:
        sys.exit("image: this needs root, and buildah: apt-get install buildah debootstrap")
    options.store.mkdir(parents=True, exist_ok=True)
    builder = Builder(options.store.resolve())
    image = build(builder, base(builder), not options.plain)
    for who, user in USERS.items():
        attempt(builder, image, who, user, not options.plain)


if __name__ == "__main__":
    main()
