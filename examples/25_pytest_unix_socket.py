"""Have the broker of tests listen on a Unix domain socket, too.

Run `pytest examples/25_pytest_unix_socket.py`; Leveret brings the fixtures, nothing else has to run.
"""

import socket
from pathlib import Path

import pytest

from leveret.config.config import Config
from leveret.server.node.threaded import ThreadedNode, embedded

AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"


@pytest.fixture(scope="session")
def leveret_config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("leveret") / "amqp.sock"
    return embedded({"listeners": [{"address": "127.0.0.1:0"}, {"address": f"unix:{path}"}]})


def test_the_broker_is_there_by_path_and_by_port(leveret_node: ThreadedNode) -> None:
    assert Path(leveret_node.socket_path).is_socket()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(leveret_node.socket_path)
        client.sendall(AMQP_0_9_1)
        assert client.recv(1) == b"\x01"  # a frame: connection.start
    with socket.create_connection(("127.0.0.1", leveret_node.port)) as client:
        client.sendall(AMQP_0_9_1)
        assert client.recv(1) == b"\x01"
