"""The command `leveret`: what it prints, where, and with which exit code."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from leveret.config.config import Config, parse
from leveret.server import cli
from leveret.server.cli import commands, serve
from leveret.server.cli.text import explained
from leveret.version import VERSION


def test_version_and_help_are_printed(capsys: pytest.CaptureFixture[str]):
    for flag, words in (("--version", f"leveret {VERSION}"), ("--help", "serve")):
        with pytest.raises(SystemExit) as caught:
            cli.main([flag], {})
        assert caught.value.code == 0
        assert words in capsys.readouterr().out


@pytest.mark.parametrize("command", ["serve", "check", "status", "reload", "plugins", "explain"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"], {})
    assert caught.value.code == 0
    assert f"usage: leveret {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["serve", "--data", "x", "--memory"], ["explain", "--header", "=x"], ["check"]]
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments, {})
    assert caught.value.code == cli.USAGE
    assert "usage: leveret" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lsit"], "leveret: there is no command 'lsit'; did you mean list?\n"),
        (["zzz"], "leveret: there is no command 'zzz'; `leveret --help` shows those that there are\n"),
        (["log", "levle"], "leveret log: there is no command 'levle'; did you mean level?\n"),
        (["queues"], "leveret: there is no command 'queues'; did you mean list queues?\n"),
        (
            ["--node", "X", "quueues"],
            "leveret: there is no command 'quueues'; did you mean list queues?\n"
            "leveret: options stand behind the command: leveret list queues --node ...\n",
        ),
        (
            ["--url=x", "statsu"],
            "did you mean status?\nleveret: options stand behind the command: leveret status --url ...\n",
        ),
        (["--url", "x", "status"], "leveret: options stand behind the command: leveret status --url ...\n"),
        (["--url"], "leveret: options stand behind the command: leveret COMMAND --url ...\n"),
        (["list", "quues"], "argument WHAT: there is no 'quues'; did you mean queues?\n"),
        (
            ["list", "queues", "--colums=name"],
            "leveret list: error: there is no option --colums; did you mean --columns?\n",
        ),
        (
            ["declare", "queue", "q", "--durable"],
            "leveret declare queue: error: there is no option --durable\n",
        ),
        (["log", "level", "loud"], "there is no 'loud'; choose from debug, info, warning, error, none\n"),
    ],
)
def test_an_unknown_word_is_answered_with_the_one_that_was_meant(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments, {})
    assert caught.value.code == cli.USAGE
    assert capsys.readouterr().err.endswith(words)


@pytest.mark.parametrize("arguments", [["log"], ["user"], ["streams"], ["pipeline"]])
def test_a_command_that_is_nothing_without_another_prints_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert cli.main(arguments, {}) == cli.USAGE
    out = capsys.readouterr().out
    assert out.startswith(f"usage: {' '.join(['leveret', *arguments])} [-h]")
    assert "\ncommands:\n" in out


def test_a_good_file_is_ok_with_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "good.toml"
    file.write_text('listeners = [{address = "0.0.0.0:5672", protocols = ["amqp091"]}]')
    assert cli.main(["check", str(file)], {}) == cli.DONE
    out = capsys.readouterr().out
    assert out.startswith(f"{file}: OK\n")
    assert "0.0.0.0:5672 (amqp091)" in out
    assert cli.main(["check", "--json", str(file)], {}) == cli.DONE
    assert json.loads(capsys.readouterr().out)["users"] == ["guest"]


def test_all_problems_of_a_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "bad.toml"
    file.write_text('[memory]\nwatermark = -1\n[htp]\nx = 1\n[[users]]\nname = "a"\npassword = 471147\n')
    assert cli.main(["check", str(file)], {}) == cli.REFUSED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3 problems" in captured.err
    assert "memory.watermark: found -1" in captured.err
    assert "did you mean 'http'?" in captured.err
    assert "471147" not in captured.err
    assert cli.main(["check", "--json", str(file)], {}) == cli.REFUSED
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert {problem["where"] for problem in problems} == {"memory.watermark", "htp", "users[0].password"}


def test_a_check_finds_all_that_would_stop_a_start_in_one_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "bad.toml"
    (tmp_path / "plain").write_text("")
    file.write_text(
        'http.address = "127.0.0.1:5672"\nmemory.watermark = -1\ndefinitions.load = ["nope.json"]\n'
        'node.data_dir = "plain/data"\nlog.audit = "nowhere/audit"\nprotocols.mqtt.enabled = true\n'
        'listeners = [{address = "127.0.0.1:5672", protocols = ["amqp19"]}, {address = "192.0.2.7:1"}]\n'
        'users = [{name = "a", password = "x", tags = ["admin"]}]\n'
    )
    environ = {"LEVERET_LOG_LEVLE": "debug", "LEVERET_LOG__LEVLE": "debug", "LEVERET_URL": "http://x"}
    assert cli.main(["check", str(file)], environ) == cli.REFUSED
    err = capsys.readouterr().err
    for words in (
        "LEVERET_LOG__LEVLE: found an unknown key",
        "the environment variable LEVERET_LOG_LEVLE is not read; did you mean LEVERET_LOG__LEVEL?",
        "memory.watermark: found -1",
        'http.address: found "127.0.0.1:5672", accepted: an address of its own: listeners[0].address has this',
        'found "amqp19", accepted: one of amqp010, amqp091, amqp10, http, mqtt, prometheus; did you',
        f"{tmp_path}/nope.json: found no such file or directory",
        f'node.data_dir: found "{tmp_path}/plain/data", accepted: a folder that can be made',
        "log.audit: found ",
        "warning: user 'a': the tag admin gives no rights; did you mean administrator?",
        "warning: protocols.mqtt has no effect",
        "warning: listeners[1].address: this machine has no address 192.0.2.7",
        f"{file} has 7 problems",
    ):
        assert words in err
    assert cli.main(["check", "--json", str(file)], environ) == cli.REFUSED
    told = json.loads(capsys.readouterr().out)
    assert (len(told["problems"]), len(told["warnings"])) == (7, 4)


MISTAKES = {
    "an unknown key of a policy": '[[policies]]\nname = "p"\npattern = "q"\ndefinition = { max-lenght = 1 }\n',
    "an operator policy's": '[[policies]]\noperator = true\nname = "o"\npattern = ""\ndefinition = { max-age = "1" }\n',
    "a policy elsewhere": '[[policies]]\nname = "e"\nvirtual_host = "no"\npattern = ""\ndefinition = { expires = 1 }\n',
    "permissions elsewhere": '[[users]]\nname = "a"\npassword = "b"\npermissions."no" = { write = ".*" }\n',
    "topics elsewhere": '[[users]]\nname = "t"\npassword = "b"\ntopic_permissions."no".e = { write = ".*" }\n',
    "no expression": '[[users]]\nname = "r"\npassword = "b"\npermissions."/" = { write = "(" }\n',
    "no hash": '[[users]]\nname = "h"\npassword_hash = "xx"\n',
    "a virtual host twice": '[[virtual_hosts]]\nname = "/"\n[[virtual_hosts]]\nname = "/"\n',
    "a virtual host without a name": '[[virtual_hosts]]\nname = ""\n',
    "an unknown interceptor": '[[interceptors]]\nname = "x-no"\n',
    "no plug-in folder": '[plugins]\nfolders = ["/no"]\n',
    "no definitions": '[definitions]\nload = ["/no.json"]\n',
    "no certificate": '[[listeners]]\naddress = "[::1]:1"\ntls = { certificate = "/no", key = "/no" }\n',
    "a cluster without a database": '[cluster]\nname = "a"\n',
}


@pytest.mark.parametrize("one", MISTAKES)
def test_a_check_refuses_each_mistake_also_beside_every_other(
    one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "leveret.toml"
    for other in MISTAKES:
        file.write_text("".join(MISTAKES[each] for each in sorted({one, other})))
        assert cli.main(["check", str(file)], {}) == cli.REFUSED
        assert re.search(r"leveret.toml has \d problem", capsys.readouterr().err)


def test_serve_refuses_a_wrong_flag_by_the_name_of_its_key(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["serve", "--listen", "localhost"], {}) == cli.REFUSED
    assert 'listeners[0].address (from the command line): found "localhost"' in capsys.readouterr().err


SERVE_FLAGS = [
    ([], Config()),
    (["--listen", "a:1", "--listen", "[::]:1"], parse('listeners = [{address = "a:1"}, {address = "[::]:1"}]')),
    (["--http", "127.0.0.1:1"], parse('http.address = "127.0.0.1:1"')),
    (["--data", "/var/lib/leveret"], parse('node.data_dir = "/var/lib/leveret"')),
    (["--memory"], Config()),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "config"), SERVE_FLAGS)
def test_the_flags_of_serve_override_keys(flags: list[str], config: Config):
    assert serve.configured(cli.parser({}).parse_args(["serve", *flags]), {}) == config


@pytest.mark.parametrize(
    ("more", "flags", "folder"),
    [
        ({}, [], "/var/lib/state"),
        ({"STATE_DIRECTORY": "/var/lib/first:/var/lib/second"}, [], "/var/lib/first"),
        ({"LEVERET_NODE__DATA_DIR": "/variable"}, [], "/variable"),
        ({"LEVERET_CONFIG": "file.toml"}, [], "/file"),
        ({}, ["--data", "/flag"], "/flag"),
        ({}, ["--memory"], None),
    ],
    ids=["the folder", "the first of them", "a variable", "a file", "a flag", "no data"],
)
def test_a_service_keeps_its_data_in_the_folder_of_its_unit_unless_told_otherwise(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, str],
    flags: list[str],
    folder: str | None,
):
    monkeypatch.chdir(tmp_path)
    Path("file.toml").write_text('[node]\ndata_dir = "/file"\n')
    environ = {"STATE_DIRECTORY": "/var/lib/state", **more}
    options = commands.parser(environ).parse_args(["serve", *flags])
    assert serve.configured(options, environ).node.data_dir == (folder and Path(folder))


def test_serve_takes_its_file_from_a_flag_or_the_environment(tmp_path: Path):
    file = tmp_path / "leveret.toml"
    file.write_text('node.name = "of-file"\nnode.data_dir = "data"')
    by_flag = cli.parser({}).parse_args(["serve", "--config", str(file), "--memory"])
    assert serve.configured(by_flag, {}).node == Config(node=parse('node.name = "of-file"').node).node
    by_variable = cli.parser({"LEVERET_CONFIG": str(file)}).parse_args(["serve"])
    assert serve.configured(by_variable, {}).node.data_dir == tmp_path / "data"


ANSWERS = {
    "GET /api/leveret/status": (200, {"node": "leveret", "virtual_hosts": [{"name": "/", "queues": 2}]}),
    "POST /api/leveret/reload": (200, {"changed": ["log.level"], "needs_restart": []}),
    "GET /api/leveret/plugins": (200, {"exchanges": [{"name": "x-random", "errors": 0}]}),
    "POST /api/leveret/plugins/reload": (
        200,
        {"refused": [{"name": "x.py", "traceback": "line one\nline two"}]},
    ),
    "GET /api/leveret/explain?vhost=%2F&exchange=e&key=k&user=u&header=a%3D1": (
        200,
        {"routed": False, "queues": []},
    ),
    "GET /api/leveret/explain?vhost=%2F&exchange=absent&key=": (
        404,
        {"reason": "no exchange 'absent' in vhost '/'"},
    ),
}


class FakeNode(BaseHTTPRequestHandler):
    """Answers from the table above to guest with the password guest."""

    def do_GET(self) -> None:
        expected = base64.b64encode(b"guest:guest").decode()
        status, content = ANSWERS.get(f"{self.command} {self.path}", (404, {"reason": "no such page"}))
        if self.headers["Authorization"] != f"Basic {expected}":
            status, content = 401, {}
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeNode) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


ASKED = [
    (["status"], cli.DONE, "virtual hosts\n  name  queues\n  /     2"),
    (["reload"], cli.DONE, "changed        log.level\nneeds restart  none"),
    (["plugins"], cli.DONE, "x-random"),
    (["plugins", "reload"], cli.REFUSED, "  x.py  line one\n        line two"),
    (["explain", "--exchange", "e", "--key", "k", "--as-user", "u", "--header", "a=1"], cli.DONE, "dropped"),
]


@pytest.mark.system
@pytest.mark.parametrize(("arguments", "code", "words"), ASKED)
def test_a_node_is_asked(
    arguments: list[str], code: int, words: str, url: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(arguments, {"LEVERET_URL": url}) == code
    assert words in capsys.readouterr().out
    cli.main([*arguments, "--json"], {"LEVERET_URL": url})
    assert json.loads(capsys.readouterr().out) in [content for _, content in ANSWERS.values()]


@pytest.mark.system
def test_a_refusal_is_told_in_the_words_of_the_node(url: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["explain", "--exchange", "absent", "--url", url], {}) == cli.REFUSED
    assert capsys.readouterr().err == "leveret: no exchange 'absent' in vhost '/'\n"


@pytest.mark.system
def test_a_wrong_password_is_told_without_showing_it(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "password").write_text("hunter2\n")
    by_variable = cli.main(["status", "--url", url], {"LEVERET_PASSWORD": "hunter2"})
    by_file = cli.main(["status", "--url", url, "--password-file", str(tmp_path / "password")], {})
    assert (by_variable, by_file) == (cli.UNREACHABLE, cli.UNREACHABLE)
    err = capsys.readouterr().err
    assert "does not let 'guest' in" in err
    assert "hunter2" not in err


@pytest.mark.system
@pytest.mark.parametrize("login", ["guest:hunter2", "guest"])
def test_a_login_in_the_url_is_refused_and_not_passed_over(
    url: str, login: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["status", "--url", url.replace("//", f"//{login}@")], {}) == cli.UNREACHABLE
    err = capsys.readouterr().err
    assert f"{url} is to be named without a login: that is --user NAME, and --password-file" in err
    assert "hunter2" not in err


@pytest.mark.parametrize("wrong", ["http://127.0.0.1:1", "ftp://127.0.0.1", "http://"])
def test_a_node_that_cannot_be_reached_is_exit_code_3(wrong: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["status", "--url", wrong], {}) == cli.UNREACHABLE
    err = capsys.readouterr().err
    assert wrong in err
    assert len(err.splitlines()) == 1


def match(
    kind: str, name: str, key: str | None, followed: bool = True, **arguments: str
) -> dict[str, object]:
    return {"kind": kind, "name": name, "key": key, "arguments": arguments, "followed": followed}


def step(
    exchange: str, type_: str, via: str, source: str | None, reason: str, *matched: dict[str, object]
) -> dict[str, object]:
    return {
        "exchange": exchange,
        "type": type_,
        "via": via,
        "source": source,
        "matched": list(matched),
        "reason": reason,
    }


def test_an_explanation_is_a_tree():
    content = {
        "routed": True,
        "queues": ["eu", "log"],
        "steps": [
            step(
                "orders",
                "topic",
                "publish",
                None,
                "",
                match("exchange", "audit", "#"),
                match("exchange", "audit", "eu.*", followed=False),
                match("queue", "eu", "eu.*"),
            ),
            step(
                "audit", "headers", "binding", "orders", "", match("queue", "log", "", **{"x-match": "any"})
            ),
        ],
        "dropped": None,
        "permission": {"user": "shop", "allowed": True, "reason": None},
    }
    assert explained(content).splitlines() == [
        "routed to 2 queues: eu, log",
        "",
        "exchange 'orders' (topic), published to",
        "  '#' -> exchange 'audit'",
        "    exchange 'audit' (headers), reached by a binding",
        "      '' x-match=any -> queue 'log'",
        "  'eu.*' -> exchange 'audit', asked before",
        "  'eu.*' -> queue 'eu'",
        "",
        "permissions: user 'shop' may publish it",
    ]


def test_an_explanation_marks_queues_that_are_paused() -> None:
    content = {"routed": True, "queues": ["a", "b"], "paused": ["b"], "steps": []}
    assert explained(content) == "routed to 2 queues: a, b (paused)"


def test_an_alternate_stands_below_the_exchange_that_names_it():
    steps = [
        step("a", "direct", "publish", None, "no binding matches 'k'; the alternate 'b' is asked"),
        step("b", "fanout", "alternate", "a", "nothing is bound; the alternate 'c' is asked"),
        step("c", "x-random", "alternate", "b", "", match("queue", "q", None)),
    ]
    permission = {"user": None, "allowed": None, "reason": None}
    content = {"routed": True, "queues": ["q"], "steps": steps, "dropped": None, "permission": permission}
    assert explained(content).splitlines() == [
        "routed to 1 queue: q",
        "",
        "exchange 'a' (direct), published to",
        "  no binding matches 'k'; the alternate 'b' is asked",
        "    exchange 'b' (fanout), tried as the alternate",
        "      nothing is bound; the alternate 'c' is asked",
        "        exchange 'c' (x-random), tried as the alternate",
        "          -> queue 'q'",
        "",
        "permissions: not checked; --as-user NAME checks them",
    ]


def test_a_refusal_is_told_with_what_would_have_happened():
    permission = {"user": "shop", "allowed": False, "reason": "write access refused"}
    steps = [step("a", "fanout", "publish", None, "", match("queue", "q", ""))]
    content = {"queues": [], "steps": steps, "dropped": "write access refused", "permission": permission}
    assert explained(content).splitlines() == [
        "dropped: write access refused",
        "",
        "exchange 'a' (fanout), published to",
        "  '' -> queue 'q'",
        "",
        "permissions: refused; above is what would happen otherwise",
    ]


@pytest.mark.system
def test_help_does_not_wait_for_the_broker_to_load():
    code = (
        "import sys; from leveret.server import cli; cli.parser({}); "
        "sys.exit(bool({'trio', 'attrs', 'leveret.config.config', 'http.client'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.system
def test_asking_a_node_does_not_load_one(url: str):
    code = (
        "import sys; from leveret.server import cli; done = cli.main(sys.argv[1:], {}); "
        "sys.exit(done or bool({'trio', 'leveret.config.config', 'leveret.broker'} & set(sys.modules)))"
    )
    asking = [sys.executable, "-c", code, "status", "--url", url]
    assert subprocess.run(asking, check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_every_command_can_be_told_something_and_does_something():
    whole = commands.CommandParser({})
    whole.add_own()
    for name, part in whole.own.choices.items():
        consists = any(isinstance(action, commands.Actions) for action in part._actions)
        assert consists or callable(part.get_default("command")), name
