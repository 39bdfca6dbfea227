"""A session that another connection takes over: the one that had it is closed, also over a real socket."""

from __future__ import annotations

import pytest

from leveret.server.node.threaded import ThreadedNode, embedded
from tests.mqtt.over_socket import SocketClient

SERVED = {"listeners": [{"address": "127.0.0.1:0", "protocols": ["mqtt"]}]}


@pytest.mark.parametrize("version", [4, 5])
def test_the_connection_that_had_the_session_is_closed(version: int) -> None:
    with ThreadedNode(embedded(SERVED)) as node:
        address = f"{node.host}:{node.port}"
        with SocketClient(address, version) as first, SocketClient(address, version) as second:
            first.connect("same")
            second.connect("same")
            last = first.until_end()
            assert (last and last.reason_code) == (0x8E if version == 5 else None)
