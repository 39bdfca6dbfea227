"""Commands over the API: what they do to a broker, what they print, and what they say when it refuses."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.server import cli
from leveret.server.cli.commands import GROUPS, OWN
from leveret.server.cli.examples import EXAMPLES
from tests.server.cli.node import Node, Typed
from tests.sources import ROOT

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def node() -> Node:
    return Node()


def printed(capsys: Captured) -> str:
    return capsys.readouterr().out


def said(node: Node, capsys: Captured, *arguments: str) -> str:
    """What a command that is done prints."""
    assert node.run(*arguments) == cli.DONE, capsys.readouterr().err
    return printed(capsys)


def rows(node: Node, capsys: Captured, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(said(node, capsys, "list", *arguments, "--json"))
    return found


# Declaring.


def test_what_is_declared_is_there(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "q", "--argument", "x-max-length=5", "--transient")
    said(node, capsys, "declare", "exchange", "x", "--type", "topic", "--internal")
    said(node, capsys, "declare", "vhost", "prod")
    queue, exchange = node.host.queue("q"), node.host.exchange("x")
    assert (queue.durable, dict(queue.arguments)) == (False, {"x-max-length": 5})
    assert (exchange.type.name, exchange.internal, exchange.durable) == ("topic", True, True)
    assert node.broker.virtual_host("prod")


def test_the_type_of_a_queue_is_an_argument(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "s", "--type", "stream")
    assert [row["name"] for row in rows(node, capsys, "streams")] == ["s"]


def test_what_is_deleted_is_gone(node: Node, capsys: Captured):
    for what in ("queue", "exchange", "vhost"):
        said(node, capsys, "declare", what, "gone")
        assert "is deleted" in said(node, capsys, "delete", what, "gone", "--yes")
    assert "gone" not in {*node.host.queues, *node.host.exchanges, *(h.name for h in node.broker.hosts())}


def test_what_is_deleted_is_told_with_what_was_in_it(node: Node, capsys: Captured):
    said(node, capsys, "declare", "vhost", "prod")
    for name in ("q", "r"):
        node.broker.virtual_host("prod").declare_queue(name)
    assert "virtual host 'prod' with 2 queues is deleted" in said(
        node, capsys, "delete", "vhost", "prod", "--yes"
    )
    queue = node.host.declare_queue("q")
    node.host.bind(node.host.exchange("amq.topic"), queue, "k")
    for _ in range(2):
        said(node, capsys, "publish", "--key", "q", "x")
    told = json.loads(said(node, capsys, "purge", "q", "--json", "--yes"))
    assert told == {"purged": "q", "messages": 2}
    said(node, capsys, "publish", "--key", "q", "x")
    assert "dropped 1 message of queue 'q' in vhost '/'\n" in said(node, capsys, "purge", "q", "--yes")
    for _ in range(2):
        said(node, capsys, "publish", "--key", "q", "x")
    assert "queue 'q' in vhost '/' with 2 messages is deleted" in said(
        node, capsys, "delete", "queue", "q", "--yes"
    )


def test_without_a_terminal_nothing_is_lost_unless_that_is_said(node: Node, capsys: Captured):
    node.host.declare_queue("q")
    assert node.run("delete", "queue", "q") == cli.REFUSED
    assert capsys.readouterr().err == (
        "leveret: This deletes queue 'q' in vhost '/'. Nothing was changed: there is no terminal to ask at, and --yes "
        "does without\n"
    )
    assert "q" in node.host.queues


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (
            ["unbind", "amq.direct", "q", "--key", "k"],
            "'amq.direct' will not route to queue 'q' by the key 'k'.",
        ),
        (["policy", "clear", "p"], "This clears policy 'p' in vhost '/'."),
        (["permission", "clear", "guest"], "This removes the permissions of user 'guest' in vhost '/'."),
    ],
)
def test_without_a_terminal_nothing_is_removed_unless_that_is_said(
    node: Node, capsys: Captured, words: list[str], fact: str
):
    node.host.declare_queue("q")
    said(node, capsys, "bind", "amq.direct", "q", "--key", "k")
    said(node, capsys, "policy", "set", "p", "^q", "--set", "max-length=5")
    assert node.run(*words) == cli.REFUSED
    told = capsys.readouterr().err
    assert told.startswith(f"leveret: {fact}")
    assert "Nothing was changed: there is no terminal to ask at" in told
    assert "p" in said(node, capsys, "list", "policies")
    assert "amq.direct" in said(node, capsys, "list", "bindings")


@pytest.mark.parametrize(
    ("verb", "fact"),
    [("commit", "commits"), ("rollback", "rolls back"), ("forget", "forgets the outcome of")],
)
def test_without_a_terminal_no_branch_is_decided_unless_that_is_said(verb: str, fact: str, capsys: Captured):
    assert cli.main(["branches", verb, "1:61", "--url", "http://127.0.0.1:9"], {}) == cli.REFUSED
    told = capsys.readouterr().err
    assert told.startswith(f"leveret: This {fact} branch '1:61' in vhost '/', which cannot be taken back.")
    assert cli.main(["branches", verb, "1:61", "--url", "http://127.0.0.1:9", "--yes"], {}) == cli.UNREACHABLE


DESTROYING = {"delayed", "forget-ids", "purge", "unbind", "commit", "rollback", "forget"}
CLEARED = {"policy", "operator-policy", "permission"}


def test_every_command_that_destroys_can_be_told_not_to_ask():
    for words, parser in commands_with_parsers():
        destroys = DESTROYING & set(words) or any(word.startswith("delete") for word in words)
        if words[0] != "logins" and (destroys or ("clear" in words and CLEARED & set(words))):
            assert "--yes" in parser.format_help(), words


def test_every_help_has_an_example_that_can_be_typed():
    unread = set(EXAMPLES)
    for words, parser in commands_with_parsers():
        assert "\nexample" in parser.format_help(), words
        unread.discard(" ".join(words))
    assert unread == set()
    for words, example in EXAMPLES.items():
        if words != "completion":  # which is for a shell
            assert example.startswith(f"leveret {words}")
            cli.parser({}).parse_args(shlex.split(example)[1:])


def test_every_command_is_in_one_group():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(OWN)


def commands_with_parsers() -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Yield each command that does something, with its parser."""
    top = cli.parser({})
    top.add_own()
    left: list[tuple[list[str], argparse.ArgumentParser]] = [([], top)]
    while left:
        words, parser = left.pop()
        parts = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        left += [([*words, name], part) for each in parts for name, part in each.choices.items()]
        if not parts:
            yield words, parser


@pytest.mark.parametrize("command", [["--help"], ["delete", "queue", "--help"], ["completion", "bash"]])
def test_a_reader_that_has_gone_is_no_failure(command: list[str]):
    """As `leveret ... | head` has it: what is in the buffer at the end finds nobody."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "leveret", *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.system
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_failure_and_their_descriptors_are_not_for_others(closed: str):
    code = (
        "import os, sys; from leveret.server import cli; done = cli.main(['completion', 'bash'], {}); "
        "sys.exit(done or os.open(os.devnull, os.O_RDONLY) <= 2 or sys.stdin.read() != '')"
    )
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code]
    done = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.system
def test_a_full_disk_below_the_output_is_told_in_a_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "leveret", "completion", "bash"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "leveret: the output cannot be written: No space left on device\n"
    assert done.returncode == cli.REFUSED


@pytest.mark.system
def test_names_that_the_encoding_of_the_terminal_lacks_are_escaped(tmp_path: Path):
    (tmp_path / "leveret.toml").write_text(
        '[[virtual_hosts]]\nname = "/"\n[[virtual_hosts]]\nname = "größe 日"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "leveret", "check", str(tmp_path / "leveret.toml")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "  virtual hosts    /, größe \\u65e5\n".encode("latin-1") in done.stdout


def test_a_package_that_an_extra_brings_is_told(capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in cli.EXTRAS.items():
        assert any(each.startswith(package) for each in extras[extra])

    def lacking(*_: object) -> int:
        raise ModuleNotFoundError("No module named 'pyarrow.dataset'", name="pyarrow.dataset")

    monkeypatch.setattr("leveret.server.cli.completion.complete", lacking)
    assert cli.main(["completion", "bash"], {}) == cli.REFUSED
    assert capsys.readouterr().err == "leveret: pyarrow is not installed: pip install 'leveret[delta]'\n"


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("queue", "q"), "queue 'q'"),
        (("exchange", "x"), "exchange 'x'"),
        (("vhost", "h"), "virtual host 'h'"),
    ],
)
def test_what_is_declared_is_told_as_made_or_as_there(
    node: Node, capsys: Captured, command: tuple[str, ...], what: str
):
    assert said(node, capsys, "declare", *command).startswith(f"{what} is made")
    assert said(node, capsys, "declare", *command).startswith(f"{what} was there already")
    assert json.loads(said(node, capsys, "declare", *command, "--json"))["created"] is False


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (("delete", "queue", "q"), "This deletes queue 'q' in vhost '/' with 1 message. Go on? [y/N]"),
        (("purge", "q"), "This drops 1 message of queue 'q' in vhost '/'. Go on? [y/N]"),
        (("delete", "vhost", "/"), "This deletes virtual host '/' with 1 queue and 1 message. Go on? [y/N]"),
        (("user", "delete", "guest"), "This deletes user 'guest'. Go on? [y/N]"),
        (("delete", "exchange", "x"), "This deletes exchange 'x' in vhost '/' with 1 binding. Go on? [y/N]"),
    ],
)
def test_a_person_is_asked_before_something_is_lost(
    command: tuple[str, ...], question: str, node: Node, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    queue = node.host.declare_queue("q")
    said(node, capsys, "declare", "exchange", "x")
    node.host.bind(node.host.exchange("x"), queue, "")
    said(node, capsys, "publish", "--key", "q", "x")
    for answer in ("n\n", "\n", ""):
        monkeypatch.setattr("sys.stdin", Typed(answer))
        assert node.run(*command) == cli.REFUSED
        err = capsys.readouterr().err
        assert question in err
        assert "nothing was changed" in err
    assert node.host.queue("q").ready == 1
    assert node.broker.access.user("guest") is not None
    monkeypatch.setattr("sys.stdin", Typed(""))
    assert node.run(*command, "--yes") == cli.DONE
    assert "Go on?" not in capsys.readouterr().err


def test_an_answer_in_the_affirmative_deletes(node: Node, capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    node.host.declare_queue("q")
    monkeypatch.setattr("sys.stdin", Typed("y\n"))
    said(node, capsys, "delete", "queue", "q")
    assert "q" not in node.host.queues


def test_a_queue_with_messages_stays_if_only_an_empty_one_was_to_go(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "q")
    said(node, capsys, "publish", "--key", "q", "x")
    assert node.run("delete", "queue", "q", "--if-empty", "--yes") == cli.REFUSED
    assert node.host.queue("q").ready == 1


def test_what_differs_is_refused_in_the_words_of_the_node(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "q")
    assert node.run("declare", "queue", "q", "--transient") == cli.REFUSED
    assert "inequivalent arg 'durable' for queue 'q'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["purge", "nope"], "there is no queue 'nope' in vhost '/'; `leveret list queues`"),
        (["delete", "exchange", "nope"], "there is no exchange 'nope' in vhost '/'"),
        (["delete", "vhost", "nope"], "there is no virtual host 'nope'"),
        (["delete", "user", "nope"], "there is no user 'nope'"),
        (["policy", "clear", "nope"], "there is no policy 'nope' in vhost '/'"),
        (["close", "connection", "nope"], "there is no connection 'nope'"),
        (["bind", "nope", "q"], "there is no exchange 'nope' or no 'q' in vhost '/'"),
        (["list", "queues", "--vhost", "nope"], "there is no virtual host 'nope'; `leveret list vhosts`"),
        (["list", "bindings", "--vhost", "nope"], "there is no virtual host 'nope'"),
        (["export", "--vhost", "nope"], "there is no virtual host 'nope'"),
        (["lint", "--live", "--vhost", "nope"], "there is no virtual host 'nope'; there are /"),
        (["permission", "clear", "nope"], "there is no user 'nope' with permissions in vhost '/'"),
        (["limit", "set", "max-channels", "1", "--of-user", "nope"], "leveret: no such user: nope"),
        (["limit", "set", "max-queues", "1", "--vhost", "nope"], "there is no virtual host 'nope'"),
        (["limit", "clear", "max-queues", "--vhost", "nope"], "there is no virtual host 'nope'"),
        (["list", "limits", "--vhost", "nope"], "there is no virtual host 'nope'"),
        (["declare", "queue", "q", "--vhost", "nope"], "there is no virtual host 'nope'"),
        (["policy", "set", "p", "^q", "--set", "expires=1", "--vhost", "nope"], "no virtual host 'nope'"),
        (["renew", "nope"], "there is no channel 'nope'"),
        (["forget-ids", "queue", "nope", "--yes"], "there is no queue 'nope' in vhost '/'"),
        (["permission", "set", "nope"], "there is no user 'nope' or no virtual host '/'"),
        (["import", "/nope/x.json"], "leveret: /nope/x.json: No such file or directory"),
        (["close", "connection", "x", "--reason", "a\nb"], "printable"),
        (
            ["limit", "set", "max-channels", "1"],
            "no limit of a vhost; there are max-connections, max-queues, max-publish-rate",
        ),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(
    arguments: list[str], words: str, node: Node, capsys: Captured
):
    assert node.run(*arguments) == cli.REFUSED
    assert words in capsys.readouterr().err


def test_a_refusal_of_rabbitmqs_form_is_one_sentence(node: Node, capsys: Captured):
    assert node.run("policy", "set", "p", "^q", "--set", "max-lenght=1") == cli.REFUSED
    assert capsys.readouterr().err == (
        "leveret: Validation failed: invalid policy 'p' in vhost '/': 'max-lenght' is not one of the keys; did you mean"
        " max-length?\n"
    )


def test_no_other_user_is_offered_for_what_nobody_may_do(node: Node, capsys: Captured):
    assert node.run("declare", "exchange", "amq.mine") == cli.REFUSED
    assert "--user" not in capsys.readouterr().err


def test_exchanges_lead_to_queues_and_exchanges_and_no_more(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "q")
    said(node, capsys, "declare", "exchange", "x", "--type", "headers")
    said(node, capsys, "bind", "x", "q", "--argument", "kind=invoice", "--argument", "copies=2")
    said(node, capsys, "bind", "amq.topic", "x", "--to", "exchange", "--key", "a.#")
    found = rows(node, capsys, "bindings")
    assert {"kind": "invoice", "copies": 2} in [row["arguments"] for row in found]
    assert ("amq.topic", "x", "a.#") in [
        (row["source"], row["destination"], row["routing_key"]) for row in found
    ]
    assert node.run("unbind", "x", "q") == cli.REFUSED
    assert "with the key ''" in capsys.readouterr().err
    said(node, capsys, "unbind", "x", "q", "--argument", "kind=invoice", "--argument", "copies=2", "--yes")
    said(node, capsys, "unbind", "amq.topic", "x", "--to", "exchange", "--key", "a.#", "--yes")
    assert [row["source"] for row in rows(node, capsys, "bindings")] == [""]


# Listing.


def test_lists_are_tables_and_programs_get_the_columns_that_they_ask_for(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "short")
    said(node, capsys, "declare", "queue", "long")
    said(node, capsys, "publish", "--key", "long", "x")
    lines = said(node, capsys, "list", "queues", "--columns", "name,messages", "--sort", "messages")
    assert lines.splitlines() == ["name   messages", "short  0", "long   1"]
    asked = ("queues", "--sort", "messages", "--reverse", "--limit", "1", "--columns", "name")
    assert rows(node, capsys, *asked) == [{"name": "long"}]


def test_columns_that_nothing_has_are_told(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "q")
    assert node.run("list", "queues", "--columns", "name,mesages,policy") == cli.DONE
    assert (
        capsys.readouterr().err
        == "leveret: nothing in this list has 'mesages'; did you mean messages?; --json shows what there is\n"
    )


@pytest.mark.parametrize("flag", ["--sort", "--columns"])
def test_a_column_that_is_not_there_is_told_also_of_an_empty_list(flag: str, node: Node, capsys: Captured):
    assert node.run("list", "queues", flag, "mesages") == cli.DONE
    assert "'mesages'; did you mean messages?" in capsys.readouterr().err
    node.host.declare_queue("q")
    assert node.run("list", "queues", flag, "mesages") == cli.DONE
    assert "'mesages'; did you mean messages?" in capsys.readouterr().err


def test_more_than_a_page_is_listed_to_the_end(node: Node, capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("leveret.server.cli.api.PAGE", 3)
    for number in range(8):
        node.host.declare_queue(f"q{number}")
    assert len(rows(node, capsys, "queues", "--columns", "name")) == 8
    assert len(rows(node, capsys, "queues", "--columns", "name", "--limit", "5")) == 5


@pytest.mark.parametrize(
    "what", ["exchanges", "bindings", "vhosts", "users", "permissions", "policies", "operator-policies"]
)
def test_everything_else_can_be_listed(what: str, node: Node, capsys: Captured):
    assert "could not" not in said(node, capsys, "list", what)
    assert isinstance(rows(node, capsys, what), list)


def test_a_filter_is_a_regular_expression_also_where_the_node_has_none(node: Node, capsys: Captured):
    for name in ("a1", "a2", "b1"):
        said(node, capsys, "declare", "queue", name)
        said(node, capsys, "declare", "vhost", name)
    assert [row["name"] for row in rows(node, capsys, "queues", "--filter", "^a")] == ["a1", "a2"]
    assert [row["name"] for row in rows(node, capsys, "vhosts", "--filter", "^a")] == ["a1", "a2"]


def test_names_cannot_move_the_cursor(node: Node, capsys: Captured):
    node.host.declare_queue("\x1b[2Jevil\u202e")
    out = said(node, capsys, "list", "queues", "--columns", "name")
    assert r"\x1b[2Jevil\u202e" in out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_refusals_cannot_draw_either(node: Node, capsys: Captured):
    assert node.run("purge", "\x1b[2Jgone") == cli.REFUSED
    assert r"'\x1b[2Jgone'" in capsys.readouterr().err


# Messages.


def test_a_message_is_published_looked_at_and_taken(node: Node, capsys: Captured):
    said(node, capsys, "declare", "queue", "q")
    flags = ["--header", "copies=2", "--property", "message_id=7", "--property", "priority=3", "--persistent"]
    said(node, capsys, "publish", "--key", "q", "hello", *flags)
    (peeked,) = json.loads(said(node, capsys, "peek", "q", "--json"))
    assert peeked["payload"] == "hello"
    assert peeked["redelivered"] is False
    (got,) = json.loads(said(node, capsys, "get", "q", "--json"))
    assert got["properties"] == {
        "delivery_mode": 2, "headers": {"copies": 2}, "message_id": "7", "priority": 3,
    }  # fmt: skip
    text = said(node, capsys, "get", "q", "--ack-mode", "ack")
    assert "redelivered" in text
    assert text.endswith("payload\n  hello\n")
    assert said(node, capsys, "get", "q") == "no message\n"


def test_any_octets_go_through_files(node: Node, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    (tmp_path / "body").write_bytes(octets := bytes(range(256)))
    node.host.declare_queue("q")
    assert node.run("publish", "--key", "q", "--file", str(tmp_path / "body")) == cli.DONE
    capsysbinary.readouterr()
    assert node.run("get", "q", "--raw") == cli.DONE
    assert capsysbinary.readouterr().out == octets


def test_the_payload_may_come_from_standard_input(
    node: Node, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    node.host.declare_queue("q")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"from far")))
    said(node, capsys, "publish", "--key", "q")
    assert "from far" in said(node, capsys, "peek", "q")


def test_a_message_that_no_queue_takes_is_exit_code_1(node: Node, capsys: Captured):
    assert node.run("publish", "--key", "nowhere", "x") == cli.REFUSED
    assert "dropped: the default exchange leads nowhere with the key 'nowhere'" in printed(capsys)


def test_messages_are_purged_and_moved(node: Node, capsys: Captured):
    for name in ("a", "b"):
        node.host.declare_queue(name)
    for _ in range(3):
        said(node, capsys, "publish", "--key", "a", "x")
    assert "3 messages" in said(node, capsys, "move", "a", "b")
    assert node.host.queue("b").ready == 3
    said(node, capsys, "purge", "b", "--yes")
    assert node.host.queue("b").ready == 0


def test_a_queue_is_paused_and_resumed(node: Node, capsys: Captured):
    node.host.declare_queue("q")
    assert "queue 'q' is paused" in said(node, capsys, "pause", "q")
    assert node.host.queue("q").paused
    assert json.loads(said(node, capsys, "resume", "q", "--json"))["state"] == "running"
    assert not node.host.queue("q").paused
    assert node.run("pause", "nothing") == cli.REFUSED


def test_messages_that_could_not_be_read_are_read_again(node: Node, capsys: Captured):
    node.host.declare_queue("q")
    assert "nothing of queue 'q' is read again" in said(node, capsys, "reread", "q")
    assert json.loads(said(node, capsys, "reread", "q", "--json"))["rereading"] == 0
    assert node.run("reread", "nothing") == cli.REFUSED


def test_a_renewal_on_a_channel_that_is_not_there_is_refused(node: Node, capsys: Captured):
    assert node.run("renew", "nobody (1)") == cli.REFUSED
    assert node.run("renew", "nobody (1)", "7") == cli.REFUSED


# Policies, users, permissions, limits.


def test_policies_of_both_kinds_are_set_listed_and_cleared(node: Node, capsys: Captured):
    for kind, listed in (("policy", "policies"), ("operator-policy", "operator-policies")):
        said(node, capsys, kind, "set", "p", "^q", "--set", "max-length=5", "--apply-to", "queues")
        (row,) = rows(node, capsys, listed)
        assert (row["name"], row["pattern"], row["definition"]) == ("p", "^q", {"max-length": 5})
        assert "max-length=5" in said(node, capsys, kind, "list")
        said(node, capsys, kind, "clear", "p", "--yes")
        assert rows(node, capsys, listed) == []


def with_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_user_is_made_with_a_password_that_no_argument_holds(
    node: Node, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    with_input(monkeypatch, "sesame\n")
    said(node, capsys, "user", "add", "shop", "--tags", "management,policymaker")
    assert set(node.broker.access.authenticate("shop", "sesame").tags) == {"management", "policymaker"}
    (tmp_path / "new").write_text("other\n")
    said(node, capsys, "user", "password", "shop", "--new-password-file", str(tmp_path / "new"))
    assert set(node.broker.access.authenticate("shop", "other").tags) == {"management", "policymaker"}
    said(node, capsys, "user", "tags", "shop", "monitoring")
    assert set(node.broker.access.authenticate("shop", "other").tags) == {"monitoring"}
    said(node, capsys, "user", "delete", "shop", "--yes")
    assert [row["name"] for row in rows(node, capsys, "users")] == ["guest"]


def test_a_user_who_is_there_is_not_made_anew(node: Node, capsys: Captured, tmp_path: Path):
    (tmp_path / "new").write_text("sesame")
    asked = ("user", "add", "guest", "--new-password-file", str(tmp_path / "new"))
    assert node.run(*asked) == cli.REFUSED
    assert "there is a user 'guest' already; `leveret user password`" in capsys.readouterr().err
    assert set(node.broker.access.authenticate("guest", "guest").tags) == {"administrator"}


def test_an_empty_password_is_refused(node: Node, capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    with_input(monkeypatch, "")
    assert node.run("user", "add", "shop") == cli.REFUSED
    assert "--no-password" in capsys.readouterr().err
    said(node, capsys, "user", "add", "shop", "--no-password")


def test_a_change_that_a_file_sets_back_is_told_at_once(node: Node, capsys: Captured, tmp_path: Path):
    node.broker.file_objects.add("/etc/definitions.json", "user", "guest")
    (tmp_path / "new").write_text("guest")
    assert node.run("user", "password", "guest", "--new-password-file", str(tmp_path / "new")) == cli.DONE
    out, err = capsys.readouterr()
    assert out == "user 'guest' has a new password\n"
    assert err == "leveret: warning: this holds until restart; /etc/definitions.json says otherwise\n"


def test_permissions_are_none_unless_they_are_said(node: Node, capsys: Captured):
    said(node, capsys, "user", "add", "shop", "--no-password")
    said(node, capsys, "permission", "set", "shop", "--read", "^q")
    (row,) = [row for row in rows(node, capsys, "permissions") if row["user"] == "shop"]
    assert (row["configure"], row["write"], row["read"]) == ("^$", "^$", "^q")
    said(node, capsys, "permission", "clear", "shop", "--yes")
    assert "shop" not in said(node, capsys, "permission", "list")


def test_virtual_hosts_and_users_have_limits(node: Node, capsys: Captured):
    said(node, capsys, "limit", "set", "max-queues", "1")
    said(node, capsys, "limit", "set", "max-channels", "2", "--of-user", "guest")
    assert [row["value"] for row in rows(node, capsys, "limits")] == [{"max-queues": 1}]
    assert [row["value"] for row in rows(node, capsys, "user-limits")] == [{"max-channels": 2}]
    said(node, capsys, "limit", "clear", "max-queues")
    assert rows(node, capsys, "limits") == []


# Definitions.


def test_what_is_exported_can_be_imported_elsewhere(node: Node, capsys: Captured, tmp_path: Path):
    said(node, capsys, "declare", "queue", "q", "--argument", "x-max-length=5")
    said(node, capsys, "bind", "amq.topic", "q", "--key", "a.#")
    file = tmp_path / "all.json"
    said(node, capsys, "export", "--file", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    other = Node()
    said(other, capsys, "import", str(file))
    assert dict(other.host.queue("q").arguments) == {"x-max-length": 5}
    said(other, capsys, "declare", "vhost", "prod")
    (tmp_path / "one.json").write_text(said(node, capsys, "export", "--vhost", "/"))
    said(other, capsys, "import", str(tmp_path / "one.json"), "--vhost", "prod")
    assert other.broker.virtual_host("prod").queue("q")


def test_an_import_reports_and_takes_the_rest(node: Node, capsys: Captured, tmp_path: Path):
    file = tmp_path / "rabbit.json"
    users = [{"name": "ann", "password_hash": "A" * 27 + "=", "tags": ""}]
    policies = [{"name": "p", "vhost": "/", "pattern": "", "definition": {"max-lenght": 1}}]
    file.write_text(
        json.dumps({"queues": [{"name": "q", "vhost": "/"}], "users": users, "policies": policies})
    )
    for flag, would in (("--dry-run", "would be "), ("--strict", None), ("--vhost=/", ""), (None, "")):
        assert node.run("import", str(file), *filter(None, [flag])) == cli.REFUSED
        out, err = capsys.readouterr()
        assert "policy 'p' in vhost '/' (policies[0].definition): " in err
        assert "did you mean max-length?" in err
        if would is not None:
            assert out.startswith(f"{would}imported: ")
            assert "1 item refused:\n" in err
        if flag in ("--dry-run", None):
            assert "  user 'ann': the password is hashed with MD5" in out
            assert "`leveret user password ann`" in out
        assert ("q" in node.host.queues) == (flag not in ("--dry-run", "--strict"))


def test_a_rabbitmq_gets_what_it_knows_and_never_a_dry_run(
    node: Node, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("leveret.server.cli.api.own_path", lambda *names: "/api/unheard-of")
    file = tmp_path / "rabbit.json"
    file.write_text('{"queues": [{"name": "q", "vhost": "/"}]}')
    assert node.run("import", str(file), "--dry-run") == cli.REFUSED
    assert "it may be older than this command, or a RabbitMQ" in capsys.readouterr().err
    assert "q" not in node.host.queues
    assert said(node, capsys, "import", str(file)) == "imported the definitions\n"
    assert "q" in node.host.queues


def test_a_file_that_is_no_json_is_refused_before_the_node_is_asked(
    node: Node, capsys: Captured, tmp_path: Path
):
    (tmp_path / "bad.json").write_text("{")
    assert node.run("import", str(tmp_path / "bad.json")) == cli.REFUSED
    assert "bad.json is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_that_was_saved_on_windows_is_imported(node: Node, tmp_path: Path, encoding: str):
    file = tmp_path / "rabbit.json"
    file.write_bytes('{"queues": [{"name": "größer", "vhost": "/"}]}\r\n'.encode(encoding))
    assert node.run("import", str(file)) == cli.DONE
    assert "größer" in node.host.queues


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "holds no definitions"), ("null", "holds no definitions"), ("[" * 100_000, "is not JSON")],
)
def test_what_cannot_be_definitions_is_refused_with_the_name_of_the_file(
    node: Node, capsys: Captured, tmp_path: Path, text: str, words: str
):
    (tmp_path / "bad.json").write_text(text)
    assert node.run("import", str(tmp_path / "bad.json")) == cli.REFUSED
    assert f"bad.json {words}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "declare queue",
        "declare exchange",
        "declare vhost",
        "delete queue --yes",
        "user tags",
        "policy set --set max-length=1 ^a",
        "policy clear --yes",
    ],
)
def test_an_empty_name_is_told_as_one(node: Node, capsys: Captured, command: str):
    words = command.split()
    at = 2 if words[0] != "policy" or words[1] == "clear" else len(words) - 1
    assert node.run(*words[:at], "", *words[at:]) == cli.REFUSED
    assert capsys.readouterr().err == "leveret: the name is empty\n"


def test_each_problem_of_a_file_is_told_once(node: Node, capsys: Captured, tmp_path: Path):
    (tmp_path / "bad.json").write_text('{"queues": [{"vhost": "/", "name": 1}]}')
    assert node.run("import", str(tmp_path / "bad.json")) == cli.REFUSED
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len({line.removeprefix("leveret: ") for line in lines}) > 0


def test_a_user_without_the_right_is_told_so_and_not_that_his_password_is_wrong(node: Node, capsys: Captured):
    node.broker.access.add_user("shop", "guest", ("management",))
    assert node.run("list", "users", "--user", "shop") == cli.REFUSED
    assert "Not administrator user: another --user may do this" in capsys.readouterr().err


def test_tracing_is_switched_on_and_off(node: Node, capsys: Captured):
    said(node, capsys, "trace", "on")
    assert [row["tracing"] for row in rows(node, capsys, "vhosts")] == [True]
    said(node, capsys, "trace", "off")
    assert [row["tracing"] for row in rows(node, capsys, "vhosts")] == [False]


def test_messages_that_wait_are_listed_cancelled_and_delivered(node: Node, capsys: Captured):
    queue = node.host.declare_queue("q")
    assert "no message of 'q' waits" in said(node, capsys, "delayed", "q")
    for number in range(4):
        due_ms = int((node.broker.clock.wall() + 60 + number) * 1000)
        queue.push(Message(ENCODING, "", "q", b"", b"x", Facts(due_ms=due_ms)))
    listed = said(node, capsys, "delayed", "q", "--count", "2").splitlines()
    assert listed[0].split() == ["position", "due", "payload_bytes", "delivery_count", "redelivered"]
    assert (len(listed), listed[-1]) == (4, "2 of 4")
    assert json.loads(said(node, capsys, "delayed", "q", "--json"))["total"] == 4
    assert (
        said(node, capsys, "delayed", "q", "--cancel", "0", "--cancel", "0", "--yes") == "1 message dropped\n"
    )
    assert said(node, capsys, "delayed", "q", "--deliver", "3") == "1 message made ready\n"
    node.broker.tick()
    assert (queue.delayed, queue.ready) == (2, 1)
    assert node.run("delayed", "q", "--cancel", "17", "--yes") == cli.REFUSED
    assert node.run("delayed", "nothing") == cli.REFUSED
    assert json.loads(said(node, capsys, "delayed", "q", "--deliver-all", "--json")) == {"delivered": 2}
    queue.push(Message(ENCODING, "", "q", b"", b"x", Facts(due_ms=1 << 41)))
    node.broker.tick()
    assert said(node, capsys, "delayed", "q", "--cancel-all", "--yes") == "1 message dropped\n"
