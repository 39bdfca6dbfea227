"""`leveret cluster try` and `failover --kill`: the cluster that people try on a laptop, and what it tells them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.server.cli import DONE, REFUSED, main
from leveret.server.cluster import drill, trial
from leveret.server.cluster.drill import DrillResult, FailoverDrill
from leveret.server.cluster.trial import RESTART_S, DatabasePair, Trial, TrialError, TrialNode
from tests.harness.postgres import need_postgres
from tests.interop.conftest import wait_until

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the note of a trial is: apart from any other's."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other runs of the tests may want the usual ones."""
    monkeypatch.setattr(trial, "NODES", (("a", 0, 0, 0), ("b", 0, 0, 0)))


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def tried(lines: list[str]) -> Iterator[Trial]:
    need_postgres()
    with Trial(lines.append) as made:
        yield made
    assert not made.folder.exists()


def is_serving(node: TrialNode, capsys: Printed) -> bool:
    return main(["cluster", "status", "--url", f"http://127.0.0.1:{node.http}"], {}) == DONE and (
        f"{node.name} serves" in capsys.readouterr().out
    )


def test_a_cluster_is_tried_and_its_owner_killed_under_load(
    tried: Trial, lines: list[str], capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill, "BEFORE_S", 0.5)
    monkeypatch.setattr(drill, "AFTER_S", 0.5)
    owner, other = (each for each in tried.nodes)
    wait_until(lambda: is_serving(owner, capsys) or is_serving(other, capsys), "a node serves")
    if not is_serving(owner, capsys):
        owner, other = other, owner
    assert main(["cluster", "failover", "--kill"], {}) == DONE
    out = capsys.readouterr().out
    assert f"killing node {owner.name}" in out
    assert "lost 0;" in out
    assert is_serving(other, capsys)
    # It is started again, after a while.
    wait_until(lambda: dict(tried._ended) or tried.look_after(0.0), "its end is noticed")
    tried.look_after(RESTART_S - 0.1)
    assert f"starting node {owner.name} again" not in lines
    tried.look_after(RESTART_S)
    assert lines[-1] == f"starting node {owner.name} again"
    [again] = [each for each in trial.noted() if each.name == owner.name]
    assert again.pid != owner.pid
    # And takes over when it is asked to.
    url = f"http://127.0.0.1:{other.http}"
    wait_until(
        lambda: main(["cluster", "failover", "--url", url], {}) == DONE, "the node that was killed is back"
    )
    assert f"{owner.name} serves instead of {other.name}" in capsys.readouterr().out


def test_without_a_trial_there_is_nothing_to_kill(capsys: Printed, notes: Path) -> None:
    assert main(["cluster", "failover", "--kill"], {}) == REFUSED
    assert "start `leveret cluster try`" in capsys.readouterr().err
    trial.note_file().write_text("{}")
    with pytest.raises(TrialError, match="no trial runs here"):
        trial.noted()
    trial.forget(notes)
    assert trial.note_file().exists(), "it is of another trial"


def test_a_drill_that_loses_messages_says_so_and_fails(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "noted", lambda: [TrialNode("a", 1, 2, 3)])
    monkeypatch.setattr(FailoverDrill, "run", lambda self, kill, tell: DrillResult(10, 8, 1, 0, 0.5))
    assert main(["cluster", "failover", "--kill"], {}) == REFUSED
    assert "confirmed 10, found 8, lost 2; 1 more found unconfirmed, 0 twice" in capsys.readouterr().out
    assert main(["cluster", "failover", "--kill", "--json"], {}) == REFUSED
    assert '"lost": 2' in capsys.readouterr().out


def test_a_trial_says_where_its_nodes_are_and_ends_with_ctrl_c(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Interrupted:
        """A trial that is interrupted when it is looked after for the second time."""

        folder = tmp_path
        nodes = (TrialNode("a", 1, 5672, 15672), TrialNode("b", 2, 5673, 15673))
        looks = 0

        def __init__(self, tell: object) -> None: ...

        def __enter__(self) -> Interrupted:
            return self

        def __exit__(self, *error: object) -> None: ...

        def look_after(self, now: float) -> None:
            self.looks += 1
            if self.looks == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)

    monkeypatch.setattr(trial, "Trial", Interrupted)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["cluster", "try"], {}) == DONE
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr()
    assert "amqp://guest:guest@127.0.0.1:5673" in said.out
    assert "the folder is gone" in said.err


def test_what_a_trial_lacks_is_told(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.tempfile, "mkdtemp", lambda **_: pytest.fail("a folder is left behind"))
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    monkeypatch.setattr(trial.shutil, "which", lambda name: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["cluster", "try"], {}) == REFUSED
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "apt-get install postgresql" in capsys.readouterr().err


def test_a_node_that_does_not_start_ends_the_trial_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    need_postgres()
    for owner, name in ((DatabasePair, "start"), (DatabasePair, "stop"), (Trial, "_make_store")):
        monkeypatch.setattr(owner, name, lambda self: None)  # a node reads its configuration first
    configure = Trial._configure

    def wrong(self: Trial, name: str) -> None:
        configure(self, name)
        with (self.folder / f"{name}.toml").open("a") as file:
            file.write("[nonsense]\n")

    monkeypatch.setattr(Trial, "_configure", wrong)
    made = Trial(lambda line: None)
    with pytest.raises(TrialError, match="nonsense"), made:
        pytest.fail("it has not started")
    assert not made.folder.exists()
