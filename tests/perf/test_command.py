"""`leveret perf` as it is typed: what it prints, what it says of itself, and how it reads its arguments."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.perf import cli
from leveret.perf.command import perf, plan_of
from leveret.perf.plan import Sizes, Url
from tests.interop.conftest import RunningNode, wait_until
from tests.perf.conftest import options

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("amqp://h", Url("h", 5672, "guest", "guest", "/")),
        ("amqp://h/", Url("h", 5672, "guest", "guest", "/")),
        ("amqp://a%40b:p%2Fw@h:1/%2Fx", Url("h", 1, "a@b", "p/w", "/x")),
        ("amqps://h/v", Url("h", 5671, "guest", "guest", "v", tls=True)),
        ("amqp://[::1]:7/v", Url("::1", 7, "guest", "guest", "v")),
    ],
)
def test_urls(text: str, url: Url):
    assert Url.read(text) == url


def test_a_url_is_told_without_its_password():
    assert str(Url.read("amqp://me:secret@h/v")) == "amqp://me@h:5672"


def test_sizes():
    assert (Sizes.read("7").octets, Sizes.read("7,9").octets) == ((7,), (7, 9))
    drawn = Sizes.read("10-20").octets
    assert drawn == Sizes.read("10-20").octets
    assert set(drawn) <= set(range(10, 21))
    assert len(set(drawn)) > 5


def test_rates():
    assert options("--rate 5").rate == ((5.0, 1.0),)
    assert options("--rate 5:2,0:0.5").rate == ((5.0, 2.0), (0.0, 0.5))
    assert plan_of(options("--total-rate 30 --publishers 3")).rate == ((10.0, 1.0),)


@pytest.mark.parametrize(
    "said",
    [
        "--url http://h", "--url amqp://", "--size x", "--size 20-10", "--rate 0", "--rate 5:", "--rate x",
        "--queues 0", "--argument x", "--messages -1", "--churn users", "--protocol 2", "--url amqp://h:port",
    ],
)  # fmt: skip
def test_wrong_usage(said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        options(said)
    assert caught.value.code == 2
    assert said.split()[0] in capsys.readouterr().err


def test_who_has_which_queues():
    plan = plan_of(options("--publishers 2 --consumers 3 --queues 5"))
    assert [plan.queues_of(each, 3) for each in range(3)] == [[0, 3], [1, 4], [2]]
    assert plan.keys_of(1) == ["perf-1", "perf-3"]
    plan = plan_of(options("--publishers 5 --queues 2"))
    assert [plan.keys_of(each) for each in range(5)] == [[f"perf-{each % 2}"] for each in range(5)]


def test_keys_of_an_exchange():
    plan = plan_of(options("--exchange e --publishers 2 --keys k.%d --key-count 5"))
    assert [plan.keys_of(each) for each in (0, 1)] == [["k.0", "k.2", "k.4"], ["k.1", "k.3"]]
    assert plan_of(options("--exchange e --keys k --bind #")).bind == "#"


@pytest.mark.interop
def test_what_is_printed(node: RunningNode, capsys: pytest.CaptureFixture[str]):
    assert perf(options(f"--url {node.url} --messages 50 --confirms 10 --quiet")) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == [
        "sent", "confirmed", "received", "delivery", "confirm",
    ]  # fmt: skip
    assert "p99.9" in printed.out


@pytest.mark.interop
def test_json_has_the_shape_that_the_page_shows(node: RunningNode, capsys: pytest.CaptureFixture[str]):
    shown = json.loads((ROOT / "docs/perf.md").read_text().split("```json\n")[1].split("```")[0])
    assert perf(options(f"--url {node.url} --messages 50 --confirms 10 --verify --quiet --json -")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == shown.keys()
    for key in ("plan", "messages", "rates", "delivery_us", "verified"):
        assert told[key].keys() == shown[key].keys()
    assert told["rates"]["sent"].keys() == shown["rates"]["sent"].keys()


@pytest.mark.interop
@pytest.mark.system
def test_ctrl_c_ends_it_with_the_summary(node: RunningNode):
    program = "import sys, argparse; from leveret.perf.cli import COMMAND; p = argparse.ArgumentParser()\n"
    program += "COMMAND.add_to(p, {}); o = p.parse_args(sys.argv[1:]); sys.exit(o.command(o, {}))"
    command = [sys.executable, "-c", program, "--url", node.url, "--rate", "100", "--json", "-"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    with process:
        wait_until(lambda: node.consumers("perf-0") > 0, "the load has begun")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    told = json.loads(out)
    assert (told["whole"], process.returncode) == (False, 0)
    assert told["messages"]["received"] == told["messages"]["sent"]
    assert node.queue_names() == []


def test_help_shows_examples():
    assert cli.EXAMPLES.count("leveret perf") >= 8
