"""One suite against one broker, with the usual ports: `python -m tests.suites.inside SUITE BROKER`.

Its caller gives it a network and processes of its own, which end with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.brokers import RABBITMQ, ROOT, TREE, wait_for
from tests.suites.catalogue import ENVIRONMENT, SUITES, Suite
from tests.suites.sources import FOLDER, fetched, python_of

TIME_LIMIT_S: Final = 2400
PLUGIN: Final = Path(__file__).parent / "plugin"


def main(name: str, broker: str) -> None:
    suite = next(each for each in SUITES if each.name == name)
    sources = fetched(suite)
    folder = FOLDER / name / broker
    folder.mkdir(exist_ok=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, stderr=subprocess.DEVNULL)
    command, environment = STARTS[broker](suite, sources, folder)
    with (folder / "broker.log").open("w") as log:
        started = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=log, cwd=folder
        )
    try:
        wait_for(5672)
        run(suite, sources, folder)
    finally:
        started.terminate()
        started.wait(60)


def run(suite: Suite, sources: Path, folder: Path) -> None:
    """Run the tests; their report and what they print lie in the folder afterwards."""
    places = {"python": str(python_of(suite)), "report": str(folder / "report.xml")}
    command = [part.format(**places) for part in suite.command]
    if suite.left_out:
        command += ["-k", " and ".join(f"not {part}" for part in suite.left_out)]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    with (folder / "suite.log").open("w") as log:
        subprocess.run(
            command,
            cwd=sources,
            env={**inherited, **ENVIRONMENT, "PYTHONPATH": f"{sources}{os.pathsep}{PLUGIN}"},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_S,
            check=False,
        )


def leveret(suite: Suite, sources: Path, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return how to start a node with the suite's profile."""
    lines = [
        f'compat.profile = "{suite.profile}"',
        "security.loopback_users = []",
        'http = { enabled = true, address = "127.0.0.1:15672" }',
    ]
    listeners = ['[[listeners]]\naddress = "127.0.0.1:5672"', '[[listeners]]\naddress = "[::1]:5672"']
    if suite.certificates:
        certificate, key, authority = (str(sources / each) for each in suite.certificates)
        listeners.append(
            f'[[listeners]]\naddress = "127.0.0.1:5671"\n[listeners.tls]\ncertificate = "{certificate}"\n'
            f'key = "{key}"\nca = "{authority}"\nclient_certificate = "optional"'
        )
    if suite.jwks:
        (folder / "jwks.json").write_text(suite.jwks)
        listeners.append(
            f'[oauth]\njwks_file = "{folder / "jwks.json"}"\nresource_server_id = "rabbitmq"\n'
            'algorithms = ["HS256"]\nleeway_s = 0'
        )
    configuration = folder / "leveret.toml"
    configuration.write_text("\n".join([*lines, *listeners]) + "\n")
    return (
        [sys.executable, "-m", "leveret", "serve", "--config", str(configuration)],
        {"PYTHONPATH": str(TREE if TREE == ROOT else f"{TREE}{os.pathsep}{ROOT}")},
    )


def rabbitmq(suite: Suite, sources: Path, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return how to start the system's RabbitMQ, with nothing left of an earlier run."""
    subprocess.run(["rm", "-rf", str(folder / "mnesia")], check=True)
    lines = ["listeners.tcp.default = 5672", "loopback_users = none"]
    if suite.certificates:
        certificate, key, authority = (str(sources / each) for each in suite.certificates)
        lines += [
            "listeners.ssl.default = 5671",
            f"ssl_options.cacertfile = {authority}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {key}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = false",
        ]
    (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
    (folder / "enabled").write_text("[rabbitmq_management,rabbitmq_amqp1_0].")
    return [str(RABBITMQ)], {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "rabbit@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled"),
    }


STARTS: Final = {"leveret": leveret, "rabbitmq": rabbitmq}

if __name__ == "__main__":
    main(*sys.argv[1:])
