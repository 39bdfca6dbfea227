"""A RabbitMQ of this machine, if there is one (`apt-get install rabbitmq-server`): ports and a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pika

from tests.harness.postgres import free_port
from tests.interop.conftest import wait_until

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
EPMD = shutil.which("epmd")
# It takes up to a minute to start, so that it is tried when it is asked for.
IS_THERE = "LEVERET_RABBITMQ" in os.environ and SERVER.exists() and EPMD is not None


class RabbitMq:
    """A server with some plug-ins and definitions. `url` is its address."""

    def __init__(self, folder: Path, plugins: list[str], definitions: dict[str, object]) -> None:
        self.port, self._epmd = free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}"
        (folder / "plugins").write_text(f"[{','.join(plugins)}].")
        user = {"name": "guest", "password": "guest", "tags": "administrator"}
        permission = {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        (folder / "definitions.json").write_text(
            json.dumps(
                {"vhosts": [{"name": "/"}], "users": [user], "permissions": [permission], **definitions}
            )
        )
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {folder}/definitions.json\n"
        )
        environ = {
            **os.environ,
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
        assert EPMD is not None
        self._names = subprocess.Popen([EPMD, "-port", str(self._epmd), "-address", "127.0.0.1"])
        self._output = (folder / "output").open("wb")
        self._process = subprocess.Popen(
            [SERVER], env=environ, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait(self) -> None:
        """Wait until it serves clients."""
        wait_until(self._serves, "RabbitMQ to serve")

    def _serves(self) -> bool:
        assert self._process.poll() is None, "RabbitMQ has ended"
        try:
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
        except pika.exceptions.AMQPError:
            return False
        return True

    def stop(self) -> None:
        """Kill it, with all processes that it has started, and its name server."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()
        self._names.kill()
        self._names.wait()
