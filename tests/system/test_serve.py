"""`leveret serve` as a process: it starts, serves, reloads, and stops when told."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from .served import ROOT, Serve, port, screen

README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.system


def test_the_ten_lines_of_the_readme_run(serve: Serve):
    code = re.search(r"^## Ten lines of pika\n.*?```python\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert code is not None
    at = port(screen(serve("--listen", "127.0.0.1:0")))
    program = code[1].replace("localhost:5672", f"127.0.0.1:{at}")
    assert program.count("\n") <= 11
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("Hello, hare!\n", 0), done.stderr


@pytest.mark.parametrize("flag", ["--listen", "--http"])
def test_an_address_that_is_taken_is_told_in_a_line_with_what_to_do(serve: Serve, flag: str):
    other = {"--listen": "--http", "--http": "--listen"}[flag]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        node = serve(flag, address, other, "127.0.0.1:0")
        _, errors = node.communicate(timeout=60)
    assert node.returncode == 1
    assert errors.splitlines()[-1] == (
        f"leveret: cannot listen on {address}: Address already in use by another program, such as a broker: stop "
        "that one, or choose other addresses, for example: "
        "leveret serve --listen 127.0.0.1:5673 --http 127.0.0.1:15673"
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_node(serve: Serve, ending: signal.Signals):
    node = serve("--listen", "127.0.0.1:0")
    screen(node)
    node.send_signal(ending)
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_node_serves_though_nobody_reads_what_it_prints(serve: Serve, tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(60)
        node = serve("--listen", "127.0.0.1:0", NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert node.stdout is not None
        node.stdout.close()
        while b"READY=1" not in told.recv(1000):
            pass
    node.terminate()
    assert node.wait(60) == 0


def test_sighup_takes_what_can_be_taken_and_names_what_cannot(serve: Serve, tmp_path: Path):
    file = tmp_path / "leveret.toml"
    policy = '[[policies]]\nname = "p"\npattern = "a"\ndefinition = { max-length = 1 }\n'
    file.write_text('[[listeners]]\naddress = "127.0.0.1:0"\n' + policy)
    node = serve("--config", str(file))
    assert str(file) in screen(node)
    file.write_text(
        '[node]\nname = "other"\n[[listeners]]\naddress = "127.0.0.1:0"\n[memory]\nwatermark = 0.9\n'
    )
    node.send_signal(signal.SIGHUP)
    assert node.stderr is not None
    assert next(line for line in node.stderr if "reloaded" in line).count("memory.watermark") == 1
    assert any("node.name" in line for line in node.stderr)
    file.write_text("[memory]\nwatermark = -1\n")
    node.send_signal(signal.SIGHUP)
    assert any("memory.watermark: found -1" in line for line in node.stderr)


def test_the_log_is_in_a_file_that_a_reload_opens_again_and_changes_its_levels_while_it_runs(
    serve: Serve, tmp_path: Path
):
    path = tmp_path / "node.log"
    file = tmp_path / "leveret.toml"
    file.write_text(
        'listeners = [{ address = "127.0.0.1:0" }]\n'
        f'[log]\nlevels.node = "debug"\nfile = {{ path = "{path}", format = "json" }}\n'
    )
    node = serve("--config", str(file))
    at = re.findall(r"127\.0\.0\.1:(\d+)", screen(node))[-1]
    ask = [sys.executable, "-m", "leveret", "log"]
    where = ("--url", f"http://127.0.0.1:{at}", "--json")
    told = json.loads(subprocess.check_output([*ask, "show", *where], cwd=ROOT))
    assert (told["level"], told["levels"]["node"], told["levels"]["http"]) == ("info", "debug", "info")
    told = json.loads(subprocess.check_output([*ask, "level", "error", "http", *where], cwd=ROOT))
    assert told["levels"]["http"] == "error"
    path.rename(tmp_path / "node.log.old")
    node.send_signal(signal.SIGHUP)
    assert node.stderr is not None
    assert any("configuration reloaded" in line for line in node.stderr)
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=60)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["message"] for line in lines][-2:] == [
        "SIGTERM: shutting down", "stopped; what was confirmed is in memory only",
    ]  # fmt: skip
    assert {line["logger"] for line in lines} == {"leveret.node"}
    assert (tmp_path / "node.log.old").read_text()


def test_a_node_takes_all_descriptors_that_it_may_have(serve: Serve):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    node = serve("--listen", "127.0.0.1:0")
    screen(node)
    assert resource.prlimit(node.pid, resource.RLIMIT_NOFILE) == (most, most)


DESCRIPTORS = 256


@pytest.mark.parametrize(("setting", "octets"), [("false", 0), ("true", 1 << 20)])
def test_a_crash_leaves_a_core_file_only_where_that_is_wanted(serve: Serve, setting: str, octets: int):
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if most != resource.RLIM_INFINITY and most < octets:
        pytest.skip("core files are forbidden here")
    node = serve("--listen", "127.0.0.1:0", limits="--core=1048576:", LEVERET_NODE__CORE_DUMPS=setting)
    screen(node)
    assert resource.prlimit(node.pid, resource.RLIMIT_CORE) == (octets, most)


def test_strangers_cannot_take_the_descriptors_that_the_data_needs(serve: Serve, tmp_path: Path):
    node = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), descriptors=DESCRIPTORS)
    at = port(screen(node))
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", at, heartbeat=0)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        strangers = [socket.create_connection(("127.0.0.1", at)) for _ in range(2 * DESCRIPTORS)]
        try:
            for number in range(20):  # more streams need more files
                channel.queue_declare(f"s{number}", durable=True, arguments={"x-queue-type": "stream"})
                channel.basic_publish("", f"s{number}", b"x", pika.BasicProperties(delivery_mode=2))
                channel.basic_publish("", "s", b"x", pika.BasicProperties(delivery_mode=2))
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", at, heartbeat=0)) as other:
                assert other.channel().queue_declare("s", passive=True)
        finally:
            for stranger in strangers:
                stranger.close()
    assert node.poll() is None


def test_an_address_that_is_taken_is_told_in_one_line(serve: Serve):
    at = port(screen(serve("--listen", "127.0.0.1:0")))
    second = serve("--listen", f"127.0.0.1:{at}")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert f"127.0.0.1:{at}" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_a_mistake_in_the_environment_is_told(serve: Serve):
    node = serve(LEVERET_MEMORY__WATERMARK="half")
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 1
    assert "environment variable LEVERET_MEMORY__WATERMARK" in errors
    assert "Traceback" not in errors


def test_a_plugin_that_does_not_load_is_told_with_its_own_traceback(serve: Serve, tmp_path: Path):
    (tmp_path / "bad.py").write_text("1 / 0")
    node = serve("--listen", "127.0.0.1:0", LEVERET_PLUGINS__FOLDERS=str(tmp_path))
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 1
    assert errors.startswith(
        f"leveret: plugin {tmp_path}/bad.py: ZeroDivisionError: division by zero\nTraceback"
    )
    assert "cli.py" not in errors
