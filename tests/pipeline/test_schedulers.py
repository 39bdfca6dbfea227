"""What a scheduler runs: the commands of the DAG in `examples/airflow`, with stand-ins for Airflow's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tests.interop.conftest import need_module
from tests.pipeline.conftest import ROOT, LocalNode

pika = need_module("pika")
polars = need_module("polars")
need_module("deltalake")

FILE = ROOT / "examples/airflow/orders.py"


class Task:
    """An operator or a sensor: its command, and the tasks that come after it."""

    found: ClassVar[dict[str, Task]] = {}

    def __init__(self, task_id: str, bash_command: str, **fields: object) -> None:
        self.command = bash_command
        self.after: list[Task] = []
        self.found[task_id] = self

    def __rshift__(self, other: Task) -> Task:
        self.after.append(other)
        return other


class Dag:
    def __init__(self, name: str, **fields: object) -> None:
        self.name = name

    def __enter__(self) -> Dag:
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave."""


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Task]:
    """The tasks of the DAG, whose table and schema are in a temporary folder."""
    for each in (
        module("airflow"),
        module("airflow.sdk", DAG=Dag),
        module("airflow.providers"),
        module("airflow.providers.standard"),
        module("airflow.providers.standard.operators"),
        module("airflow.providers.standard.operators.bash", BashOperator=Task),
        module("airflow.providers.standard.sensors"),
        module("airflow.providers.standard.sensors.bash", BashSensor=Task),
    ):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.setenv("ORDERS_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("ORDERS_SCHEMA", str(tmp_path / "order.ddl"))
    (tmp_path / "order.ddl").write_text("n bigint")
    Task.found = {}
    exec(compile(FILE.read_text(), FILE, "exec"), {})
    return Task.found


def run(task: Task, node: LocalNode) -> int:
    """Run a task's command as Airflow does, and return its exit code."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "LEVERET_URL": node.url}
    done = subprocess.run(
        ["bash", "-c", task.command], env=environ, capture_output=True, check=False, cwd=ROOT
    )
    return done.returncode


def test_the_tasks_of_the_dag_do_what_they_should(tasks: dict[str, Task], node: LocalNode, tmp_path: Path):
    assert tasks["archive"].after == [tasks["up_to_date"]]
    assert tasks["up_to_date"].after == [tasks["build"]]
    assert run(tasks["archive"], node) == 1  # there is no stream: a scheduler tries again
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b'{"n": 7}')
        assert run(tasks["up_to_date"], node) == 1  # nothing has been read
        assert run(tasks["archive"], node) == 0
        assert run(tasks["up_to_date"], node) == 0
    assert polars.read_delta(str(tmp_path / "lake"))["n"].to_list() == [7]
