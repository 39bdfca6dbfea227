"""One Spark session for all tests that want one, started when the first of them does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import missing, need_module
from tests.pipeline.bulk import FakeBroker, serving
from tests.pipeline.installation import SETTINGS, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    need_module("pyspark")
    from leveret.pipeline.session import NoSpark, session

    before = dict(os.environ)
    os.environ.update(environment())
    # Last, so that the processes of other tests in this worker still find what is compiled first.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before.get("PYTHONPATH"), str(ROOT))))
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    try:
        made = session("tests", "local[2]", settings)
    except NoSpark as problem:
        missing("Java", str(problem))
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving(FakeBroker()) as broker:
        yield broker


class LocalNode:
    """`leveret serve` with a folder for its data. It keeps its ports when it is started again."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.settings = settings  # the text of its configuration file
        self._folder = folder
        self._listen = self._http = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        addresses = ("--listen", self._listen, "--http", self._http)
        command = [sys.executable, "-m", "leveret", "serve", *addresses, "--data", str(self._folder)]
        if self.settings:
            file = self._folder.with_suffix(".toml")
            file.write_text(self.settings)
            command += ["--config", str(file)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"(127\.0\.0\.1:\d+) +(AMQP|HTTP)", line):
                if found[2] == "AMQP":
                    self._listen = found[1]
                else:
                    self._http = found[1]
            if "Ctrl-C" in line:
                return
        raise AssertionError("the node did not start")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self) -> None:
        """Have it end, and wait until it has."""
        assert self._process is not None
        self._process.terminate()
        self._process.communicate()
        self._process = None

    def kill(self) -> None:
        """No goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def url(self) -> str:
        return f"http://{self._http}"

    @property
    def amqp_url(self) -> str:
        return f"amqp://guest:guest@{self._listen}/%2F"


@contextmanager
def started(folder: Path) -> Iterator[LocalNode]:
    node = LocalNode(folder)
    try:
        node.start()
        yield node
    finally:
        node.kill()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with started(tmp_path / "data") as node:
        yield node
