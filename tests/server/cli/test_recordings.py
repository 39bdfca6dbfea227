"""`leveret record` and `replay-session` on files: what is shown, played, refused, and told of in which words."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.server import cli
from leveret.server.cli import recordings
from tests.features.recording.recorded import Recorded
from tests.harness.bench import CoreBench

PROPERTIES = BasicProperties(delivery_mode=2).encode()


@pytest.fixture
def bench() -> CoreBench:
    bench = CoreBench()
    bench.host.declare_queue("orders", durable=True)
    return bench


@pytest.fixture
def file(bench: CoreBench, tmp_path: Path) -> Path:
    """A recording of three seconds, with a message in each."""
    recorded = Recorded(bench.broker, tmp_path / "recordings")
    for body in (b"one", b"two", b"\xff\x00"):
        message = Message(ENCODING, "", "orders", PROPERTIES, body, Facts(durable=True))
        bench.broker.publish(bench.host.exchange(""), message)
        bench.broker.settle()
        bench.advance(1.0)
    return recorded.end()


def bodies(out: str) -> list[object]:
    """The bodies in what `record show --json` has printed."""
    lines = [json.loads(line) for line in out.splitlines()]
    return [line["message"]["body"] for line in lines if "message" in line]


def test_records_are_shown_up_to_a_moment(file: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["record", "show", str(file), "--json", "--at", "+1.5"], {}) == 0
    assert bodies(capsys.readouterr().out) == ["one", "two"]
    assert cli.main(["record", "show", str(file), "--json"], {}) == 0
    assert bodies(capsys.readouterr().out) == ["one", "two", None], "what is no text is not shown as such"


def test_a_file_that_is_no_recording_is_said_to_be_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_bytes(b"something else")
    for part in ("show", "stats"):
        assert cli.main(["record", part, str(tmp_path / "none")], {}) == 1
        assert "No such file" in capsys.readouterr().err
        assert cli.main(["record", part, str(tmp_path / "file")], {}) == 1
        assert capsys.readouterr().err


def test_what_is_torn_is_left_out_and_told_of(file: Path, capsys: pytest.CaptureFixture[str]):
    file.write_bytes(file.read_bytes()[:-3])
    assert cli.main(["record", "show", str(file), "--json"], {}) == 0
    assert "are torn, and left out" in capsys.readouterr().err
    assert cli.main(["replay-session", str(file)], {}) == 1
    assert "not stopped in good order" in capsys.readouterr().err


def test_records_are_counted(file: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["record", "stats", str(file)], {}) == 0
    out = capsys.readouterr().out
    assert "3 into queue 'orders'" in out
    assert "torn_bytes: 0" in out


@pytest.mark.parametrize("speed", ["fast", "0", "-1", "1e10", "nan"])
def test_a_speed_is_a_number_or_as_fast_as_it_goes(
    file: Path, speed: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        cli.main(["replay-session", str(file), f"--speed={speed}"], {})
    assert ended.value.code == 2
    assert "--speed" in capsys.readouterr().err


def test_a_recording_is_played_at_a_speed(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    waited: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append)
    monkeypatch.setattr(recordings, "time", clock)  # not everybody's: threads of other tests may be asleep
    assert cli.main(["replay-session", str(file), "--speed", "2"], {}) == 0
    assert sum(waited) == pytest.approx(1.5)
    assert "topology and queues are as the recording says at its end" in capsys.readouterr().out
    waited.clear()
    assert cli.main(["replay-session", str(file), "--speed", "max", "--json"], {}) == 0
    assert waited == []
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_a_seed_is_not_for_another_node(file: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["replay-session", str(file), "--to", "http://127.0.0.1:1", "--seed", "1"], {}) == 1
    assert "--seed is for a broker in this process" in capsys.readouterr().err


def test_a_node_that_is_not_there_is_said_to_be_away(file: Path, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and nobody listens
        port = held.getsockname()[1]
        assert cli.main(["replay-session", str(file), "--to", f"http://127.0.0.1:{port}"], {}) == 3
    assert str(port) in capsys.readouterr().err


def test_plug_ins_that_cannot_be_loaded_are_told_of(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "broken.py").write_text("raise ValueError('not today')\n")
    assert cli.main(["replay-session", str(file), "--plugins", str(tmp_path / "plugins")], {}) == 1
    assert "not today" in capsys.readouterr().err


def test_a_message_is_explained_as_of_then(file: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["explain", "--key", "orders", "--recording", str(file)]
    assert cli.main([*asked, "--header", "tries=3"], {}) == 0
    assert "orders" in capsys.readouterr().out
    assert cli.main([*asked, "--as-user", "guest"], {}) == 1
    assert "a recording has no users" in capsys.readouterr().err
    assert cli.main([*asked, "--at", "yesterday"], {}) == 1
    assert "is neither a time such as" in capsys.readouterr().err
