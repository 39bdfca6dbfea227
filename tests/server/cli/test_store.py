"""`leveret store`: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.durable.store.folder import MESSAGES, META
from leveret.server import cli
from leveret.server.cli import store
from tests.durable.store.shelf import Shelf, append, entries

QUEUES = {'["queue","/","orders"]': '{"number":1}', '["queue","/","bills"]': '{"number":2}'}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two queues: three messages of `orders`, one of them settled, one message of `bills`, one of nobody."""
    shelf = Shelf.of(tmp_path / "data").start()
    new = [
        entries(1, b"one", b"two", b"three"),
        entries(4, b"bill" * 2000, queue=2),
        entries(5, b"x", queue=9),
    ]
    for made in new:
        made.arrived = 1_000_000_000_000 + made.first
    shelf.commit(objects=QUEUES, chunks=new, settled={1: b"\1"})
    shelf.store.close(shelf.new_commit())
    return tmp_path / "data"


def spoil(file: Path, octets: bytes) -> None:
    """Flip a bit of these octets, wherever they are: SQLite may have left a copy in a free place."""
    content = file.read_bytes()
    assert octets in content
    file.write_bytes(content.replace(octets, bytes([octets[0] ^ 1]) + octets[1:]))


def run(*arguments: object) -> int:
    return cli.main(["store", *map(str, arguments)], {})


@pytest.mark.parametrize("command", ["verify", "stats", "backup", "restore"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        run(command, "--help")
    assert caught.value.code == 0
    assert f"usage: leveret store {command}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["hop"], ["verify"], ["backup", "a"], ["restore", "a"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]):
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == cli.USAGE


# verify


def test_a_sound_folder_is_ok(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("verify", folder) == cli.DONE
    assert capsys.readouterr().out == f"{folder}: OK; 2 objects, 4 messages (7.82 KiB) in 3 chunks\n"
    assert run("verify", "--json", folder) == cli.DONE
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["problems"], said["state"]) == (True, [], "closed properly")


@pytest.mark.system
@pytest.mark.parametrize(("mode", "name"), [(0o555, "."), (0o000, META)])
def test_what_this_user_may_not_open_is_not_called_damaged(folder: Path, mode: int, name: str):
    (folder / name).chmod(mode)
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*unprivileged, sys.executable, "-m", "leveret", "store", "verify", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (cli.REFUSED, "")
    assert done.stderr.startswith(f"leveret: {folder / (MESSAGES if name == '.' else name)} cannot be used: ")
    assert done.stderr.endswith("nothing is known to be damaged, but this user may not read and write it\n")


def test_damaged_messages_are_counted_by_queue(folder: Path, capsys: pytest.CaptureFixture[str]):
    spoil(folder / MESSAGES, b"two")
    assert run("verify", folder) == cli.REFUSED
    out = capsys.readouterr().out
    assert f"{folder}: DAMAGED; 2 objects, 4 messages" in out
    assert "chunk 1: 1 of 3 messages are damaged" in out
    assert "messages that cannot be delivered:\n  queue 'orders' in vhost '/': 1 of 2\n" in out
    assert "bills" not in out
    assert run("verify", "--json", folder) == cli.REFUSED
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    assert {queue["name"]: queue["damaged"] for queue in said["queues"]} == {"": 0, "bills": 0, "orders": 1}


def test_what_is_settled_may_be_damaged_without_harm_and_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    spoil(folder / MESSAGES, b"one")
    assert run("verify", folder) == cli.REFUSED
    out = capsys.readouterr().out
    assert "chunk 1: 1 of 3 messages are damaged" in out
    assert "cannot be delivered" not in out


def test_damage_in_what_is_declared_is_said(folder: Path, capsys: pytest.CaptureFixture[str]):
    spoil(folder / META, b'"number":2')
    assert run("verify", folder) == cli.REFUSED
    assert "the object at 2 is damaged" in capsys.readouterr().out


def test_a_database_that_cannot_be_opened_is_said_and_the_other_looked_at(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / META).write_bytes(b"x" * 8192)
    spoil(folder / MESSAGES, b"two")
    assert run("verify", folder) == cli.REFUSED
    out = capsys.readouterr().out
    assert f"{folder / META} is damaged" in out
    assert "chunk 1: 1 of 3 messages are damaged" in out


def test_a_missing_database_is_said(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / META).unlink()
    assert run("verify", folder) == cli.REFUSED
    assert f"{folder / META} is missing" in capsys.readouterr().out


def test_no_data_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for command in (["verify", tmp_path], ["stats", tmp_path], ["backup", tmp_path, tmp_path / "to"]):
        assert run(*command) == cli.REFUSED
        captured = capsys.readouterr()
        assert f"leveret: {tmp_path} is no data folder" in captured.err
        assert captured.out == ""


def test_a_folder_in_use_is_verified_without_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(objects=QUEUES, chunks=[entries(1, b"one")])
    assert run("verify", tmp_path / "data") == cli.DONE
    assert run("stats", tmp_path / "data") == cli.DONE
    assert "in use by process" in capsys.readouterr().out
    shelf.commit(chunks=[entries(2, b"two")])
    assert list(shelf.given_up().found().chunks) == [1, 2]


def test_verify_changes_nothing(tmp_path: Path, folder: Path):
    """Not even in a folder that was not closed: its logs stay."""
    shelf = Shelf.of(tmp_path / "running").start()
    shelf.commit(objects=QUEUES, chunks=[entries(1, b"one")])
    shelf.kill(tmp_path / "killed")
    for each in (folder, tmp_path / "killed"):
        before = {name: (each / name).read_bytes() for name in (MESSAGES, META)}
        logs = {file.name: file.read_bytes() for file in each.glob("*-wal")}
        assert run("verify", each) == cli.DONE
        assert before == {name: (each / name).read_bytes() for name in (MESSAGES, META)}
        assert logs.items() <= {file.name: file.read_bytes() for file in each.glob("*-wal")}.items()


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_damaged_log_is_said(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]):
    shelf = Shelf.of(tmp_path / "running").start()
    for number in range(1, 9):
        shelf.commit(objects={f'["queue","/","{number}"]': "{}"}, chunks=[entries(number, b"%d" % number)])
    shelf.kill(tmp_path / "killed")
    log = tmp_path / "killed" / f"{name}-wal"
    octets = bytearray(log.read_bytes())
    octets[len(octets) // 2] ^= 1
    assert run("verify", tmp_path / "killed") == cli.DONE
    log.write_bytes(octets)
    assert run("verify", tmp_path / "killed") == cli.REFUSED
    assert f"{log} is damaged: its last " in capsys.readouterr().out


# stats


def test_stats_tell_contents_by_queue(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("stats", "--json", folder) == cli.DONE
    said = json.loads(capsys.readouterr().out)
    rows = [
        (row["kind"], row["name"], row["messages"], row["octets"], row["oldest"]) for row in said["queues"]
    ]
    assert rows == [
        ("deleted queue", "", 1, 1, "2001-09-09T01:46:40Z"),
        ("queue", "bills", 1, 8000, "2001-09-09T01:46:40Z"),
        ("queue", "orders", 2, 8, "2001-09-09T01:46:40Z"),
    ]
    assert (said["messages"], said["octets"], said["chunks"], said["objects"]) == (4, 8009, 3, 2)
    assert said["file_octets"] == sum(file["octets"] for file in said["files"]) > 8192
    assert run("stats", folder) == cli.DONE
    assert "orders" in capsys.readouterr().out


def test_stats_know_stagings_leases_and_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    objects = {
        '["staging","/","job"]': '{"number":1}',
        '["lease","/","q","spark"]': '{"number":2}',
        '["branch","/","1-61-62"]': '{"number":3}',
    }
    shelf = Shelf.of(tmp_path).start()
    shelf.commit(objects=objects, appends=[append(1, 0, b"a"), append(2, 0, b"b"), append(3, 0, b"c")])
    shelf.store.close(None)
    assert run("stats", "--json", tmp_path) == cli.DONE
    found = [(row["kind"], row["name"]) for row in json.loads(capsys.readouterr().out)["queues"]]
    assert found == [("branch", "1-61-62"), ("lease", "spark of q"), ("staging", "job")]


# backup and restore


def test_a_backup_can_be_restored(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    expected = Shelf.of(folder).found()
    assert run("backup", folder, tmp_path / "backup") == cli.DONE
    assert run("restore", tmp_path / "backup", tmp_path / "restored") == cli.DONE
    assert capsys.readouterr().out.count(": OK; 2 objects, 4 messages") == 2
    assert Shelf.of(tmp_path / "restored").found() == expected


def test_a_backup_of_a_damaged_folder_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    spoil(folder / MESSAGES, b"two")
    assert run("backup", folder, tmp_path / "backup") == cli.REFUSED
    assert "and so its copy, is damaged" in capsys.readouterr().err


def test_a_damaged_backup_is_not_restored(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    spoil(folder / MESSAGES, b"two")
    assert run("restore", folder, tmp_path / "restored") == cli.REFUSED
    err = capsys.readouterr().err
    assert "is damaged, and nothing was restored" in err
    assert "chunk 1: 1 of 3 messages are damaged" in err
    assert not (tmp_path / "restored").exists()


def test_nothing_is_restored_over_something(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run("backup", folder, tmp_path / "backup") == cli.DONE
    assert run("restore", tmp_path / "backup", folder) == cli.REFUSED
    assert "is not empty" in capsys.readouterr().err
    shelf = Shelf.of(tmp_path / "running")
    assert run("restore", tmp_path / "backup", tmp_path / "running") == cli.REFUSED
    assert "is in use by the process" in capsys.readouterr().err
    shelf.store.close(None)


def test_long_work_is_heard_of(capsys: pytest.CaptureFixture[str]):
    moments = iter([0.0, 0.5, 1.5, 1.5, 1.6, 3.0, 3.0])
    tell = store.progress("copied", lambda: next(moments))
    for done in (1, 2, 3, 4):
        tell(done << 20, 4 << 20)
    assert capsys.readouterr().err == (
        "leveret: copied 2 MiB of 4 MiB (50 %)\nleveret: copied 4 MiB of 4 MiB (100 %)\n"
    )


def test_sizes_are_said_as_people_say_them():
    said: Callable[[float], str] = store.size
    assert [said(octets) for octets in (0, 999, 1000, 1536, 5 << 20, 5 << 30)] == [
        "0 B", "999 B", "0.977 KiB", "1.5 KiB", "5 MiB", "5 GiB",
    ]  # fmt: skip
