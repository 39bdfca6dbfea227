"""A Celery worker in a process of its own: ETA, retries, groups, remote control, events, a broker that hangs up."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, need_module, running_nodes, wait_until

celery = need_module("celery")
amqp = need_module("amqp")

if TYPE_CHECKING:
    from celery import Celery
    from celery.canvas import Signature

pytestmark = pytest.mark.interop
ROOT = Path(__file__).parents[2]
WORKER = (
    "-P",
    "threads",
    "-c",
    "4",
    "-n",
    "w@leveret",
    "--without-gossip",
    "--without-mingle",
    "-E",
    "-l",
    "INFO",
)


class Worker:
    """A `celery worker` and its log."""

    def __init__(self, broker: str, backend: str, folder: Path) -> None:
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.interop.celery_tasks", "worker", *WORKER],
                cwd=ROOT,
                env={**os.environ, "TEST_BROKER": broker, "TEST_BACKEND": backend},
                stdout=log,
                stderr=log,
            )

    def says(self, text: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return text in self.log.read_text()

    def wait_ready(self) -> None:
        wait_until(lambda: self.says("w@leveret ready."), "the worker is ready")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Site:
    """A node, a worker, and a Celery application that sends tasks to it."""

    def __init__(self, node: RunningNode, folder: Path, backend: str) -> None:
        self.node = node
        self.worker = Worker(node.url, backend, folder)
        self.app: Celery = celery.Celery("client", broker=node.url, backend=backend, set_as_current=False)

    def task(self, name: str, *arguments: object, **options: object) -> Signature:
        return self.app.signature(f"tests.interop.celery_tasks.{name}", arguments, **options)

    def stop(self) -> None:
        self.worker.stop()
        if self.app.backend.supports_autoexpire:  # rpc://, which has a connection of its own
            # The broker may have closed it before, and have given up waiting for the answer; or Celery is about to
            # connect anew, and has none.
            with contextlib.suppress(amqp.ConnectionError, OSError, AttributeError):
                self.app.backend.result_consumer.stop()
        self.app.pool.force_close_all()
        self.app.close()


@contextlib.contextmanager
def working(folder: Path, backend: str = "rpc://") -> Iterator[Site]:
    with running_nodes() as start:
        site = Site(start(), folder, backend)
        try:
            site.worker.wait_ready()
            yield site
        finally:
            site.stop()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with working(tmp_path_factory.mktemp("celery")) as site:
        yield site


def test_results_come_back(site: Site):
    sent = [site.task("add", number, number).delay() for number in range(20)]
    assert [result.get(timeout=TIMEOUT_S) for result in sent] == [2 * number for number in range(20)]


def test_a_failure_comes_back_as_its_exception(site: Site):
    with pytest.raises(ValueError, match="on purpose"):
        site.task("fail", "on purpose").delay().get(timeout=TIMEOUT_S)


def test_groups_and_chains(site: Site):
    group = celery.group([site.task("add", number, 1) for number in range(10)], app=site.app)
    assert group.apply_async().get(timeout=TIMEOUT_S) == list(range(1, 11))
    chain = celery.chain(site.task("add", 1, 2), site.task("add", 3), site.task("add", 4), app=site.app)
    assert chain.apply_async().get(timeout=TIMEOUT_S) == 10


def test_a_task_with_an_eta_is_not_run_before(site: Site):
    eta = time.time() + 0.3
    moment = datetime.datetime.fromtimestamp(eta, datetime.UTC)
    assert site.task("wall_clock").apply_async(eta=moment).get(timeout=TIMEOUT_S) >= eta


def test_retries_come_back_until_one_succeeds(site: Site):
    assert site.task("third_time_lucky").delay().get(timeout=TIMEOUT_S) == 2


def test_remote_control_reaches_the_worker(site: Site):
    assert site.app.control.ping(timeout=TIMEOUT_S, limit=1) == [{"w@leveret": {"ok": "pong"}}]
    (queues,) = site.app.control.inspect(limit=1, timeout=TIMEOUT_S).active_queues().values()
    assert [queue["name"] for queue in queues] == ["celery"]


def test_a_revoked_task_is_known_to_the_worker(site: Site):
    result = site.task("add", 1, 1).apply_async(countdown=3600)
    site.app.control.revoke(result.id, reply=True, limit=1, timeout=TIMEOUT_S)
    inspect = site.app.control.inspect(limit=1, timeout=TIMEOUT_S)
    wait_until(lambda: result.id in inspect.revoked()["w@leveret"], "the worker knows")


def test_a_queue_is_added_and_left_at_run_time(site: Site):
    site.app.control.add_consumer("more", reply=True, limit=1, timeout=TIMEOUT_S)
    wait_until(lambda: site.node.consumers("more") == 1, "the worker consumes from it")
    assert site.task("add", 1, 1).apply_async(queue="more").get(timeout=TIMEOUT_S) == 2
    site.app.control.cancel_consumer("more", reply=True, limit=1, timeout=TIMEOUT_S)
    wait_until(lambda: site.node.consumers("more") == 0, "the worker has left it")


def test_events_tell_the_life_of_a_task(site: Site):
    seen: list[tuple[str, str]] = []
    with site.app.connection_for_read() as given:
        receiver = site.app.events.Receiver(
            given, handlers={"*": lambda event: seen.append((event.get("uuid", ""), event["type"]))}
        )
        with receiver.consumer_context() as (connection, _, _):
            result = site.task("add", 1, 1).delay()
            while (result.id, "task-succeeded") not in seen:
                connection.drain_events(timeout=TIMEOUT_S)
    told = [kind for task, kind in seen if task == result.id]
    assert told == ["task-received", "task-started", "task-succeeded"]


def test_the_worker_comes_back_after_the_broker_closed_it(site: Site):
    site.node.close_connections()
    wait_until(lambda: site.node.consumers("celery") == 1, "the worker consumes again")
    with site.app.connection_for_write() as connection:
        result = site.task("add", 20, 22).apply_async(connection=connection)
    assert result.id
    wait_until(lambda: site.worker.says(f"[{result.id}] succeeded"), "the task has run")


def test_tasks_with_an_eta_do_not_hold_up_others_and_go_back_at_the_end(tmp_path: Path):
    """The worker takes them off the queue to wait for their time, and raises its prefetch by one for each."""
    with working(tmp_path) as site:
        for number in range(20):
            site.task("add", number, 1).apply_async(countdown=3600, ignore_result=True)
        wait_until(lambda: site.node.unsettled("celery") == 20, "the worker holds all twenty")
        assert site.task("add", 1, 1).delay().get(timeout=TIMEOUT_S) == 2
        site.worker.stop()
        assert (site.node.ready("celery"), site.node.unsettled("celery")) == (20, 0)


def test_a_chord_waits_for_its_header(tmp_path: Path):
    """The file backend has no counter: a task that retries by ETA looks whether all parts are done."""
    results = tmp_path / "results"
    results.mkdir()
    with working(tmp_path, results.as_uri()) as site:
        header = [site.task("add", number, number) for number in range(5)]
        chord = celery.chord(header, site.task("total"), app=site.app)
        assert chord.apply_async().get(timeout=TIMEOUT_S, interval=0.05) == 20
