"""A standalone Spark cluster on this machine: a master, workers, and `spark-submit`.

Its Python has neither Leveret nor anything else of this environment but what the documentation says an
executor needs: so what a query uses of Leveret came with `--py-files`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

from leveret.pipeline.bundle import bundle
from tests.pipeline.conftest import ROOT
from tests.pipeline.installation import QUICK, SETTINGS, environment, home
from tests.pipeline.processes import command_of, descendants, kill

NEEDED: Final = ("pyarrow",)  # on the driver and on every executor
BEGIN_TIMEOUT_S: Final = 180
RUN_TIMEOUT_S: Final = 400


def bare_python(folder: Path) -> Path:
    """An interpreter without this environment's packages."""
    packages = folder / "packages"
    packages.mkdir()
    for name in NEEDED:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found = Path(spec.origin)
        found = found.parent if found.name == "__init__.py" else found
        (packages / found.name).symlink_to(found)
    shim = folder / "python"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    shim.chmod(0o755)
    return shim


SUBMITTED: Final = {
    **SETTINGS,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
}


class Cluster:
    """One master and some workers of a core each."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            **environment(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "PYSPARK_PYTHON": str(bare_python(folder)),
        }
        try:
            master = self._daemon("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            (self.url,) = self._said(master, r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                work = str(folder / f"work{number}")
                arguments = ("--cores", "1", "--memory", "700m", "--webui-port", "0", "--work-dir", work)
                self._daemon("worker.Worker", "--host", "127.0.0.1", *arguments, self.url)
            self._said(master, r"(Registering worker)", workers)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _daemon(self, what: str, *arguments: str) -> Path:
        """Start one. Returns its log."""
        log = self._folder / f"{what}{len(self._daemons)}.log"
        command = [str(home() / "bin/spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
        with log.open("wb") as stream:
            self._daemons.append(
                subprocess.Popen(
                    command, stdout=stream, stderr=stream, env=self._environment, start_new_session=True
                )
            )
        return log

    def _said(self, log: Path, pattern: str, times: int = 1) -> list[str]:
        """Wait until a daemon has said this so often."""
        give_up = time.monotonic() + BEGIN_TIMEOUT_S
        while len(found := re.findall(pattern, log.read_text(errors="replace"))) < times:
            if time.monotonic() > give_up or any(each.poll() is not None for each in self._daemons):
                raise AssertionError(log.read_text(errors="replace"))
            time.sleep(0.05)
        return found

    def submit(self, program: Path, *arguments: str) -> subprocess.Popen[str]:
        """Run a program on it, as the documentation says."""
        leveret = self._folder / "leveret.zip"
        bundle(leveret)
        command = [str(home() / "bin/spark-submit"), "--master", self.url, "--py-files", str(leveret)]
        for name, value in SUBMITTED.items():
            command += ["--conf", f"{name}={value}"]
        return self._program([*command, str(program), *arguments], self._environment)

    def leveret(self, *words: object) -> subprocess.Popen[str]:
        """Run a job on it, by a driver where Leveret is installed."""
        command = [
            sys.executable,
            "-m",
            "leveret",
            "pipeline",
            *map(str, words),
            "--master",
            self.url,
        ]
        for name, value in SUBMITTED.items():
            command += ["--spark", f"{name}={value}"]
        return self._program(command, {**self._environment, "PYTHONPATH": str(ROOT)})

    def _program(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_executor(self) -> None:
        """One of them, with the Python that does its tasks."""
        workers = [each for daemon in self._daemons for each in descendants(daemon.pid)]
        executor = next(each for each in workers if "CoarseGrainedExecutorBackend" in command_of(each))
        for process in (*descendants(executor), executor):
            kill(process)

    def end(self) -> None:
        for each in reversed(self._daemons):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def output(program: subprocess.Popen[str]) -> dict[str, str]:
    """What a program has printed as NAME=VALUE when it has ended."""
    printed, errors = program.communicate(timeout=RUN_TIMEOUT_S)
    assert program.returncode == 0, printed + errors[-8000:]
    return dict(re.findall(r"^(\w+)=(.*)$", printed, re.MULTILINE))
