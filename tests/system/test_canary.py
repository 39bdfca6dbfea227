"""A node as a process, with its log at the lowest level: passwords go in by every door, and are nowhere to be found."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.parts import frame

from .served import ROOT, Serve, screen

pytestmark = pytest.mark.system

SECRETS = {
    name: f"canary-{name}-8b1f2c"
    for name in ("file", "variable", "config", "new", "wrong", "defined", "token")
}
CONFIG = """\
[log]
level = "debug"
audit = "{folder}/audit.jsonl"
[node]
data_dir = "data"
[definitions]
load = ["definitions.json"]
[protocols.amqp010]
enabled = true
[[users]]
name = "config"
password = "{config}"
tags = ["administrator"]
permissions = {{ "/" = {{ configure = ".*", write = ".*", read = ".*" }} }}
[[users]]
name = "file"
password_file = "password"
[[users]]
name = "variable"
password_env = "CANARY"
"""
COMMANDS = (
    ["status"],
    ["reload"],
    ["list", "users"],
    ["export"],
    ["user", "add", "eve", "--new-password-file", "new"],
    ["user", "password", "eve", "--new-password-file", "new"],
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "leveret.toml").write_text(CONFIG.format(**SECRETS, folder=tmp_path))
    (tmp_path / "password").write_text(SECRETS["file"])
    (tmp_path / "new").write_text(SECRETS["new"])
    (tmp_path / "config").write_text(SECRETS["config"])
    users = [{"name": "defined", "password": SECRETS["defined"], "tags": "management"}]
    (tmp_path / "definitions.json").write_text(json.dumps({"users": users}))
    return tmp_path


def log_in(at: tuple[str, int], user: str, password: str) -> None:
    """Over 0-9-1, 1.0 and 0-10, whatever comes of it."""
    response = b"\0" + user.encode() + b"\0" + password.encode()
    start_ok = m.ConnectionStartOk({}, "PLAIN", response, "en_US").encode()
    init = p.SaslInit(mechanism=Symbol("PLAIN"), initial_response=response)
    for said in (
        b"AMQP\x00\x00\x09\x01" + wire.method_frame(0, start_ok),
        b"AMQP\x03\x01\x00\x00" + frame(0, init, kind=1),
        b"AMQP\x01\x01\x00\x0a" + response,
    ):
        with socket.create_connection(at, timeout=60) as client:
            client.sendall(said)
            client.recv(65536)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass


def asked(
    url: str, user: str, password: str, method: str, path: str, body: object = None, scheme: str = "Basic"
) -> str:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    credentials = encoded if scheme == "Basic" else password
    octets = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url + path, octets, {"Authorization": f"{scheme} {credentials}"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read())
    except urllib.error.HTTPError as refusal:
        return str(refusal.read())


def command(folder: Path, url: str, *words: str) -> str:
    """What a command prints, and its arguments as others on the machine see them."""
    line = [sys.executable, "-m", "leveret", *words, "--url", url, "--user", "config"]
    line += ["--password-file", str(folder / "config")]
    pipe = subprocess.PIPE
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(line, cwd=folder, env=environ, stdout=pipe, stderr=pipe, text=True)
    seen = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return printed + errors + seen


def test_no_password_is_in_logs_answers_files_or_arguments(serve: Serve, folder: Path):
    node = serve(
        "--config", str(folder / "leveret.toml"), "--listen", "127.0.0.1:0", CANARY=SECRETS["variable"]
    )
    shown = screen(node)
    amqp, web = (line.split()[0] for line in shown.splitlines() if line.startswith("  127."))
    host, port = amqp.split(":")
    url = f"http://{web}"
    told = [shown, Path(f"/proc/{node.pid}/cmdline").read_bytes().decode()]
    for user in ("config", "file", "variable", "defined", "nobody"):
        for password in (SECRETS.get(user, "x"), SECRETS["wrong"]):
            log_in((host, int(port)), user, password)
            told.append(asked(url, user, password, "GET", "/api/whoami"))
    log_in((host, int(port)), "", SECRETS["token"])
    told.append(asked(url, "", SECRETS["token"], "GET", "/api/whoami", scheme="Bearer"))
    administrator = ("config", SECRETS["config"])
    for path in ("/api/users/ann", "/api/users/ann/no", "/api/definitions"):
        body = {
            "password": SECRETS["new"],
            "tags": "",
            "users": [{"name": "ben", "password": SECRETS["new"]}],
        }
        told += [asked(url, *administrator, method, path, body) for method in ("PUT", "POST")]
    for path in ("/api/users", "/api/definitions", "/api/connections", "/api/overview", "/api/parameters"):
        told.append(asked(url, *administrator, "GET", path))
    told += [command(folder, url, *words) for words in COMMANDS]
    (folder / "leveret.toml").write_text(
        CONFIG.format(**SECRETS, folder=folder).replace("[[users]]", "[[usrs]]", 1)
    )
    node.send_signal(signal.SIGHUP)
    node.send_signal(signal.SIGTERM)
    told += node.communicate(timeout=60)
    assert "shutting down" in told[-1]
    assert "login refused" in told[-1]
    for secret in SECRETS.values():
        assert not [text for text in told for each in written(secret) if each in text]
    kept = [path for path in (folder / "data").rglob("*") if path.is_file()]
    assert kept
    kept.append(folder / "audit.jsonl")
    assert kept[-1].read_text().count("\n") > 5
    assert not [path for path in kept for secret in SECRETS.values() if secret.encode() in path.read_bytes()]


def written(secret: str) -> list[str]:
    """As it is, and the middle of it as Basic has it, whatever stands before."""
    shifted = (base64.b64encode(b"u" * shift + secret.encode()).decode() for shift in range(3))
    return [secret, *(text[4:16] for text in shifted)]
