"""Every command and snippet on a page is run: here, in the order of the page, or by the test that is named.

Commands of `leveret` and curl ask a node that has what they speak of; settings are read as a node reads them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pika
import pytest
import yaml

from leveret import ThreadedNode, embedded
from leveret.config.config import Config, parse
from leveret.protocols.mqtt.broker.encoding import packed
from leveret.protocols.mqtt.broker.retained import retained_of
from leveret.protocols.mqtt.codec.properties import NONE
from leveret.server import cli
from leveret.virtual_host import VirtualHost
from tests.sources import ROOT

pytestmark = pytest.mark.system

PAGES: Final = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
CONFIG: Final = {
    "http": {"enabled": True, "address": "127.0.0.1:0"},
    "protocols": {"amqp010": {"enabled": True}},
    "record": {"folder": "recordings"},
}
KEYS: Final = {each.name for each in attrs.fields(Config)}
# What the commands find: objects that the pages speak of and do not make themselves.
BEFORE: Final = """
declare exchange orders --type topic
declare queue orders
declare queue q
declare queue jobs
publish --key jobs 1
declare queue events --type stream
publish --key events 1
declare vhost prod
user add ann --tags management --new-password-file new-password
permission set ann --configure .* --write .* --read .*
export --file definitions.json
"""
A_USER: Final = "user add shop --new-password-file new-password\npermission set shop --read .* --write .*"
BEFORE_ON: Final = {"docs/explain.md": A_USER, "docs/security.md": A_USER}
# Commands that are tried elsewhere, or whose subject is not here; by their beginning, with where or why.
ELSEWHERE: Final = {
    "leveret serve": "tests/system/test_serve.py",
    "leveret top": "tests/server/cli/test_top.py",
    "leveret perf": "tests/perf/test_command.py",
    "leveret pipeline": "tests/pipeline",
    "leveret cluster": "tests/server/cluster/test_commands.py",
    "leveret completion": "tests/server/cli/test_completion.py",
    "leveret reload": "tests/system/test_control.py",
    "leveret record show": "tests/interop/test_recordings.py",
    "leveret record stats": "tests/interop/test_recordings.py",
    "leveret replay-session": "tests/interop/test_recordings.py",
    "leveret explain --recording": "tests/interop/test_recordings.py",
    "leveret log follow": "tests/server/cli/test_node_log.py",
    "leveret store": "tests/server/cli/test_store.py",
    "leveret hash-password": "tests/server/cli/test_hashing.py",
    "leveret check leveret.toml": "the file of the reader's; tests/server/cli/test_main.py",
    "make": "tests/test_project.py looks for the target",
    "pip": "tests/test_install.py",
    "python3 -m venv": "tests/test_install.py",
    "PYSPARK_PYTHON": "tests/pipeline",
    "export AWS_ACCESS_KEY_ID": "tests/pipeline/test_object_stores.py",
    "export PYTHONPATH": "tests/pipeline",
    "$SPARK_HOME": "tests/pipeline",
    "/opt/leveret/bin": "tests/test_install.py",
    "git clone": "takes a repository that is hosted somewhere",
    "podman": "tests/image.py",
    ". ": "a shell's own command",
    "cd ": "a shell's own command",
    "useradd": "needs a machine with systemd",
    "install ": "needs a machine with systemd",
    "systemctl": "needs a machine with systemd",
    "journalctl": "needs a machine with systemd",
    "systemd-socket-activate": "tests/system/test_activation.py",
}
# Commands about a client, a message or an exchange that only the reader has: the node says that there is none.
REFUSED: Final = (
    "leveret close connection",
    "leveret renew",
    "leveret delayed orders --cancel",
    "leveret forget-ids",
)
# Pages whose programs another test runs, or compares with an example that is run.
PROGRAMS: Final = {
    "README.md": "tests/interop/test_mixed_protocols.py",
    "docs/amqp-1-0.md": "tests/interop/test_mixed_protocols.py",
    "docs/bulk-access.md": "tests/http/test_bulk_page.py",
    "docs/embedding.md": "tests/system/test_examples.py",
    "docs/exchange-decorators.md": "tests/core/exchanges/test_decorators.py",
    "docs/guests.md": "tests/core/test_guests.py",
    "docs/explain.md": "tests/core/exchanges/test_explain.py",
    "docs/interceptors.md": "tests/interop/test_interceptors.py",
    "docs/pipeline.md": "tests/system/test_examples.py",
    "docs/recipes.md": "tests/interop/test_recipes.py",
    "docs/spark.md": "tests/pipeline/test_options.py",
    "docs/streams.md": "tests/interop/test_pika_streams.py",
    "docs/testing-against-faults.md": "tests/system/test_examples.py",
    "docs/testing-with-leveret.md": "tests/system/test_examples.py",
    "docs/tutorial.md": "tests/system/test_tutorial.py",
    "docs/writing-a-protocol.md": "tests/system/test_examples.py",
    "docs/writing-an-exchange-type.md": "tests/plugins/test_writing_an_exchange_type.py",
}


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def having(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def lines(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]


@pytest.fixture
def node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[ThreadedNode]:
    """A node with the objects of the pages, and this folder with their files."""
    monkeypatch.chdir(tmp_path)
    Path("new-password").write_text("sesame\n")
    Path("order.json").write_text("{}")
    Path("examples").symlink_to(ROOT / "examples")
    Path("leveret.example.toml").symlink_to(ROOT / "leveret.example.toml")
    shovel, *_ = blocks(ROOT / "docs/shovels.md", "json")
    Path("to-archive.json").write_text(
        shovel.replace("amqps://archive:secret@archive.example.org", "amqp://")
    )
    Path("region.json").write_text("{}")
    Path("east.json").write_text('{"uri": "amqp:///shop"}')
    with ThreadedNode(embedded(CONFIG)) as node:
        for line in BEFORE.strip().splitlines():
            assert leveret(node, shlex.split(line)) == 0, f"{line}: {capsys.readouterr().err}"
        node.call(lambda: retain(node.node.broker.virtual_host("/")))
        yield node


def retain(host: VirtualHost) -> None:
    """Have a retained message of the topic that a page looks at."""
    retained_of(host).retain("devices/7/out", packed(1, b"", NONE), b"21.5", None)


def address(node: ThreadedNode) -> str:
    """HOST:PORT of the node's HTTP endpoint."""
    return node.call(lambda: node.node.addresses[-1])


def leveret(node: ThreadedNode, words: list[str]) -> int:
    environ = {"LEVERET_URL": f"http://{address(node)}"}
    words = [word.replace("127.0.0.1:15672", address(node)) for word in words]
    try:
        return cli.main(words, environ)
    except SystemExit as ended:
        return int(ended.code or 0)


ASKING: Final = [
    page
    for page in having("sh")
    if any(line.startswith("leveret ") and not line.startswith(tuple(ELSEWHERE)) for line in lines(page))
    and page.name != "tutorial.md"
]


@pytest.mark.parametrize("page", ASKING, ids=ids)
def test_the_commands_of_a_page_can_be_typed_one_after_the_other(
    node: ThreadedNode, page: Path, capsys: pytest.CaptureFixture[str]
):
    for line in BEFORE_ON.get(ids(page), "").splitlines():
        assert leveret(node, shlex.split(line)) == 0
    for line in lines(page):
        if not line.startswith("leveret ") or line.startswith(tuple(ELSEWHERE)):
            continue
        words = shlex.split(line, comments=True)[1:]
        if asks(words) and "--yes" not in words:
            words.append("--yes")  # nobody is here to be asked
        code = leveret(node, words)
        written = capsys.readouterr()
        expected = {0, 1} if line.startswith(REFUSED) else {0, 4} if words[0] in ("plan", "lint") else {0}
        assert code in expected, f"{line}\n{written.out}{written.err}"


def asks(words: list[str]) -> bool:
    asking = {"apply", "purge", "forget-ids"}
    return bool(asking & set(words)) or any(each.startswith(("delete", "--cancel")) for each in words[:3])


CURLING: Final = [page for page in having("sh") if any("curl " in line for line in lines(page))]
SHELL: Final = """\
curl() { command curl -sS -w '%{stderr}HTTP %{http_code}\\n' "$@" | tee -a answers; }
python() { "$PYTHON" "$@"; }
fence() { grep -ao '"fence": *[0-9]*' answers | grep -o '[0-9]*' | tail -1; }
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("page", CURLING, ids=ids)
def test_the_requests_of_a_page_are_answered(node: ThreadedNode, page: Path):
    """A script of all lines but those for `leveret`; the fence of a lease is that of an answer, not the page's."""
    typed = [line for line in lines(page) if not line.startswith(("leveret ", *ELSEWHERE))]
    here = re.sub(r"(localhost|127\.0\.0\.1):15672", address(node), "\n".join(typed))
    here = here.replace("fence=7", "fence=$(fence)").replace("=10000", "=1")  # there is one message
    done = subprocess.run(
        ["bash", "-c", SHELL + here],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = [line for line in typed if line.startswith(("curl ", "$U "))]
    codes = re.findall(r"^HTTP (\d+)$", done.stderr, re.MULTILINE)
    assert len(codes) == len(asked)
    for line, code in zip(asked, codes, strict=True):
        assert code == "404" if "/connections/127" in line else code.startswith("2"), (line, code)


@pytest.mark.parametrize("page", having("sh"), ids=ids)
def test_every_command_is_run_here_or_named_with_its_test(page: Path):
    for line in lines(page):
        if line.startswith(tuple(ELSEWHERE)):
            continue
        first = re.sub(r"""^(\w+=("[^"]*"|'[^']*'|[^\s;]+)[;\s]*)+""", "", line)
        assert not first or first.startswith(("leveret ", "curl ", "$U ", "pytest ", "python ")), (
            f"{line}: have it run here, or name its test in ELSEWHERE"
        )


def test_the_tests_that_are_named_are_there():
    for where in {*ELSEWHERE.values(), *PROGRAMS.values()}:
        if where.startswith("tests/"):
            assert (ROOT / where.split()[0]).exists(), where
    for page, test in PROGRAMS.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not speak of {page}"


@pytest.mark.parametrize("page", having("toml"), ids=ids)
def test_the_settings_on_a_page_are_those_of_a_node(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SHOP_PASSWORD", "sesame")
    for block in blocks(page, "toml"):
        table = tomllib.loads(block)
        if not KEYS & set(table) or "project" in table or page.name == "topology-as-code.md":
            continue
        assert set(table) <= KEYS, block
        if "auth_ldap" in table:
            pytest.importorskip("ldap")
        parse(with_passwords({**BESIDE.get(ids(page), {}), **table}, tmp_path), os.environ)


# What a reader has in the same file.
BESIDE: Final = {"docs/clustering.md": {"store": {"engine": "postgres"}}}
HASH: Final = base64.b64encode(b"salt" + hashlib.sha256(b"saltsesame").digest()).decode()


def with_passwords(table: Any, folder: Path) -> Any:
    """Return a table in which each file with a password is one that is here."""
    (folder / "password").write_text("sesame")
    if isinstance(table, list):
        return [with_passwords(each, folder) for each in table]
    if not isinstance(table, dict):
        return table
    return {
        name: str(folder / "password")
        if name == "password_file"
        else HASH
        if name == "password_hash"
        else with_passwords(value, folder)
        for name, value in table.items()
    }


@pytest.mark.parametrize("page", sorted({*having("json"), *having("yaml")}), ids=ids)
def test_what_is_json_or_yaml_on_a_page_can_be_read(page: Path):
    for block in blocks(page, "json"):
        try:
            json.loads(block)
        except ValueError:
            for line in block.strip().splitlines():  # a line each
                json.loads(line)
    for block in blocks(page, "yaml"):
        assert yaml.safe_load(block)


FRAGMENTS: Final = (
    "docs/amqp-0-10.md",
    "docs/later.md",
    "docs/monitoring.md",
    "docs/selectors-on-bindings.md",
)


@pytest.mark.parametrize("page", FRAGMENTS)
def test_fragments_of_programs_do_something_in_a_channel(node: ThreadedNode, page: str):
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("large")
        channel.exchange_declare("amq.rabbitmq.event", "topic", passive=True)
        for block in blocks(ROOT / page, "python"):
            exec(block, {"channel": channel, "pika": pika, "BasicProperties": pika.BasicProperties})


def test_every_program_is_run_somewhere():
    pages = {ids(page) for page in having("python")}
    others = {
        "docs/control-endpoint.md": "parts of a route",
        "docs/security.md": "names files of the reader's",
    }
    assert pages - set(PROGRAMS) - set(FRAGMENTS) - set(others) == set()
    for page in others:
        for block in blocks(ROOT / page, "python"):
            compile(block, page, "exec")
