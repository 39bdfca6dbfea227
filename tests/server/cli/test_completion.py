"""What shells are told may stand where the cursor is, and that bash makes use of it without running any of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from leveret.server import cli
from leveret.server.cli.completion import SCRIPTS, candidates, cut, words_of
from tests.server.cli.answering import serving

ANSWERS = {
    "queues": ["orders", "or ders", "$(touch owned)", "a:b", "bell\a"],
    "exchanges": ["amq.topic"],
    "vhosts": ["/", "prod"],
    "users": ["guest"],
    "shovels": ["nightly"],
    "channels": ["10.0.0.7:4 -> 10.0.0.1:5672 (1)"],
}


def names(section: str, prefix: str) -> Sequence[str]:
    return ANSWERS.get(section, [])


def completed(*words: str) -> list[str]:
    return candidates(words, {}, names)


COMPLETED = [
    (("po",), ["policy"]),
    (("pl",), ["plan", "plugins"]),
    (("policy", ""), ["clear", "list", "set"]),
    (("list", "que"), ["queues"]),
    (("list", "queues", ""), []),
    (("list", "queues", "--so"), ["--sort"]),
    (("purge", "or"), ["or ders", "orders"]),
    (("purge", "--vhost", ""), ["/", "prod"]),
    (("purge", "--vhost", "prod", "ord"), ["orders"]),
    (("purge", "--vhost=prod", "ord"), ["orders"]),
    (("bind", "amq"), ["amq.topic"]),
    (("bind", "amq.topic", "ord"), ["orders"]),
    (("bind", "--to", "exchange", "amq.topic", ""), ["amq.topic"]),
    (("bind", "--to", ""), ["exchange", "queue"]),
    (("delete", "queue", "ord"), ["orders"]),
    (("delete", "user", ""), ["guest"]),
    (("get", "--json", "ord"), ["orders"]),
    (("get", "--ack-mode", "rej"), ["reject", "reject-requeue"]),
    (("publish", "--exchange", ""), ["amq.topic"]),
    (("completion", ""), ["bash", "fish", "zsh"]),
    (("declare", "queue", "q", "--type", "s"), ["stream"]),
    (("declare", "exchange", "x", "--type", "t"), ["topic"]),
    (("policy", "set", "p", ".*", "--apply-to", "q"), ["queues"]),
    (("list", "queues", "--sort", "messages_u"), ["messages_unacknowledged"]),
    (("shovel", "restart", ""), ["nightly"]),
    (("forget-ids", "queue", "ord"), ["orders"]),
    (("renew", ""), ["10.0.0.7:4 -> 10.0.0.1:5672 (1)"]),
    (("policy", "set", "p", ".*", "--set", "max-l"), ["max-length-bytes=", "max-length="]),
    (("operator-policy", "set", "p", ".*", "--set", "dead"), []),
    (("declare", "queue", "q", "--argument", "x-single"), ["x-single-active-consumer="]),
    (("declare", "exchange", "x", "--argument", "alt"), ["alternate-exchange="]),
    (("publish", "--property", "content_t"), ["content_type="]),
    (("log", "follow", "--level", "w"), ["warning"]),
    (("list", "users", "--columns", ""), ["name", "tags"]),
]


@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_what_may_stand_at_the_cursor_is_offered(words: tuple[str, ...], expected: list[str]):
    assert completed(*words) == expected


def test_an_unknown_command_is_passed_over():
    assert "list" in completed("nothing", "x", "")


def test_names_that_would_move_the_cursor_are_not_offered():
    assert "bell\a" not in completed("purge", "")
    assert "a:b" in completed("purge", "")


LINES = [
    ("leveret ", [""]),
    ("leveret pur", ["pur"]),
    ("leveret purge ", ["purge", ""]),
    ("leveret purge 'or d", ["purge", "or d"]),
    ("leveret purge a\\ b", ["purge", "a b"]),
    ("leveret purge --vhost=/ x#y", ["purge", "--vhost=/", "x#y"]),
]


@pytest.mark.parametrize(("line", "words"), LINES)
def test_a_line_is_split_as_a_shell_would(line: str, words: list[str]):
    assert words_of(line) == words


def test_bash_replaces_only_what_is_behind_a_colon():
    assert [cut(word) for word in ("a", "a:", "a:b", "x=a:b")] == [0, 2, 2, 4]


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_there_is_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["completion", shell], {}) == cli.DONE
    assert "leveret completion" in capsys.readouterr().out
    program = shutil.which(shell)
    if program is not None:
        checked = [program, "-n", "/dev/stdin"] if shell != "fish" else [program, "--no-execute"]
        assert subprocess.run(checked, input=SCRIPTS[shell].encode(), check=False).returncode == 0


def test_a_shell_without_a_script_is_refused(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["completion", "tcsh"], {}) == cli.USAGE
    assert capsys.readouterr() == ("", "leveret: there is no script for 'tcsh', only for bash, zsh, fish\n")


def test_a_node_that_does_not_answer_offers_nothing(capsys: pytest.CaptureFixture[str]):
    environ = {"LEVERET_URL": "http://127.0.0.1:1"}
    assert cli.main(["completion", "--line", "leveret purge "], environ) == cli.DONE
    assert capsys.readouterr() == ("", "")


def test_nobody_is_asked_for_a_password(capsys: pytest.CaptureFixture[str]):
    line = "leveret purge --user shop --url http://127.0.0.1:1 "
    assert cli.main(["completion", "--line", line], {}) == cli.DONE
    assert capsys.readouterr() == ("", "")


BASH = """
source {script}
leveret() {{ {python} -m leveret "$@"; }}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}
_leveret
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_bash(line: str, folder: Path) -> list[str]:
    (folder / "script").write_text(SCRIPTS["bash"])
    text = BASH.format(script=folder / "script", python=sys.executable, line=f"'{line}'")
    done = subprocess.run(
        ["bash", "--norc", "-c", text], capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.system
def test_bash_offers_commands_and_their_options(tmp_path: Path):
    assert in_bash("leveret po", tmp_path) == ["policy"]
    assert in_bash("leveret list queues --so", tmp_path) == ["--sort"]


@pytest.mark.system
def test_bash_quotes_the_names_of_the_node_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving([{"name": name} for name in ANSWERS["queues"]]) as url:
        monkeypatch.setenv("LEVERET_URL", url)
        assert in_bash("leveret purge ", tmp_path) == [r"\$\(touch\ owned\)", "a:b", r"or\ ders", "orders"]
        assert in_bash("leveret purge a:", tmp_path) == ["b"]
    assert not (tmp_path / "owned").exists()
